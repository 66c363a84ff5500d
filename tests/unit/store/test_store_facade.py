"""What the facade of the store makes of what the core says: waits, statuses and figures."""

from __future__ import annotations

import asyncio
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import on_loop
from roquet._native import StoreError
from roquet.protocol.messages.records import encode_record
from roquet.store.records import Record
from roquet.store.results import BatchDraft, Draft, PutResult, PutStatus, StoreFault
from roquet.store.store import MessageStore, waits

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, TIMEOUT, UNKNOWN = PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.UNKNOWN_ERROR
AWAY, ILLEGAL = PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.MESSAGE_ILLEGAL
NO_FILE = PutStatus.CREATE_MAPPED_FILE_FAILED


class Native:
    """The core: appends 10 bytes a message; bodies say what is wrong with it."""

    def __init__(self) -> None:
        self.end = 0
        self.flushed = 0
        self.awaited: list[bool] = []
        self.growth: list[bool] = []
        self.news: tuple[int, list[tuple[str, int, int]], str | None] = (0, [], None)
        self.places: dict[int, int] = {}
        self.log: dict[int, bytes] = {}
        self.figures: dict[str, int] = {}

    def put_many(self, fields: Sequence[Any]) -> tuple[list[tuple[int, int, int, int]], int]:
        placed: list[tuple[int, int, int, int]] = []
        for message in fields:
            body = message[2].decode()
            if body == "raise":
                raise StoreError("io", "disk")
            status = int(body) if body.isdigit() else 0
            placed.append((status, self.end, 10, self.end // 10))
            self.end += 10 * (status == 0)
        return placed, 99

    def put_batch(self, *_: object, **fields: Any) -> tuple[int, list[int], int, int, int]:
        status = fields["sys_flag"]
        if status == 99:
            raise StoreError("closed", "it is closed")
        return status, [] if status else [100, 110], 125, 7, 99

    def set_flush_awaited(self, is_so: bool) -> None:
        self.awaited.append(is_so)

    def set_growth_awaited(self, is_so: bool) -> None:
        self.growth.append(is_so)

    def take_events(self) -> tuple[int, list[tuple[str, int, int]], str | None]:
        return self.news

    def writable(self) -> tuple[bool, str]:
        return False, "busy"

    def units(self, _t: str, _q: int, offset: int, _n: int) -> list[tuple[int, int, int]]:
        return [(self.places[offset], 10, 0)] if offset in self.places else []

    def max_physical_offset(self) -> int:
        return 1000

    def read(self, offset: int, _size: int | None) -> bytes | None:
        return self.log.get(offset)

    def query(self, *_: object) -> tuple[list[int], int, int]:
        return sorted(self.log), 5, 6

    def stats(self) -> dict[str, int]:
        return self.figures

    def last_damage(self) -> tuple[str, str]:
        return "read", "conflict"


def store(
    *, sync: bool = True, timeout_ms: int = 60_000, **config: Any
) -> tuple[MessageStore, Native]:
    native = Native()
    durability = SimpleNamespace(sync_flush=sync, sync_flush_timeout_ms=timeout_ms)
    it = MessageStore({"storePathRootDir": "/"} | config, durability)
    it._native = cast("Any", native)
    return it, native


def draft(body: str = "m", **properties: str) -> Draft:
    return Draft(
        topic="t",
        queue_id=0,
        body=body.encode(),
        properties=properties,
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )


def batch(status: int, *, wait: bool = True) -> BatchDraft:
    return BatchDraft(
        topic="t",
        queue_id=0,
        elements=[(0, b"a", b"")],
        sys_flag=status,
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
        wait=wait,
    )


def flushed(it: MessageStore, native: Native, offset: int, failure: str | None = None) -> None:
    native.news = offset, [], failure
    it._take_events()


# --- waiting -------------------------------------------------------------------------------------


@on_loop
async def test_append_waits_for_the_flush_of_its_last_byte() -> None:
    it, native = store()
    first, second = (asyncio.create_task(it.put(draft())) for _ in range(2))
    await asyncio.sleep(0)
    assert native.awaited == [True, True]
    for offset, done in ((9, (False, False)), (10, (True, False)), (5, (True, False))):
        flushed(it, native, offset)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (first.done(), second.done()) == done
    assert native.awaited == [True, True], "one waits still"
    flushed(it, native, 20)
    assert native.awaited == [True, True, False]
    assert [(await task).status for task in (first, second)] == [OK, OK]
    assert it.is_settled(20)
    assert not it.is_settled(21)
    # What is durable by now waits for nothing, and nobody who waits changes nothing.
    assert (await it.settled(PutResult(OK, 10, 10, 1, 1), True)).status is OK
    flushed(it, native, 30)
    assert len(native.awaited) == 3


@pytest.mark.parametrize(
    ("sync", "properties", "wait", "done"),
    [
        (True, {}, None, False),
        (True, {"WAIT": "FALSE"}, None, True),
        (True, {"WAIT": "true"}, None, False),
        (True, {"WAIT": "false"}, True, False),
        (True, {}, False, True),
        (False, {}, True, True),
    ],
)
@on_loop
async def test_append_waits_as_durability_the_message_and_the_caller_say(
    properties: dict[str, str], *, sync: bool, wait: bool | None, done: bool
) -> None:
    it, native = store(sync=sync)
    task = asyncio.create_task(it.put(draft(**properties), wait=wait))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert task.done() is done
    assert it.is_settled(10) is not sync
    flushed(it, native, 10)
    assert (await task).status is OK


def test_message_waits_unless_it_says_false() -> None:
    assert waits(draft())
    assert waits(draft(WAIT="no"))
    assert not waits(draft(WAIT="False"))


@on_loop
async def test_waits_for_the_same_flush_end_together() -> None:
    it, native = store()
    waits_ = [asyncio.create_task(it.settled(PutResult(OK, 0, 10, 0, 1), True)) for _ in range(3)]
    await asyncio.sleep(0)
    flushed(it, native, 10)
    assert [(await wait).status for wait in waits_] == [OK] * 3


@on_loop
async def test_failed_flush_is_final_for_all_who_wait_and_come_later() -> None:
    it, native = store()
    told: list[tuple[int, str | None]] = []
    it.on_flush(lambda *news: told.append(news))
    task = asyncio.create_task(it.put(draft()))
    await asyncio.sleep(0)
    flushed(it, native, 10, "disk")
    result = await task
    assert (result.status, result.why) == (UNKNOWN, "disk")
    assert (it.failure, it.writable()) == ("disk", (False, "disk"))
    flushed(it, native, 20, "another")
    assert (it.failure, it.is_settled(0)) == ("disk", False)
    assert told == [(0, "disk"), (20, "disk")]
    assert (await it.put(draft())).status is UNKNOWN
    assert (await it.put(draft(), wait=False)).status is OK


@on_loop
async def test_flush_that_takes_too_long_is_told_and_frees_the_place() -> None:
    it, native = store(timeout_ms=1)
    assert (await it.put(draft())).status is TIMEOUT
    flushed(it, native, 10)
    assert it._waiters == []


@on_loop
async def test_news_reach_who_listens() -> None:
    it, native = store()
    one: list[tuple[str, int, int]] = []
    many: list[Sequence[tuple[str, int, int]]] = []
    it.arrivals.on_each(lambda *news: one.append(news), None)
    it.arrivals.on_all(many.append, None)
    native.news = 5, [("a", 0, 1), ("b", 1, 2)], None
    it._take_events()
    native.news = 6, [], None
    it._take_events()
    assert (one, many) == ([("a", 0, 1), ("b", 1, 2)], [[("a", 0, 1), ("b", 1, 2)]])
    assert not it._told_all
    it.on_flush(lambda *_: None, of_fast_path=True)
    assert not it._told_all
    it.on_flush(lambda *_: None)
    it.on_flush(lambda *_: None, of_fast_path=True)
    assert it._told_all


@on_loop
async def test_loop_is_woken_for_arrivals_only_while_a_listener_waits() -> None:
    it, native = store()
    heard: list[int] = []
    waiting = [False, False]
    it.arrivals.wake_by(native.set_growth_awaited)
    it.arrivals.on_each(lambda *_: heard.append(1), lambda: waiting[0])
    it.arrivals.on_all(lambda _: heard.append(2), lambda: waiting[1])
    it.arrivals.begin()
    assert native.growth == [], "at first they are news"
    native.news = 5, [("a", 0, 1)], None
    it._take_events()
    it._take_events()
    # Whoever does not wait hears of what is told nevertheless.
    assert heard == [2, 1] * 2
    assert native.growth == [False]
    waiting[1] = True
    it.arrivals.begin()
    it.arrivals.begin()
    it._take_events()
    assert native.growth == [False, True]
    waiting[1] = False
    it._take_events()
    assert native.growth == [False, True, False]
    it.arrivals.on_all(lambda _: heard.append(3), None)
    it.arrivals.begin()
    it._take_events()
    assert native.growth == [False, True, False, True], "a listener without a test always waits"


# --- statuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bodies", "statuses"),
    [
        (["a"], [OK]),
        (["a", "b"], [OK, OK]),
        (["7"], [PutStatus.PROPERTIES_SIZE_EXCEEDED]),
        (["a", "7", "b"], [OK, PutStatus.PROPERTIES_SIZE_EXCEEDED, OK]),
        (["raise"], [AWAY]),
        (["a", "raise", "b"], [OK, AWAY, OK]),
        (["4", "6"], [AWAY, ILLEGAL]),
    ],
)
def test_each_message_of_an_append_has_its_own_outcome(
    bodies: list[str], statuses: list[PutStatus]
) -> None:
    it, _ = store()
    results = it.append([draft(body) for body in bodies])
    assert [result.status for result in results] == statuses
    stored = [result for result in results if result.status is OK]
    assert [result.size for result in stored] == [10] * len(stored)
    assert len({result.physical_offset for result in stored}) == len(stored)
    assert all(result.store_time == 99 for result in stored)


@pytest.mark.parametrize(
    ("status", "expected", "why"),
    [
        (AWAY, AWAY, "busy"),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.PROPERTIES_SIZE_EXCEEDED, "too long"),
        (ILLEGAL, ILLEGAL, ""),
    ],
)
@on_loop
async def test_refused_append_says_why(status: PutStatus, expected: PutStatus, why: str) -> None:
    it, _ = store()
    (result,) = it.append([draft(str(int(status)))])
    whole = await it.put_batch(batch(int(status)))
    for found in (result, whole):
        assert (found.status, found.why.startswith(why)) == (expected, True)
        assert bool(found.why) == bool(why)


