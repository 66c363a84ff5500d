"""A power cut takes the tail of the log: groups that had passed it miss nothing sent later."""

from __future__ import annotations

import shutil
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from pop_harness import GROUP, TOPIC, pop
from roquet.base.clock import SystemClock
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import OffsetTable

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

ASYNC = {"flushDiskType": "ASYNC_FLUSH"}
NEW = [b"new%d" % number for number in range(10)]


def cut(folder: Path, at: int) -> None:
    """Leave a store as a power cut does that took the log from `at` on, never flushed."""
    (log,) = [path for path in (folder / "commitlog").iterdir() if path.name.endswith("0" * 20)]
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(at)
        file.truncate(size)
    path = folder / "checkpoint"
    data = bytearray(path.read_bytes())
    magic = struct.unpack_from(">Q", data, 64)[0]
    data[:48] = bytes(48)
    data[64:96] = struct.pack(">4Q", magic, 0, 0, 5)
    data[96:104] = struct.pack(">Q", zlib.crc32(data[64:96]))
    path.write_bytes(data)


def crashed(tmp_path: Path) -> tuple[Path, int]:
    """Return the copy of a running store with 50 messages read by both groups, and where 25 end."""
    ends: list[int] = []

    async def tell(it: Cluster) -> None:
        for number in range(50):
            await it.send(TOPIC, b"old%d" % number)
            if number == 24:
                ends.append(it.broker.store.end_offset())
        await dispatched(it)
        while (await pop(it)).bodies:
            pass
        await it.pull(TOPIC, 0, consumerGroup="g")
        fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": "50"}
        answer = await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields))
        assert answer.code == 0
        offsets = it.broker.metadata.offsets
        offsets.commit("g", "gone", 0, 70)
        assert offsets.committed(GROUP, TOPIC, 0) == 50
        await offsets.persist()
        await it.broker.metadata.persist_configs()
        await it.broker.store.flush()
        shutil.copytree(tmp_path / "broker-a", tmp_path / "copy" / "broker-a")

    play(tmp_path, tell, **ASYNC)
    return tmp_path / "copy", ends[0]


@pytest.mark.parametrize("fast", ["true", "false"])
def test_groups_behind_a_lost_tail_get_what_is_sent_later(
    tmp_path: Path, fast: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder, end = crashed(tmp_path)
    cut(folder / "broker-a", end)

    async def tell(it: Cluster) -> None:
        offsets = it.broker.metadata.offsets
        assert it.broker.store.max_offset(TOPIC, 0) == 25
        assert (offsets.committed("g", TOPIC, 0), offsets.committed(GROUP, TOPIC, 0)) == (25, 25)
        assert offsets.committed("g", "gone", 0) == 70
        kept = OffsetTable(
            JsonFile(folder / "broker-a" / "config" / "consumerOffset.json"), SystemClock()
        )
        kept.load()
        assert (kept.committed("g", TOPIC, 0), kept.committed(GROUP, TOPIC, 0)) == (25, 25)
        for body in NEW:
            assert (await it.send(TOPIC, body)).code == 0
        await dispatched(it)
        fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}
        known = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=fields))
        pulled = await it.pull(TOPIC, int(ext(known)["offset"]), consumerGroup="g")
        assert [record.body for record in records(pulled)] == NEW
        assert (await pop(it)).bodies == NEW

    play(folder, tell, fastPathEnable=fast, **ASYNC)
    lines = [line for line in caplog.messages if "the log lost its tail" in line]
    assert len(lines) == 1
    assert f"g in {TOPIC} queue 0 from 50 to 25" in lines[0]
    assert f"{GROUP} in {TOPIC} queue 0 from 50 to 25" in lines[0]


def test_a_start_after_a_kill_that_lost_nothing_moves_no_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = crashed(tmp_path)

    async def tell(it: Cluster) -> None:
        assert it.broker.store.may_lack_end
        assert it.broker.metadata.offsets.committed("g", TOPIC, 0) == 50

    play(folder, tell, **ASYNC)
    assert not [line for line in caplog.messages if "the log lost its tail" in line]

    async def again(it: Cluster) -> None:
        assert not it.broker.store.may_lack_end

    play(folder, again, **ASYNC)
