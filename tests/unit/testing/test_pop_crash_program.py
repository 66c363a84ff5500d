"""The kill -9 program for pops: it passes with the broker, and its account notices faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.faults.pop_crash import Account, Delivery

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("buffer", ["off", "on"])
def test_popped_messages_survive_a_few_kills(buffer: str) -> None:
    options = ("--cycles", "2", "--flush", "async", "--buffer", buffer, "--short")
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults.pop_crash", *options],
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
    ("deliveries", "why"),
    [
        ([], "lost: a"),
        ([Delivery(200, 300)], "lost: a"),
        (
            [Delivery(200, 300, ack_sent=True, acked=True), Delivery(400, 500)],
            "acknowledged, and came again: a",
        ),
        ([Delivery(200, 300), Delivery(299, 500, ack_sent=True, acked=True)], "came too early: a"),
        ([Delivery(200, 300), Delivery(5301, 5400, ack_sent=True, acked=True)], "came too late: a"),
    ],
)
def test_account_of_pops_notices_a_fault(deliveries: list[Delivery], why: str) -> None:
    account = Account()
    account.kills_ms = [100, 9000]
    account.sent["a"] = True
    account.sent_ms["a"] = 150
    for _ in range(3):
        account.had_room(5300, 5301)
    for delivery in deliveries:
        account.popped("a", delivery)
    account.judge()
    (problem,) = account.problems
    assert problem.startswith(why)


def test_account_of_pops_takes_what_is_right() -> None:
    account = Account()
    account.kills_ms = [350]
    account.sent = {"a": True, "b": True, "c": False}
    account.sent_ms = {"a": 150, "b": 390}
    # Over a kill an acknowledged message may come again; without one it comes when it is due.
    account.popped("a", Delivery(200, 300, ack_sent=True, acked=True))
    account.popped("a", Delivery(400, 500))
    account.popped("b", Delivery(400, 500))
    account.popped("b", Delivery(600, 700, ack_sent=True, acked=True))
    account.judge()
    assert (account.problems, account.duplicates, account.redelivered) == ([], 1, 1)


@pytest.mark.parametrize(
    ("asked", "is_late"),
    [
        ([], 0),
        ([(5299, 5400)] * 3, 0),
        ([(5350, 5501)] * 3, 0),
        ([(5300, 5500)] * 2, 0),
        ([(5300, 5500)] * 3, 1),
    ],
)
def test_account_of_pops_counts_a_late_message_that_somebody_had_room_for(
    asked: list[tuple[int, int]], is_late: int
) -> None:
    account = Account()
    account.sent, account.sent_ms = {"a": True}, {"a": 150}
    for times in asked:
        account.had_room(*times)
    account.popped("a", Delivery(200, 300))
    account.popped("a", Delivery(5500, 5600, ack_sent=True, acked=True))
    account.judge()
    assert (len(account.problems), account.unasked) == (is_late, 1 - is_late)
