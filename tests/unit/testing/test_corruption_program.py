"""The corruption program itself: damage passes as it should, a forged message is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def corruption(*options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults.corruption", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    return done.returncode, done.stdout + done.stderr


def test_some_kinds_of_files_are_damaged_without_harm() -> None:
    code, said = corruption(
        "--kind", "middle log file", "--kind", "first queue file", "--seed", "3"
    )
    assert code == 0, said
    assert "20 cases, 0 promises broken" in said


def test_planted_a_forged_message_is_noticed() -> None:
    code, said = corruption("--plant")
    assert code == 1, said
    assert "('Orders', 0, 0): another body" in said
