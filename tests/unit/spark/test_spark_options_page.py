"""The page of Spark options says what the source declares."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_page_of_spark_options_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.spark_options_page", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (REPOSITORY / "docs/reference/spark-options.md").read_text()
    assert "| `onCorrupt` | fail | `fail`, `report` |" in page
    assert "| `minPartitions` |  | at least 1 |" in page
