"""The kill -9 program for timers: it passes with the broker, and its account notices faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.faults.timer_crash import Account, Copy, Timed

REPOSITORY = Path(__file__).resolve().parents[3]


def test_timer_messages_survive_a_few_kills() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults.timer_crash", "--cycles", "2", "--flush", "sync"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "violations 0" in said
    assert "every promise kept" in said


@pytest.mark.parametrize(
    ("timed", "arrived_ms", "why"),
    [
        (Timed(100, stored=True), [], "lost: a "),
        (Timed(100, stored=True), [99], "early by 1 ms: "),
        (Timed(100, stored=True, recall_sent=True, recalled=True), [100], "recalled, and arrived"),
        (Timed(100, stored=True), [100, 149], "twice in one run: "),
        (Timed(100, stored=True), [131], "late by 31 ms: "),
    ],
)
def test_account_of_timers_notices_a_fault(timed: Timed, arrived_ms: list[int], why: str) -> None:
    account = Account()
    account.served_ms, account.kills_ms = [20, 80], [50, 150]
    account.sent["a"] = timed
    for offset, stored_ms in enumerate(arrived_ms):
        account.found(Copy(0, offset, stored_ms, "a"))
    account.judge(30 if arrived_ms == [131] else 60)
    (problem,) = account.problems
    assert problem.startswith(why)


def test_account_of_timers_takes_what_is_right_and_notices_an_offset_given_twice() -> None:
    account = Account()
    account.served_ms, account.kills_ms = [20, 155], [150, 200]
    account.sent = {
        "a": Timed(100, stored=True),
        "b": Timed(100, stored=True, recall_sent=True),
        "c": Timed(100),
    }
    account.found(Copy(0, 0, 100, "a"))
    account.found(Copy(0, 1, 160, "a"))
    account.judge(60)
    assert (account.problems, account.duplicates) == ([], 1)
    account.found(Copy(0, 1, 160, "c"))
    assert account.problems[0].startswith("an offset given twice: ")
