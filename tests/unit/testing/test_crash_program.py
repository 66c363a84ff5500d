"""The kill -9 program itself: it passes with the broker as it is, and notices lost messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def crash(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults.crash", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    return done.returncode, done.stdout + done.stderr


def test_messages_survive_a_few_kills() -> None:
    code, said = crash("--cycles", "2", "--flush", "sync")
    assert code == 0, said
    assert "lost 0," in said
    assert "every promise kept" in said


def test_planted_an_older_store_is_noticed() -> None:
    code, said = crash("--cycles", "2", "--flush", "async", "--plant")
    assert code == 1, said
    assert "L1: " in said
    assert "PROMISES BROKEN" in said
