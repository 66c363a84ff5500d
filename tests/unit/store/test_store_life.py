"""The facade of the store from start to stop, and settings that change meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import on_loop
from roquet._native import StoreError
from roquet.store import store as module
from roquet.store.results import Draft, PutStatus, StoreFault
from roquet.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.store.results import PutResult

OK, UNKNOWN = PutStatus.PUT_OK, PutStatus.UNKNOWN_ERROR
SYNC = SimpleNamespace(sync_flush=True, sync_flush_timeout_ms=60_000)
ASYNC = SimpleNamespace(sync_flush=False, sync_flush_timeout_ms=60_000)


class Native:
    """A core that appends 10 bytes a message and makes them durable when it is closed."""

    def __init__(self) -> None:
        self.made: list[tuple[str, object]] = []
        self.end = 0
        self.durable = 0
        self.lost = 0
        self.notes: list[str] = []
        self.was_stopped = True
        self.failure: str | None = None
        self.news, self._tell = os.pipe()
        self.fault: StoreError | None = None

    def release(self) -> None:
        os.close(self.news)
        os.close(self._tell)

    def open(self, config: object) -> Native:
        self.made.append(("open", config))
        return self

    def start(self) -> None:
        self.made.append(("start", None))

    def recovery_notes(self) -> tuple[list[str], bool]:
        return self.notes, self.was_stopped

    def max_physical_offset(self) -> int:
        return self.end

    def stats(self) -> dict[str, int]:
        return {"recovered_lost_bytes": self.lost}

    def flushed_offset(self) -> int:
        return self.durable

    def set_flush_awaited(self, is_so: bool) -> None:
        self.made.append(("awaited", is_so))

    def set_growth_awaited(self, is_so: bool) -> None:
        self.made.append(("growth", is_so))

    def event_fd(self) -> int:
        return self.news

    def tell(self) -> None:
        os.write(self._tell, b"x")

    def take_events(self) -> tuple[int, list[tuple[str, int, int]], str | None]:
        os.read(self.news, 1)
        self.made.append(("events", None))
        return self.durable, [], self.failure

    def tune(self, config: object) -> None:
        self.made.append(("tune", config))

    def close(self) -> None:
        self.made.append(("close", None))
        self.durable = self.end - 10

    def put_many(self, fields: Sequence[Any]) -> tuple[list[tuple[int, int, int, int]], int]:
        if self.fault is not None:
            raise self.fault
        placed = [(0, self.end + 10 * at, 10, at) for at in range(len(fields))]
        self.end += 10 * len(fields)
        return placed, 99


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[Native]:
    made = Native()
    monkeypatch.setattr(module, "NativeStore", made)
    yield made
    made.release()


def draft() -> Draft:
    return Draft(
        topic="t",
        queue_id=0,
        body=b"m",
        properties={},
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )


def store(durability: Any = SYNC) -> MessageStore:
    return MessageStore({"storePathRootDir": "/"}, durability)


@pytest.mark.parametrize("lost", [0, 1])
@on_loop
async def test_start_says_what_was_mended_and_lost_and_goes_on_behind_what_is_durable(
    native: Native, caplog: pytest.LogCaptureFixture, lost: int
) -> None:
    native.notes, native.lost, native.durable = ["mended a"], lost, 40
    it = store()
    it.on_flush(lambda *_: None)
    await it.start()
    try:
        assert native.made == [
            ("open", {"storePathRootDir": "/"}),
            ("start", None),
            ("awaited", True),
        ]
        said = ["the log has lost 1 bytes at its end that were durable"] * lost
        assert caplog.messages == ["recovery: mended a", *said]
        assert (it.is_settled(40), it.is_settled(41)) == (True, False)
    finally:
        await it.stop()


@pytest.mark.parametrize(
    ("what", "may_lack"),
    [
        ({}, False),
        ({"was_stopped": False}, True),
        ({"lost": 1}, True),
        ({"notes": ["mended a"]}, True),
        ({"end": 0}, True),
    ],
)
@on_loop
async def test_store_may_lack_its_end_after_a_kill_a_loss_a_repair_and_without_a_record(
    native: Native, what: dict[str, Any], may_lack: bool
) -> None:
    native.end = 40
    for name, value in what.items():
        setattr(native, name, value)
    it = store()
    await it.start()
    try:
        assert it.may_lack_end is may_lack
    finally:
        await it.stop()


@on_loop
async def test_fast_path_that_alone_hears_of_flushes_is_told_of_none(native: Native) -> None:
    it = store()
    it.on_flush(lambda *_: None, of_fast_path=True)
    await it.start()
    await it.stop()
    assert ("awaited", False) in native.made
    assert ("awaited", True) not in native.made


@on_loop
async def test_stop_ends_the_wait_of_what_it_made_durable_and_of_what_it_did_not(
    native: Native,
) -> None:
    it = store()
    await it.start()
    native.tell()
    await asyncio.sleep(0.01)
    assert ("events", None) in native.made
    native.made.clear()
    first, second = (asyncio.create_task(it.put(draft())) for _ in range(2))
    await asyncio.sleep(0)
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
    await it.stop()
    native.tell()
    results: list[PutResult] = [await task for task in (first, second)]
    assert [result.status for result in results] == [OK, UNKNOWN]
    assert "the store was closed" in results[1].why
    await asyncio.sleep(0.01)
    # Nobody reads news of a store that is closed.
    assert (("events", None) in native.made, faults) == (False, [])
    await it.stop()
    assert native.made.count(("close", None)) == 1


@on_loop
async def test_settings_that_change_count_from_then_on(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = store(ASYNC)
    with pytest.raises(StoreFault):
        it.follow({"storePathRootDir": "/x"}, SYNC)
    await it.start()
    assert (await it.put(draft())).status is OK
    it.follow({"storePathRootDir": "/new", "mappedFileSizeCommitLog": 100}, SYNC)
    tuned = {"storePathRootDir": "/new", "mappedFileSizeCommitLog": 100}
    assert native.made[-1] == ("tune", tuned)
    assert not it.is_settled(10)
    seen: list[str] = []

    def usage(folder: str) -> object:
        seen.append(folder)
        return SimpleNamespace(free=99)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(
        native, "put_many", lambda _: ([(int(PutStatus.CREATE_MAPPED_FILE_FAILED), 0, 0, 0)], 0)
    )
    (result,) = it.append([draft()])
    assert (result.status, seen) == (PutStatus.SERVICE_NOT_AVAILABLE, ["/new"])
    await it.stop()


def test_memory_is_that_of_the_machine() -> None:
    line = next(it for it in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in it)
    total = int(line.split()[1]) * 1024
    assert 0.9 < store()._memory_bytes / total < 1.2


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("disk_full", PutStatus.SERVICE_NOT_AVAILABLE),
        ("closed", PutStatus.SERVICE_NOT_AVAILABLE),
        ("io", PutStatus.SERVICE_NOT_AVAILABLE),
        ("corrupt", UNKNOWN),
    ],
)
@on_loop
async def test_fault_of_an_append_is_a_status(native: Native, kind: str, status: PutStatus) -> None:
    it = store()
    await it.start()
    native.fault = StoreError(kind, "x")
    (result,) = it.append([draft()])
    assert (result.status, result.why) == (status, "x")
    await it.stop()


def test_light_queue_is_known_from_its_first_message_on_dispatched_or_not() -> None:
    it = store()
    asked: list[object] = []

    def says(end: int) -> object:
        def ask(*where: object) -> int:
            asked.append(where)
            return end

        return ask

    for ends, is_known in (((0, 0), False), ((0, 1), True), ((1, 0), True), ((-1, -1), False)):
        core = SimpleNamespace(max_offset=says(ends[0]), next_offset=says(ends[1]))
        it._native = cast("Any", core)
        assert it.knows_light_queue("%LMQ%a") is is_known
    # It has queue 0 alone.
    assert set(asked) == {("%LMQ%a", 0)}


def test_error_of_the_core_is_a_fault_of_the_same_kind() -> None:
    it = store()

    def fails(*_: object) -> int:
        raise StoreError("corrupt", "a test says so")

    it._native = cast("Any", SimpleNamespace(min_offset=fails))
    with pytest.raises(StoreFault, match="a test says so") as caught:
        it.min_offset("t", 0)
    assert caught.value.kind == "corrupt"


@on_loop
async def test_message_with_properties_that_cannot_be_stored_is_illegal(native: Native) -> None:
    it = store()
    await it.start()
    wrong = draft()
    wrong.properties["a\x01b"] = "c"
    (result,) = it.append([wrong])
    assert (result.status, bool(result.why)) == (PutStatus.MESSAGE_ILLEGAL, True)
    assert native.end == 0
    await it.stop()
