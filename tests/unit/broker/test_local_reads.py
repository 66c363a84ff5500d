"""Reads by parts of the broker itself: answered, held and woken, told and measured."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from receive_world import World
from roquet.broker.api.caller import Caller, Front
from roquet.broker.api.receive import Filter, ReceiveRequest, ReceiveStatus
from roquet.broker.api.refusal import Refusal
from roquet.broker.clients.long_polling import LongPolling
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.pull_rules import PullConfig
from roquet.broker.services.receive import Receives
from roquet.store.results import GetResult, GetStatus
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import OffsetTable
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from pathlib import Path

CALLER = Caller(address="", front=Front.LOCAL)
NOTHING = GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3)
FOUND = GetResult(GetStatus.FOUND, 4, 0, 4, 1, b"record")


class Script:
    """A store that answers what a test has put here, the last of it again and again."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.answers: list[GetResult] = [NOTHING]
        self.asked: list[tuple[int, int, object]] = []
        self.took_s = 0.0

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Any = None,
        filter_by: Any = None,
    ) -> GetResult:
        assert (topic, queue_id, filter_by) == ("orders", 1, None)
        self.asked.append((offset, max_messages, tag_codes))
        self.clock.set_by(self.took_s)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def units(self, *_: object) -> list[tuple[int, int, int]]:
        raise AssertionError("nothing is judged here")


