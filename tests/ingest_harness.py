"""A native ingest over a real store, frames for it, and what it answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from roquet.roquet_native import Ingest, Store, decode_frames, encode_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    Frame = tuple[int, int, int, str, int, int, str | None, dict[str, str] | None, bytes]

HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
SEND_EXT = [("MSG_REGION", "R"), ("TRACE_ON", "true")]
HEARTBEAT = encode_command(0, 34, 0, "JAVA", 513, 900, None, {}, b"{}")


def send(
    opaque: int, *, topic: str = "T", more: str = "", flag: int = 0, body: bytes = b"body"
) -> bytes:
    ext = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": f"UNIQ_KEY\x01U{opaque}\x02{more}",
    }
    return encode_command(0, 310, flag, "JAVA", 513, opaque, None, ext, body)


@contextlib.contextmanager
def ingest(
    folder: Path,
    *,
    sync: bool = False,
    parked_max: int = 10,
    flushes: bool = True,
    slave: str = "",
    here: bool = False,
) -> Iterator[Ingest]:
    with ingest_and_store(
        folder, sync=sync, parked_max=parked_max, flushes=flushes, slave=slave, here=here
    ) as (it, _):
        yield it


@contextlib.contextmanager
def ingest_and_store(
    folder: Path,
    *,
    sync: bool = False,
    parked_max: int = 10,
    flushes: bool = False,
    slave: str = "",
    here: bool = False,
    special: Sequence[str] = (),
) -> Iterator[tuple[Ingest, Store]]:
    kind = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
    store = Store.open(
        {
            "storePathRootDir": str(folder),
            "mappedFileSizeCommitLog": 1 << 20,
            "flushDiskType": kind,
            "flushIntervalCommitLog": 60_000,
        }
    )
    store.start()
    # The first file is there then: an append never waits for it below.
    store.put("Warm", 0, b"", b"")
    made = Ingest(store)
    made.set_state(
        sends=True,
        pulls=True,
        sync_flush=flushes,
        sync_here=here,
        flush_timeout_ms=100,
        waits_for_slave=slave == "wait",
        lacks_slave=slave == "lack",
        slave_timeout_ms=60,
        body_max=4096,
        batch_max=1000,
        store_host=HOST,
        stamps=[*SEND_EXT, ("CLUSTER", "C")],
        special=special,
        send_ext=SEND_EXT,
        encoding=0,
        version=513,
        parked_max=parked_max,
        busy_remark="too busy",
        lite_pulls=True,
        holds_max=3,
        hold_ms=None,
        hold_ms_max=60_000,
        delays=("Later", 18),
        halves="Half",
        barrier=[310, 10],
    )
    made.set_topic("T", 4, 4, 0, 0)
    made.open(1, HOST)
    try:
        yield made, store
    finally:
        store.close()


def feed(
    it: Ingest, key: int, data: bytes | memoryview, now_ms: int
) -> tuple[bytes, list[Frame], str | None]:
    """Feed; bytes alone mean that nothing else came of it."""
    came = it.feed(key, data, now_ms)
    return (came, [], None) if isinstance(came, bytes) else came[:3]


def answers(data: bytes) -> dict[int, tuple[int, str | None]]:
    frames, used = decode_frames(data)
    assert used == len(data)
    return {frame[5]: (frame[1], frame[6]) for frame in frames}


def codes(released: list[tuple[int, bytes]]) -> dict[int, int]:
    return {opaque: code for _, data in released for opaque, (code, _) in answers(data).items()}