@pytest.mark.parametrize(
    ("free", "config", "expected"),
    [
        (99, {"mappedFileSizeCommitLog": 100}, AWAY),
        (100, {"mappedFileSizeCommitLog": 100}, NO_FILE),
        ((1 << 30) - 1, {}, AWAY),
        (1 << 30, {}, NO_FILE),
    ],
)
def test_full_disk_has_always_the_same_status(
    monkeypatch: pytest.MonkeyPatch, free: int, config: dict[str, Any], expected: PutStatus
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    it, _ = store(**config)
    (result,) = it.append([draft(str(int(NO_FILE)))])
    assert (result.status, "is full" in result.why) == (expected, expected is AWAY)


@on_loop
async def test_batch_waits_for_its_end_and_knows_its_size() -> None:
    it, native = store()
    result = await it.put_batch(batch(0, wait=False))
    assert (result.status, result.physical_offsets, result.size) == (OK, [100, 110], 25)
    task = asyncio.create_task(it.put_batch(batch(0)))
    await asyncio.sleep(0)
    flushed(it, native, 124)
    await asyncio.sleep(0)
    assert not task.done()
    flushed(it, native, 125)
    assert (await task).status is OK
    failed = await it.put_batch(batch(99))
    assert (failed.status, failed.why, failed.physical_offsets) == (AWAY, "it is closed", [])


@on_loop
async def test_closed_store_takes_nothing() -> None:
    it, _ = store()
    it._native = None
    assert it.writable() == (False, "the message store is not open")
    assert it.append_busy_ms() == 0
    (result,) = it.append([draft()])
    assert result.status is AWAY
    with pytest.raises(StoreFault) as caught:
        it.min_offset("t", 0)
    assert caught.value.kind == "closed"
    await it.stop()


# --- reads ---------------------------------------------------------------------------------------


def record(topic: str, keys: str) -> bytes:
    return encode_record(
        Record(
            size=0,
            body_crc=0,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            born_timestamp=1,
            born_host=bytes(8),
            store_timestamp=44,
            store_host=bytes(8),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"",
            topic=topic,
            properties=f"KEYS\x01{keys}\x02".encode(),
            magic=0xDAA320A7,
        )
    )


def test_query_returns_no_message_of_another_topic_or_key() -> None:
    it, native = store()
    native.log = {0: record("t", "k"), 10: record("u", "k"), 20: record("t", "l"), 30: b""}
    found = it.query("t", "k", 9, 0, 9)
    assert (found.records, found.index_time, found.index_offset) == ([native.log[0]], 5, 6)


def test_record_is_taken_apart_or_corrupt() -> None:
    it, native = store()
    native.log = {0: record("t", "k"), 10: b"\0" * 20}
    native.places = {0: 0, 1: 500}
    found = it.record(0)
    assert found is not None
    assert (found.topic, it.record(99)) == ("t", None)
    assert [it.store_time("t", 0, offset) for offset in (0, 1, 2)] == [44, -1, -1]
    with pytest.raises(StoreFault) as caught:
        it.record(10)
    assert caught.value.kind == "corrupt"


@pytest.mark.parametrize("upper", [False, True])
def test_offset_of_a_time_is_what_the_core_says(*, upper: bool) -> None:
    it, native = store()
    asked: list[object] = []

    def found(*given: object) -> int:
        asked.append(given)
        return 7

    native.offset_by_time = found  # type: ignore[attr-defined]
    assert it.offset_by_time("t", 1, 99, upper=upper) == 7
    assert asked == [("t", 1, 99, upper)]


def test_message_near_the_end_of_the_log_is_probably_in_memory() -> None:
    it, native = store()
    native.places = {0: 600, 1: 599, 2: 1001}
    it._memory_bytes = 1000
    assert [it.is_in_memory("t", 0, offset) for offset in (0, 1, 9)] == [True, False, False]
    assert [it.bytes_behind("t", 0, offset) for offset in (0, 1, 2, 9)] == [400, 401, 0, 0]
    wide, other = store(accessMessageInMemoryMaxRatio="41")
    wide._memory_bytes = 1000
    other.places = {0: 590, 1: 589}
    assert [wide.is_in_memory("t", 0, offset) for offset in (0, 1)] == [True, False]


def test_figures_are_those_of_the_core() -> None:
    it, native = store()
    levels = {"disk_full_level": 90, "disk_clean_level": 85, "disk_used_level": 75}
    native.figures = {"disk_used_percent": 50, "newest_store_time": 0, **levels}
    use = it.disk_use()
    assert (use.percent, use.full, use.clean, use.expire) == (50, 90, 85, 75)
    assert it.newest_store_time() is None
    native.figures = {"newest_store_time": 7, "damaged_reads": 2, "queue_conflicts": 3}
    assert it.newest_store_time() == 7
    damage = it.damage()
    found = damage.reads, damage.conflicts, damage.last_read, damage.last_conflict
    assert found == (2, 3, "read", "conflict")