class Traffic(BrokerStats):
    """Keeps what it is told of reads."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__("c", clock)
        self.told: list[tuple[object, ...]] = []

    @override
    def pulled(
        self, group: str, topic: str, queue_id: int, result: GetResult, took_ms: int = 0
    ) -> None:
        self.told.append((group, topic, queue_id, result.status, took_ms))


class Reads:
    """The service over a store that answers what it is told to."""

    def __init__(self, folder: Path, rules: PullConfig | None = None) -> None:
        self.clock = FakeClock()
        self.store, self.traffic = Script(self.clock), Traffic(self.clock)
        self.holds = LongPolling(self.clock, random.Random(7))
        self.world = World(folder, rules)
        self.service = Receives(
            checks=self.world.checks,
            store=self.store,
            offsets=OffsetTable(JsonFile(folder / "offsets.json"), self.clock),
            holds=self.holds,
            traffic=self.traffic,
            rules=rules or PullConfig(),
            clock=self.clock,
        )

    def request(self, **more: Any) -> ReceiveRequest:
        given = {"group": "readers", "topic": "orders", "queue_id": 1, "offset": 3}
        asked = {"messages_max": 32, "filter": Filter(expression="*"), "wait_ms": 10_000}
        return ReceiveRequest(**{**given, **asked, **more})


def test_local_read_that_finds_something_is_answered_and_told(tmp_path: Path) -> None:
    it = Reads(tmp_path)
    it.store.answers = [FOUND]
    result = asyncio.run(it.service.receive(it.request(), CALLER))
    assert (result.status, result.records, result.next_offset) == (
        ReceiveStatus.FOUND,
        b"record",
        4,
    )
    assert (it.store.asked, it.service.held()) == ([(3, 32, None)], 0)
    assert it.traffic.told == [("readers", "orders", 1, GetStatus.FOUND, 0)]


@pytest.mark.parametrize(("took_s", "took_ms"), [(0.005, 5), (-3.0, 0)])
def test_time_of_a_read_is_told_and_a_clock_that_is_set_back_counts_as_none(
    tmp_path: Path, took_s: float, took_ms: int
) -> None:
    it = Reads(tmp_path)
    it.store.answers, it.store.took_s = [FOUND], took_s
    asyncio.run(it.service.receive(it.request(), CALLER))
    assert it.traffic.told == [("readers", "orders", 1, GetStatus.FOUND, took_ms)]


def test_local_read_waits_for_a_message_and_is_told_once(tmp_path: Path) -> None:
    async def run() -> None:
        it = Reads(tmp_path)
        await it.holds.start()
        reads = [asyncio.create_task(it.service.receive(it.request(), CALLER)) for _ in range(2)]
        await asyncio.sleep(0)
        assert it.service.held() == 2
        assert it.traffic.told == []
        it.store.answers = [FOUND]
        it.holds.arrived("orders", 1, 4)
        results = await asyncio.wait_for(asyncio.gather(*reads), 30)
        assert [result.status for result in results] == [ReceiveStatus.FOUND] * 2
        assert len(it.traffic.told) == 2
        assert it.service.held() == 0
        await it.holds.stop()

    asyncio.run(run())


def test_local_read_whose_time_is_over_finds_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        it = Reads(tmp_path)
        await it.holds.start()
        reading = asyncio.create_task(it.service.receive(it.request(), CALLER))
        await it.clock.advance(11)
        await it.holds.sweep()
        result = await asyncio.wait_for(reading, 30)
        assert (result.status, it.service.held()) == (ReceiveStatus.NOT_FOUND, 0)
        await it.holds.stop()

    asyncio.run(run())


def test_local_read_that_is_cancelled_waits_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        it = Reads(tmp_path)
        await it.holds.start()
        reads = [asyncio.create_task(it.service.receive(it.request(), CALLER)) for _ in range(2)]
        await asyncio.sleep(0)
        reads[0].cancel()
        await asyncio.wait(reads[:1])
        # The other one of this process waits on.
        assert it.service.held() == 1
        it.holds.arrived("orders", 1, 4)
        await asyncio.wait_for(reads[1], 30)
        await it.holds.stop()

    asyncio.run(run())


def test_held_read_that_is_no_longer_admitted_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        it = Reads(tmp_path)
        await it.holds.start()
        reading = asyncio.create_task(it.service.receive(it.request(), CALLER))
        await asyncio.sleep(0)
        it.world.group(consume_enable=False)
        it.holds.arrived("orders", 1, 4)
        with pytest.raises(Refusal, match="no permission, readers"):
            await asyncio.wait_for(reading, 30)
        await it.holds.stop()

    asyncio.run(run())


def no_match(next_begin: int) -> GetResult:
    return GetResult(GetStatus.NO_MATCHED_MESSAGE, next_begin, 0, 99)


def test_held_read_with_tags_is_woken_by_a_message_that_it_wants(tmp_path: Path) -> None:
    async def run() -> None:
        it = Reads(tmp_path)
        await it.holds.start()
        woken: list[int] = []
        request = it.request(filter=Filter(expression="a"))
        held = it.service.receive_or_hold(request, CALLER, FakePeer(), lambda: woken.append(1))
        assert (held, it.service.held()) == (None, 1)
        codes = [ord("a")]
        it.store.asked.clear()
        # Unwanted ones, a few at a time: it goes on where it has not looked yet.
        it.store.answers = [no_match(5), no_match(7)]
        it.holds.arrived("orders", 1, 7)
        assert it.store.asked == [(3, 1, codes), (5, 1, codes)]
        it.holds.arrived("orders", 1, 7)
        assert len(it.store.asked) == 2
        # A store that gets no further is asked again when more has come, and not before.
        it.store.answers = [no_match(7)]
        it.holds.arrived("orders", 1, 8)
        assert it.store.asked[2:] == [(7, 1, codes)]
        it.store.answers = [FOUND]
        it.holds.arrived("orders", 1, 8)
        assert it.store.asked[3:] == [(7, 1, codes)]
        await asyncio.sleep(0)
        assert woken == [1]
        await it.holds.stop()

    asyncio.run(run())


def test_reads_follow_settings_that_change(tmp_path: Path) -> None:
    it = Reads(tmp_path)
    it.service.follow(PullConfig(slave_read=True))
    it.world.group(broker_id=0, which_broker_when_consume_slowly=7)
    it.store.answers = [FOUND._replace(suggest_slave=True)]
    result = it.service.resume(it.request(), CALLER)
    assert result.next_broker_id == 7
    # The checks go by the same ones.
    it.world.state.is_slave = True
    assert it.service.resume(it.request(), CALLER).status is ReceiveStatus.FOUND
