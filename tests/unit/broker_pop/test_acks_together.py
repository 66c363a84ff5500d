"""Acknowledgements that were read together are stored together; each has an answer of its own.

These are the processors'; `tests/unit/native/test_ingest_pop.py` has those of the fast path.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play
from pop_harness import TOPIC, ack_command, checkpoints, pop
from roquet.remoting.codec import decode, encode
from roquet.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.protocol.command import Command
    from roquet.store.results import Draft
    from roquet.testing.cluster import Cluster


async def answers(it: Cluster, commands: Sequence[Command]) -> list[Command]:
    """Send requests in one write; return their answers in the order of the requests."""
    host, _, port = it.broker.identity.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    numbered = [dataclasses.replace(one, opaque=at) for at, one in enumerate(commands)]
    writer.write(b"".join(map(encode, numbered)))
    found: dict[int, Command] = {}
    try:
        data = b""
        while len(found) < len(numbered):
            data += await asyncio.wait_for(reader.read(65_536), 20)
            some, used = decode(data)
            data = data[used:]
            found |= {answer.opaque: answer for answer in some}
    finally:
        writer.close()
        await writer.wait_closed()
    return [found[at] for at in range(len(numbered))]


@pytest.mark.parametrize("merges", ["false", "true"])
def test_acks_of_one_read_are_stored_with_one_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merges: str
) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(4):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        got = await pop(it)
        appended: list[int] = []
        append = it.broker.store.append

        def counted(drafts: Sequence[Draft]) -> list[PutResult]:
            appended.append(len(drafts))
            return append(drafts)

        monkeypatch.setattr(it.broker.store, "append", counted)
        burst = [ack_command(handle) for handle in got.handles]
        burst[1] = ack_command(got.handles[1], offset="99")
        burst.insert(2, ack_command(got.handles[0], extraInfo="1 2 3"))
        codes = [answer.code for answer in await answers(it, burst)]
        assert codes == [0, 208, 1, 0, 0]
        assert appended == ([] if merges == "true" else [3])
        await dispatched(it)
        stored = [one["ao"] for one in checkpoints(it) if one["tag"] == "ack"]
        assert stored == ([] if merges == "true" else [0, 2, 3])

    play(tmp_path, tell, enablePopBufferMerge=merges, fastPathEnable="false")


def test_ack_of_a_read_that_is_not_stored_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(3):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        got = await pop(it)
        append = it.broker.store.append

        def second_fails(drafts: Sequence[Draft]) -> list[PutResult]:
            results = append(drafts)
            results[1] = PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="a test says so")
            return results

        monkeypatch.setattr(it.broker.store, "append", second_fails)
        burst = [ack_command(handle) for handle in got.handles]
        first, second, third = await answers(it, burst)
        assert (first.code, second.code, third.code) == (0, 1, 0)
        assert second.remark == "put ack msg error: SERVICE_NOT_AVAILABLE a test says so"

    play(tmp_path, tell, fastPathEnable="false")


def test_failure_of_the_store_is_the_answer_to_all_acks_of_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(2):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        got = await pop(it)

        def fails(_: Sequence[Draft]) -> list[PutResult]:
            raise RuntimeError("a test says so")

        with monkeypatch.context() as patch:
            patch.setattr(it.broker.store, "append", fails)
            burst = [ack_command(handle) for handle in got.handles]
            assert [answer.code for answer in await answers(it, burst)] == [1, 1]
        burst = [ack_command(handle) for handle in got.handles]
        assert [answer.code for answer in await answers(it, burst)] == [0, 0]

    play(tmp_path, tell, fastPathEnable="false")
