"""A group's offsets in the client: where a queue begins, and what is written to which broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client import MessageQueue
from roquet.client._queues.offsets import Offsets
from roquet.client._queues.process_queue import LOCK_TRUST_MS, NOTHING, ProcessQueue

if TYPE_CHECKING:
    from roquet.client._cluster.broker_calls import BrokerCalls

A, B = MessageQueue("orders", "b0", 0), MessageQueue("orders", "b0", 1)
RETRY = MessageQueue("%RETRY%g", "b0", 0)
TIME_MS = 1_700_000_000_000


class Calls:
    """A broker that has `has`, ends at 90 and was at 40 at any time; notes commits."""

    def __init__(self, has: int | None = None) -> None:
        self.has = has
        self.commits: list[tuple[MessageQueue, int, bool]] = []
        self.fault: Exception | None = None
        self.lookup_fault: Exception | None = None

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        assert group == "g"
        assert queue.broker_name == "b0"
        if self.lookup_fault is not None:
            raise self.lookup_fault
        return self.has

    async def max_offset(self, queue: MessageQueue) -> int:
        return 90 + queue.queue_id

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        assert timestamp_ms == TIME_MS
        return 40 + queue.queue_id

    async def commit(self, group: str, queue: MessageQueue, offset: int, *, wait: bool) -> None:
        assert group == "g"
        if self.fault is not None:
            raise self.fault
        self.commits.append((queue, offset, wait))


def offsets(calls: Calls, start: str | int = "latest") -> Offsets:
    return Offsets(cast("BrokerCalls", calls), "g", start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "has", "queue", "first"),
    [
        ("latest", 7, A, 7),
        ("latest", 0, A, 0),
        (TIME_MS, 7, A, 7),
        ("latest", None, B, 91),
        ("latest", -1, B, 91),
        ("earliest", None, A, 0),
        (TIME_MS, None, B, 41),
        # What comes again was meant for this group: nothing of it is passed over.
        ("latest", None, RETRY, 0),
        ("earliest", None, RETRY, 0),
        (TIME_MS, None, RETRY, 90),
    ],
)
def test_first_offset_is_the_committed_one_else_by_the_rule(
    start: str | int, has: int | None, queue: MessageQueue, first: int
) -> None:
    calls = Calls(has)
    held = offsets(calls, start)
    assert asyncio.run(held.first(queue)) == first
    if has is not None and has >= 0:
        assert (held.get(queue), calls.commits) == (has, [])
    elif queue == RETRY:
        assert (held.get(queue), calls.commits) == (None, [])
    else:
        # The group's beginning: whoever takes the queue later begins there, too.
        assert (held.get(queue), calls.commits) == (first, [(queue, first, True)])


@pytest.mark.parametrize("fault", [None, Unreachable("gone")])
def test_queue_that_is_taken_anew_begins_without_what_was_known(fault: Exception | None) -> None:
    async def run() -> None:
        calls = Calls()
        held = offsets(calls)
        held.set(RETRY, 7)
        await held.write([RETRY])
        calls.lookup_fault = fault
        if fault is not None:
            with pytest.raises(Unreachable):
                await held.first(RETRY)
        else:
            assert await held.first(RETRY) == 0
        assert held.get(RETRY) is None
        # Another member may have committed less since: the same offset is written again.
        held.set(RETRY, 7)
        await held.write([RETRY])
        assert calls.commits == [(RETRY, 7, False)] * 2

    asyncio.run(run())


def test_offset_in_memory_goes_forward_by_itself_and_back_only_when_it_is_set() -> None:
    held = offsets(Calls())
    assert (held.get(A), held.to_commit(A)) == (None, 0)
    held.move(A, 0)
    assert held.get(A) == 0
    held.move(A, 9)
    held.move(A, 9)
    held.move(A, 4)
    assert (held.get(A), held.to_commit(A), held.get(B)) == (9, 9, None)
    held.set(A, 4)
    assert held.get(A) == 4
    held.forget(A)
    assert held.get(A) is None


def test_write_commits_what_changed_and_all_of_it_again_when_asked() -> None:
    async def run() -> None:
        calls = Calls()
        held = offsets(calls)
        held.set(A, 5)
        await held.write([A, B])
        assert calls.commits == [(A, 5, False)]
        await held.write([A, B])
        assert len(calls.commits) == 1, "nothing changed"
        held.set(B, 0)
        held.move(A, 6)
        await held.write([A, B], wait=True)
        assert calls.commits[1:] == [(A, 6, True), (B, 0, True)]
        await held.write([A], again=True)
        assert calls.commits[3:] == [(A, 6, False)]
        held.set(A, 2)
        await held.write([A])
        assert calls.commits[4:] == [(A, 2, False)]
        # A queue that comes back after it was somebody else's is written anew.
        held.forget(A)
        held.set(A, 2)
        await held.write([A])
        assert calls.commits[5:] == [(A, 2, False)]

    asyncio.run(run())


@pytest.mark.parametrize(
    "fault", [Refused(1, "no"), Unreachable("gone"), OutcomeUnknown("no answer")]
)
def test_write_that_a_broker_does_not_take_is_tried_again_with_the_next(fault: Exception) -> None:
    async def run() -> None:
        calls = Calls()
        held = offsets(calls)
        held.set(A, 5)
        held.set(B, 6)
        calls.fault = fault
        await held.write([A, B])
        assert calls.commits == []
        calls.fault = None
        await held.write([A, B])
        assert calls.commits == [(A, 5, False), (B, 6, False)]

    asyncio.run(run())


def test_lock_is_trusted_for_less_than_its_time() -> None:
    queue = ProcessQueue(A, 0)
    assert not queue.lock_is_fresh(0)
    assert (queue.last_lock_ms, queue.unlock_tries) == (0, 0), "shown as never locked"
    assert not queue.dropped
    queue.locked_at_ms = 1000
    assert queue.lock_is_fresh(1000 + LOCK_TRUST_MS - 1)
    assert not queue.lock_is_fresh(1000 + LOCK_TRUST_MS)
    assert (queue.commit_offset, queue.bounds, queue.span) == (NOTHING, (0, 0), 0)


def test_offset_moves_forward_alone_and_from_nothing_to_the_first() -> None:
    held = offsets(Calls())
    held.move(A, -1)
    assert (held.get(A), held.to_commit(A)) == (None, 0)
    for offset, after in ((0, 0), (5, 5), (5, 5), (4, 5)):
        held.move(A, offset)
        assert (held.get(A), held.to_commit(A)) == (after, after)
    held.set(A, 2)
    assert held.get(A) == 2
