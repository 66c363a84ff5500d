"""The demo itself, small, with the Spark job killed between write and commit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from demo.kills import replayed

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


def test_a_killed_job_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "demo.run", "--rows", "6000", "--kill", "1", "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    log = out / "job.log"
    told = done.stdout + done.stderr + (log.read_text()[-4000:] if log.exists() else "")
    assert done.returncode == 0, told
    assert "sent 6,000 in lake 6,000 lost 0 duplicated 0\n" in done.stdout
    assert "killed 1 times; written again: micro-batch" in done.stdout
    events = [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]
    assert list(replayed(events).values()) == [2]
    assert len({event["pid"] for event in events}) == 2
    assert json.loads((out / "audit.json").read_text())["clean"]
    assert (out / "delays.png").read_bytes().startswith(b"\x89PNG")
