"""Spark's own programmes find the formats: nobody registers them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from roquet.client import Message

if TYPE_CHECKING:
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
PROGRAMME = Path(pyspark.__file__).parent / "bin/spark-sql"


def test_spark_sql_reads_and_writes_a_topic(running: Running, tmp_path: Path) -> None:
    running.create_topic("orders", 2)
    running.create_topic("copies", 1)
    for queue in range(2):
        running.send("orders", [Message("orders", f"{queue}".encode())] * 3, queue)
    where = f"nameServers '{running.name_servers}'"
    both = "topic 'copies', subscribe 'copies'"
    statements = (
        f"create table orders using roquet options ({where}, subscribe 'orders')",
        # Spark hands over no option of a catalog's table that is written to.
        f"create temporary view copies using roquet options ({where}, {both})",
        "insert into copies (topic, body) select 'copies', body from orders where queueId = 1",
        "select concat('found ', cast(body as string), ' ', count(*)) from copies group by body",
    )
    done = subprocess.run(
        [
            *("bash", str(PROGRAMME), "--master", "local[2]"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.python.authenticate.socketTimeout=120s"),
            *("-e", "; ".join(statements)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "found 1 3" in done.stdout.splitlines()
