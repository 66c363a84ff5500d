"""Acknowledgements and invisible times over a store in memory: what is judged, and what counts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pop_queues import RETRY, Queues
from remoting_harness import on_loop
from roquet.broker.api.pop import ChangeInvisibleRequest, PopAckRequest, PopBatchAck
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.receive.acks import PopAcks
from roquet.broker.pop.receive.in_flight import PopInFlight
from roquet.broker.pop.receive.ordered_acks import OrderedAcks
from roquet.broker.pop.receive.records import ReviveLog
from roquet.broker.pop.set_backs import SetBacks
from roquet.model.topic import TopicConfig
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.store.results import PutResult, PutStatus, StoreFault
from roquet.store.tables.deletions import Deletions
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.broker.services.light_reads import MayRead

COPY = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
"""What a copy of a message of light queues has."""


class Desk:
    """Acknowledgements of pops that group g did at time 5000; `merges` has what waits in memory."""

    def __init__(self) -> None:
        self.clock = FakeClock(6000)
        self.store = Queues()
        self.stored: list[Any] = []
        self.status = PutStatus.PUT_OK
        self.merges: list[tuple[int, ...]] = []
        self.in_flight = PopInFlight(self.clock, is_enabled=True)
        config = {name: TopicConfig(name=name, read_queues=1) for name in ("t", "bad", RETRY)}
        handle = ReceiptHandle(0, 5000, 60_000, 3, "0", "b", 0, 0)
        self.it = PopAcks(
            checks=cast(
                "Any",
                SimpleNamespace(
                    settled_queue=lambda *_: None,
                    handle=lambda _: handle,
                    check_invisible=lambda _: None,
                    check_place=lambda *_, **_more: None,
                    popped=lambda *_: None,
                ),
            ),
            topics=cast("Any", config),
            store=self.store,
            revive_log=cast(
                "Any",
                SimpleNamespace(ack=self._ack, acks=self._acks, checkpoint=self._checkpoint),
            ),
            buffer=cast("Any", SimpleNamespace(merge=self)),
            in_flight=self.in_flight,
            ordered=cast("Any", None),
            set_backs=SetBacks(self.clock),
            deletions=Deletions(None, self.clock),
            broker_name="b",
            clock=self.clock,
        )

    def __len__(self) -> int:
        return len(self.merges)

    def ack(self, _key: object, offsets: tuple[int, ...], _now_ms: int) -> bool:
        return offsets in self.merges

    async def _ack(self, ack: Any, _queue: int, _revive_ms: int) -> PutResult:
        if ack.topic == "bad":
            raise StoreFault("io", "disk")
        for _ in range(5):
            await asyncio.sleep(0)
        self.stored.append(ack)
        return PutResult(PutStatus.PUT_OK)

    async def _acks(self, acks: Sequence[Any]) -> list[PutResult]:
        self.stored += [ack for ack, _, _ in acks]
        return [PutResult(self.status, why="a test says so")] * len(acks)

    async def _checkpoint(self, checkpoint: Any, _queue: int) -> PutResult:
        self.stored.append(checkpoint)
        return PutResult(PutStatus.PUT_OK)

    async def change(self, offset: int, may_read: MayRead | None) -> None:
        request = ChangeInvisibleRequest(
            topic=RETRY,
            group="g",
            queue_id=0,
            offset=offset,
            handle="",
            invisible_ms=1,
            may_read=may_read,
        )
        await self.it.change_invisible(request, "c")


def batch(topic: str, queue_id: int = 0) -> PopBatchAck:
    return PopBatchAck(
        topic=topic,
        group="g",
        queue_id=queue_id,
        revive_queue=3,
        start_offset=0,
        pop_time_ms=5000,
        invisible_ms=60_000,
        offsets=(0,),
    )


@on_loop
async def test_batch_of_which_one_fails_is_answered_when_all_the_others_are_stored() -> None:
    desk = Desk()
    desk.store.fill("t", 0, 1)
    desk.store.fill("bad", 0, 1)
    with pytest.raises(StoreFault, match="disk"):
        await desk.it.ack_batch("b", [batch("bad"), batch("t")])
    assert [ack.topic for ack in desk.stored] == ["t"]


@on_loop
async def test_batch_for_a_queue_that_the_topic_has_not_is_passed_over() -> None:
    desk = Desk()
    for queue_id in (-1, 0, 1):
        desk.store.fill("t", queue_id, 1)
    await desk.it.ack_batch("b", [batch("t", queue_id) for queue_id in (-1, 0, 1)])
    assert [ack.queue_id for ack in desk.stored] == [0]


@on_loop
async def test_ack_that_is_not_stored_is_refused_and_its_message_stays_in_flight() -> None:
    desk = Desk()
    desk.store.fill("t", 0, 1)
    key = "t", "g", 0
    desk.in_flight.popped(key, (5000, 0), 65_000, 1)
    desk.status = PutStatus.SERVICE_NOT_AVAILABLE
    request = PopAckRequest(topic="t", group="g", queue_id=0, offset=0, handle="")
    with pytest.raises(Refusal, match="put ack msg error: SERVICE_NOT_AVAILABLE a test says so"):
        await desk.it.ack(request, "c")
    assert desk.in_flight.count(key) == 1


@on_loop
async def test_ack_that_meets_its_checkpoint_in_memory_ends_the_flight_and_stores_nothing() -> None:
    desk = Desk()
    desk.store.fill("t", 0, 1, 1)
    key = "t", "g", 0
    desk.in_flight.popped(key, (5000, 0), 65_000, 2)
    desk.merges = [(0,)]
    request = PopAckRequest(topic="t", group="g", queue_id=0, offset=0, handle="")
    await desk.it.ack(request, "c")
    assert (desk.in_flight.count(key), desk.stored) == (1, [])
    await desk.it.ack(PopAckRequest(topic="t", group="g", queue_id=0, offset=1, handle=""), "c")
    assert (desk.in_flight.count(key), len(desk.stored)) == (0, 1)


@on_loop
async def test_invisible_time_changes_only_for_a_message_that_the_caller_may_read() -> None:
    desk = Desk()
    for origin in ("mine", "theirs", "mine"):
        desk.store.fill(RETRY, 0, 1, LMQ_ORIGIN_TOPIC=origin, **COPY)

    def may_read(topic: str) -> bool:
        return topic == "mine"

    for offset in (0, 2):
        await desk.change(offset, may_read)
    with pytest.raises(Refusal) as caught:
        await desk.change(1, may_read)
    assert caught.value.reason is Reason.NO_MESSAGE
    await desk.change(1, None)
    starts = [it.start_offset for it in desk.stored if hasattr(it, "diffs")]
    assert starts == [0, 2, 1]


@on_loop
async def test_invisible_time_of_a_message_that_a_read_passes_over_is_not_changed() -> None:
    """What lies at its offset cannot be judged."""
    desk = Desk()
    desk.store.fill(RETRY, 0, 1, 1, LMQ_ORIGIN_TOPIC="mine", **COPY)
    passed_over = desk.store.get(RETRY, 0, 1, 1)
    desk.store.answers[RETRY, 0] = [passed_over]
    with pytest.raises(Refusal):
        await desk.change(0, lambda topic: topic == "mine")
    assert desk.stored == []


@on_loop
async def test_invisible_time_of_a_message_with_a_damaged_body_can_be_changed() -> None:
    """Who may read it stands in its properties; the body is for the reader to judge."""
    desk = Desk()
    desk.store.fill(RETRY, 0, 1, LMQ_ORIGIN_TOPIC="mine", **COPY)
    whole = desk.store.get(RETRY, 0, 0, 1)
    damaged = whole._replace(records=whole.records.replace(b"body", b"bodx"))
    desk.store.answers[RETRY, 0] = [damaged]
    await desk.change(0, lambda topic: topic == "mine")
    assert len(desk.stored) == 2


@on_loop
async def test_nothing_to_store_is_no_append() -> None:
    appended: list[Any] = []

    async def append_all(drafts: Any, *, wait: bool | None = None) -> list[PutResult]:
        appended.append((drafts, wait))
        return [PutResult(PutStatus.PUT_OK)] * len(drafts)

    it = ReviveLog(
        cast("Any", SimpleNamespace(append_all=append_all)),
        cast("Any", {}),
        "revive",
        identity=cast("Any", SimpleNamespace(store_host=bytes(8))),
        rules=BufferConfig(),
        clock=FakeClock(),
    )
    assert (await it.acks([]), await it.checkpoints([]), appended) == ([], [], [])
    for is_async in (True, False):
        # The fast path asks, which waits for a flush or does not.
        it.follow(BufferConfig(acks_async=is_async))
        assert it.acks_async is is_async


@pytest.mark.parametrize(
    ("queues", "turns"), [(None, [0, 0, 0]), (0, [0, 0, 0]), (1, [0, 0, 0]), (3, [1, 2, 0])]
)
def test_pops_take_the_revive_queues_in_turn(queues: int | None, turns: list[int]) -> None:
    topics = {} if queues is None else {"revive": SimpleNamespace(write_queues=queues)}
    it = ReviveLog(
        cast("Any", None),
        cast("Any", topics),
        "revive",
        identity=cast("Any", None),
        rules=BufferConfig(),
        clock=FakeClock(),
    )
    assert [it.next_queue() for _ in range(3)] == turns


def test_ordered_message_of_a_group_without_an_offset_is_not_in_flight() -> None:
    it = OrderedAcks(
        cast("Any", SimpleNamespace(show_at=lambda *_: False, clear=lambda *_: None)),
        cast("Any", SimpleNamespace(committed=lambda *_: None)),
        cast("Any", None),
        FakeClock(),
        deletions=Deletions(None, FakeClock()),
        wake=lambda _: None,
    )
    with pytest.raises(Refusal) as caught:
        it.change_invisible(("t", "g", 0), 4, 5000, 1000)
    # Java's words.
    assert caught.value.text == "offset is illegal, key:t@g@0, old:-1, commit:4, next:-1"
