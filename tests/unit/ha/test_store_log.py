"""The log that pairs copy, over a store with files."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from remoting_harness import on_loop
from roquet.ha.log import StoreLog
from roquet.store.results import Draft, StoreFault
from roquet.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from roquet.store.store import Durability

FILE = 64 * 1024
SELDOM = 60_000


def durability(*, sync: bool) -> Durability:
    return cast("Durability", SimpleNamespace(sync_flush=sync, sync_flush_timeout_ms=60_000))


@contextlib.asynccontextmanager
async def logged(folder: Path, *, sync: bool) -> AsyncIterator[tuple[MessageStore, StoreLog]]:
    """Yield a store that flushes when it is told to, with one message, and its log."""
    settings: dict[str, str | int | bool] = {
        "storePathRootDir": str(folder),
        "mappedFileSizeCommitLog": FILE,
        "mappedFileSizeConsumeQueue": 2000,
        "maxHashSlotNum": 500,
        "maxIndexNum": 2000,
        "flushIntervalCommitLog": SELDOM,
        "flushCommitLogThoroughInterval": SELDOM,
    }
    store = MessageStore(settings, durability(sync=False))
    await store.start()
    try:
        await store.put(
            Draft(
                topic="t",
                queue_id=0,
                body=b"message",
                properties={},
                born_timestamp=1,
                born_host=bytes(8),
                store_host=bytes(8),
            )
        )
        yield store, StoreLog(store, durability(sync=sync))
    finally:
        await store.stop()


@on_loop
async def test_log_settles_by_making_all_of_it_durable(tmp_path: Path) -> None:
    async with logged(tmp_path, sync=True) as (store, log):
        assert (log.begin, log.limit, log.written) == (0, store.end_offset(), store.end_offset())
        assert log.vouched < log.written
        await log.settle()
        assert log.vouched == log.written


@on_loop
async def test_without_sync_flush_what_is_written_is_vouched_for(tmp_path: Path) -> None:
    async with logged(tmp_path, sync=False) as (_, log):
        assert log.vouched == log.written > 0


@on_loop
async def test_read_gives_what_is_there_and_a_fault_once_the_store_is_closed(
    tmp_path: Path,
) -> None:
    async with logged(tmp_path, sync=False) as (store, log):
        whole = log.read(0, FILE)
        assert (len(whole), b"message" in whole) == (log.written, True)
        assert (log.read(4, 4), log.read(10 * FILE, 8)) == (whole[4:8], b"")
        native = store.native
        native.close()
        with pytest.raises(StoreFault, match="closed") as fault:
            log.read(0, 8)
        assert fault.value.kind == "closed"
