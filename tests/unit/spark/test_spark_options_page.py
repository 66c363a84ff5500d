"""The pages of Spark options say what the source declares."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from roquet.spark.jobs.options.tables import JOBS

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_pages_of_spark_options_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.pages.spark_options", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (REPOSITORY / "docs/reference/spark-options.md").read_text()
    assert "| `onCorrupt` | fail | `fail`, `report` |" in page
    assert "| `minPartitions` |  | at least 1 |" in page
    jobs = (REPOSITORY / "docs/reference/job-options.md").read_text()
    assert re.findall(r"^## (\w+)$", jobs, re.MULTILINE) == [it.name for it in JOBS]
    assert "| `metricsPath` |  |  | folder of the driver for audit.prom |" in jobs
    assert jobs.count("| `dryRun` | false | `true`, `false` |") == len(JOBS) == 11
