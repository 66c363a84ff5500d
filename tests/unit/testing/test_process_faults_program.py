"""The program of faults in a real process: it notices writes that were never made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(600)
def test_planted_writes_that_do_nothing_are_noticed() -> None:
    case = ("--only", "calls", "--case", "pwrite commitlog", "--plant")
    done = subprocess.run(
        [sys.executable, "-m", "tools.process_faults", *case],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "was not read back" in done.stdout
    assert "PROMISES BROKEN" in done.stdout
