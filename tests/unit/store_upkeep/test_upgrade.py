"""Stores that an earlier release wrote: all of it is there, and the format stays the same."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.marks.format import NAME
from roquet.store.upkeep.check import Level, check

if TYPE_CHECKING:
    from roquet.testing.cluster import Cluster

VECTOR = Path(__file__).parents[2] / "vectors" / "earlier_store.tar.gz"


def unpacked(folder: Path, state: str) -> tuple[Path, dict[str, Any]]:
    """Return the store in one of its two states, and what its broker had acknowledged."""
    with tarfile.open(VECTOR) as archive:
        archive.extractall(folder, filter="data")
    return folder / state, json.loads((folder / "expected.json").read_bytes())


async def read(it: Cluster, topic: str, queue_id: str) -> list[list[int | str]]:
    """Return (queue offset, body) of every message of a queue."""
    found: list[list[int | str]] = []
    while True:
        answer = await it.pull(topic, len(found), queueId=queue_id)
        if answer.code != 0:
            return found
        found += [[record.queue_offset, record.body.hex()] for record in records(answer)]


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_a_store_of_an_earlier_release_is_opened_and_goes_on(tmp_path: Path, state: str) -> None:
    store, expected = unpacked(tmp_path / "vector", state)
    mark = json.loads((store / NAME).read_bytes())
    settings: dict[str, str] = {**expected["settings"], "storePathRootDir": str(store)}

    async def same(it: Cluster) -> None:
        await dispatched(it)
        for where, messages in expected["messages"].items():
            topic, queue_id = where.split()
            assert await read(it, topic, queue_id) == messages, where
        for where, offset in expected["offsets"].items():
            group, topic, queue_id = where.split()
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            answer = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, fields))
            assert (answer.code, ext(answer)["offset"]) == (0, str(offset)), where
        billing = it.broker.metadata.groups.get("billing")
        assert billing is not None
        assert billing.retry_max_times == 3
        found = await it.call(
            Command(
                RequestCode.QUERY_MESSAGE, {"topic": "bills", "key": "k3", "maxNum": "9"} | AGES
            )
        )
        assert found.code == 0
        assert b"bills 3 " in found.body
        assert it.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 17) == 1

    async def goes_on(it: Cluster) -> None:
        await same(it)
        for where, messages in expected["messages"].items():
            topic, queue_id = where.split()
            answer = await it.send(topic, b"new", queue_id=int(queue_id))
            assert (answer.code, ext(answer)["queueOffset"]) == (0, str(len(messages))), where
            messages.append([len(messages), b"new".hex()])
        for where in expected["offsets"]:
            group, topic, queue_id = where.split()
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            commit = Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"commitOffset": "3"})
            assert (await it.call(commit)).code == 0
            expected["offsets"][where] = 3

    play(tmp_path / "first", goes_on, **settings)
    play(tmp_path / "second", same, **settings)
    assert json.loads((store / NAME).read_bytes()) == mark
    assert mark["format"] == 1
    assert check(store).worst in (Level.FINE, Level.NOTE)


AGES = {"beginTimestamp": "0", "endTimestamp": "9999999999999"}
