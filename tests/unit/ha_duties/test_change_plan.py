"""The order of the steps by which duties change: every pair of sets of duties."""

from __future__ import annotations

import itertools

import pytest

from roquet.base.errors import UsageError
from roquet.broker.replication.change_plan import Act, Step, check, plan, retreat
from roquet.service.duties import MASTER, SLAVE, SPECIAL, Duty


def legal() -> list[Duty]:
    """Return every set of duties that a broker may have."""
    found: list[Duty] = []
    for bits in range(MASTER.value + SLAVE.value + 1):
        try:
            check(Duty(bits))
        except UsageError:
            continue
        found.append(Duty(bits))
    return found


PAIRS = list(itertools.product(legal(), repeat=2))


def walked(held: Duty, steps: list[Step]) -> Duty:
    """Return the duties after the steps; a log has one owner at every moment."""
    leads: bool | None = Duty.WRITES in held
    is_open = Duty.WRITES in held
    for step in steps:
        match step.act:
            case Act.CLOSE:
                is_open = False
            case Act.OPEN:
                assert leads, "messages are taken for a log that is a copy"
                is_open = True
            case Act.FENCE:
                assert not is_open, "a log with an open door becomes a copy"
                assert not held & SPECIAL, "what appends by itself still runs"
                leads = False
            case Act.LEAD:
                assert Duty.COPIES not in held, "two append to one log"
                leads = True
            case Act.STOP:
                assert not is_open or Duty.WRITES not in step.duties
                held &= ~step.duties
            case Act.START:
                assert leads or not step.duties & MASTER, "parts append to a copy"
                assert not leads or Duty.COPIES not in step.duties
                held |= step.duties
            case _:
                pass
    return held | Duty.WRITES if is_open else held


def test_every_change_ends_with_the_wanted_duties_and_never_two_writers() -> None:
    assert len(PAIRS) > 400
    for held, wanted in PAIRS:
        assert walked(held, plan(held, wanted, is_new_role=False)) == wanted, (held, wanted)


def test_every_fall_back_ends_with_the_safe_duties_from_wherever_it_failed() -> None:
    for before, wanted in PAIRS:
        steps = plan(before, wanted, is_new_role=True)
        for count in range(1, len(steps)):
            held = walked(before, steps[:count])
            reached = held & ~Duty.WRITES if _is_closed(before, steps[:count]) else held
            safe, back = retreat(before, wanted, held)
            if Duty.WRITES in before and Duty.WRITES not in wanted:
                assert safe == Duty.NONE
            assert Duty.WRITES not in safe or Duty.WRITES in before & wanted
            assert not {Act.OPEN, Act.LEAD} & {step.act for step in back}
            if Duty.WRITES not in safe:
                assert [step.act for step in back if step.act is Act.CLOSE]
                assert _walked_back(reached, back) == safe, (before, wanted, count)


def _is_closed(before: Duty, steps: list[Step]) -> bool:
    acts = {step.act for step in steps}
    return Act.CLOSE in acts or (Duty.WRITES not in before and Act.OPEN not in acts)


def _walked_back(held: Duty, steps: list[Step]) -> Duty:
    for step in steps:
        if step.act is Act.STOP:
            held &= ~step.duties
        if step.act is Act.FENCE:
            assert not held & SPECIAL
        if step.act is Act.START:
            held |= step.duties
    return held & ~Duty.WRITES


def test_no_change_is_no_step() -> None:
    for held in legal():
        assert plan(held, held, is_new_role=False) == []
        assert plan(held, held, is_new_role=True)


def test_a_master_that_becomes_a_slave_acknowledges_no_more_before_it_writes_no_more() -> None:
    acts = [step.act for step in plan(MASTER, SLAVE, is_new_role=True)]
    assert acts[:4] == [Act.NOTE, Act.ANNOUNCE, Act.CLOSE, Act.DRAIN]
    assert acts.index(Act.DRAIN) < acts.index(Act.STOP) < acts.index(Act.FENCE)
    assert acts.index(Act.FENCE) < acts.index(Act.HAND_OVER) < acts.index(Act.START)


def test_slaves_are_fed_until_they_have_the_end_of_the_log() -> None:
    steps = plan(MASTER, SLAVE, is_new_role=True)
    feeds = next(i for i, step in enumerate(steps) if Duty.FEEDS in step.duties)
    assert [step.act for step in steps].index(Act.HAND_OVER) < feeds


def test_a_slave_that_becomes_a_master_notes_it_last_before_the_first_message() -> None:
    acts = [step.act for step in plan(SLAVE, MASTER, is_new_role=True)]
    assert acts == [
        *(Act.STOP, Act.LEAD, Act.ADOPT, Act.START),
        *(Act.NOTE, Act.OPEN, Act.ANNOUNCE),
    ]


@pytest.mark.parametrize(
    ("duties", "why"),
    [
        (Duty.WRITES | Duty.COPIES, "a log cannot be a copy"),
        (Duty.COPIES | Duty.FEEDS, "feeds: only with writes"),
        (Duty.TIMERS, "timers: only with writes"),
        (Duty.WRITES | Duty.POPS, "need the timer wheel"),
        (Duty.WRITES | Duty.REVIVE, "need the timer wheel"),
    ],
)
def test_duties_that_cannot_be_together_are_refused(duties: Duty, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check(duties)
