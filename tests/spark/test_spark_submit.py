"""A job started by `spark-submit`, as the guide has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from roquet import roquet_native as native

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark


def test_the_script_runs_a_job_for_spark_submit(spark: SparkSession, tmp_path: Path) -> None:
    store = native.Store.open(
        {"storePathRootDir": str(tmp_path / "store"), "mappedFileSizeCommitLog": 1 << 20}
    )
    store.start()
    for number in range(5):
        store.put("Submitted", number % 2, b"x", f"UNIQ_KEY\x01{number}\x02".encode())
    store.close()
    script = subprocess.run(
        [sys.executable, "-m", "roquet", "pipeline", "script"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()
    settings = {
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.python.authenticate.socketTimeout": "120s",
    }
    submit = Path(pyspark.__file__).parent / "bin/spark-submit"
    words = [str(submit), "--master", "local[1]"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    words += [script, "stats", "--store", f"{tmp_path}/store", "--out", f"{tmp_path}/out"]

    def submitted(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*words, *more],
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
            cwd=tmp_path,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )

    done = submitted()
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "5 messages counted"
    rows = spark.read.parquet(f"{tmp_path}/out/queues").collect()
    assert {(row.queueId, row.messages) for row in rows} == {(0, 3), (1, 2)}
    # What is wrong is the exit code of spark-submit as well.
    assert submitted("--top", "0").returncode == 2
