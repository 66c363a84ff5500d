"""The guide's example of an archive in Delta runs as it stands, in a session of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roquet.client import Message

if TYPE_CHECKING:
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
GUIDE = Path(__file__).parents[2] / "docs/guide/pipeline.md"
# What a user's session needs on a machine that has no name.
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",
}


def test_the_example_of_delta_archives_a_topic(running: Running, tmp_path: Path) -> None:
    running.create_topic("orders", 2)
    for queue in range(2):
        running.send("orders", [Message("orders", b"x") for _ in range(7)], queue)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (block,) = [it for it in blocks if "delta" in it]
    block = block.replace("127.0.0.1:9876", running.name_servers)
    block = block.replace("/lake-delta", f"{tmp_path}/lake-delta")
    settings = " ".join(f"--conf {name}={value}" for name, value in _SETTINGS.items())
    given = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    given["PYSPARK_SUBMIT_ARGS"] = f"{settings} pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", f"{block}\nprint(*report.lines)"],
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
        cwd=tmp_path,
        env={**os.environ, **given},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert re.search(r"^\|orders\|\d{4}-\d\d-\d\d\| +14\|$", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1] == "14 messages archived in 1 micro-batches"
    assert list((tmp_path / "lake-delta/_delta_log").glob("*.json"))
