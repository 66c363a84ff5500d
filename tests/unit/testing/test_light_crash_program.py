"""The kill -9 program for light topics: it passes with the broker, its account notices faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.faults.light_parts import IDLE_S, Account, IdleAccount, Taken

REPOSITORY = Path(__file__).resolve().parents[3]


def test_messages_of_light_topics_survive_a_few_kills() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.faults.light_crash", "--cycles", "2", "--flush", "async"],
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


def account(*stored: str) -> Account:
    made = Account()
    made.sent = dict.fromkeys(stored, True)
    return made


def taken(body: str, offset: int, pop_ms: int = 0) -> Taken:
    return Taken(body.partition(":")[0], offset, body, "handle", pop_ms, pop_ms + 1_000)


def settle(it: Account, *given: Taken) -> None:
    it.popped(list(given))
    for one in given:
        it.acked(one, it.acks(one), one.pop_ms)


def test_account_of_light_topics_takes_what_is_right() -> None:
    it = account("a:1", "a:2", "a:4", "b:3")
    it.sent["a:9"] = False
    first, second, other, last = taken("a:1", 0), taken("a:2", 1), taken("b:3", 0), taken("a:4", 2)
    it.popped([first, second, other])
    it.acked(second, it.acks(second), 0)
    # The first one was not acknowledged: it comes again, by itself.
    settle(it, first, other)
    it.ended(is_killed=True)
    settle(it, second, last)
    it.judge()
    assert (it.problems, it.redelivered, it.duplicates, it.kills) == ([], 2, 1, 1)


@pytest.mark.parametrize(
    ("pops", "why"),
    [
        ([[("a:2", 1)]], "jumped over 0 of a"),
        ([[("a:1", 0)], [("a:2", 1)]], "jumped over 0 of a"),
        ([[("a:1", 0), ("a:4", 2)]], "jumped over 1 of a"),
        ([[("a:1", 0)], [("a:2", 0)]], "place 0 of a was a:1, and is a:2"),
        ([[("a:7", 0)]], "nobody sent this there: a 0 a:7"),
    ],
)
def test_account_of_light_topics_notices_what_a_pop_must_not_give(
    pops: list[list[tuple[str, int]]], why: str
) -> None:
    it = account("a:1", "a:2", "a:4")
    for given in pops:
        it.popped([taken(*one) for one in given])
    assert it.problems[0].startswith(why)


def test_account_of_light_topics_notices_what_the_end_shows() -> None:
    it = account("a:1", "a:2", "a:4")
    settle(it, taken("a:2", 0), taken("a:1", 1))
    settle(it, taken("a:2", 0))
    it.judge()
    assert it.problems == [
        "acknowledged, and came again: a 0",
        "lost: a:4",
        "not in the order of the sends: a [2, 1]",
    ]


def test_account_of_light_topics_takes_an_answer_noted_after_the_kill_as_of_before() -> None:
    it = account("a:1")
    one = taken("a:1", 0)
    it.popped([one])
    run = it.acks(one)
    it.ended(is_killed=True)
    it.acked(one, run, 5)
    it.popped([taken("a:1", 0, 10)])
    assert (it.problems, it.duplicates) == ([], 1)
    it.acked(one, it.acks(one), 11)
    it.popped([taken("a:1", 0, 12)])
    assert it.problems == ["acknowledged, and came again: a 0"]


def test_account_of_light_topics_takes_a_pop_noted_after_a_later_one_as_earlier() -> None:
    it = account("a:1")
    earlier, later = taken("a:1", 0, 10), taken("a:1", 0, 1_010)
    it.popped([later])
    it.acked(later, it.acks(later), 1_020)
    it.popped([earlier])
    assert (it.problems, it.redelivered) == ([], 1)
    it.popped([taken("a:1", 0, 2_020)])
    assert it.problems == ["acknowledged, and came again: a 0"]


def test_account_of_idle_light_topics_lets_one_begin_again_only_after_its_time() -> None:
    second = 10**9
    it = IdleAccount()
    late, soon = f"i0:{(IDLE_S + 1) * second}", f"i0:{(IDLE_S + 2) * second}"
    it.sent = {"i0:0": True, late: True, soon: True}
    settle(it, taken("i0:0", 0))
    settle(it, taken(late, 0))
    assert (it.problems, it.lives) == ([], 1)
    it.popped([taken(soon, 0)])
    assert it.problems[0] == f"place 0 of i0 was {late}, and is {soon}"
    assert it.lives == 1
