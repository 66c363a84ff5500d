"""The program of faults in a real process: it notices what is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(600)
def test_planted_a_store_that_was_emptied_is_noticed() -> None:
    case = ("--only", "calls", "--case", "pwrite commitlog", "--plant")
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults.process_faults", *case],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "was not read back" in done.stdout
    assert "PROMISES BROKEN" in done.stdout
