"""A topic with very many queues: its statistics are longer than the slow JSON reader takes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from console_harness import a_console
from roquet.client import connect
from roquet.model.queue import MessageQueue
from roquet.protocol import fastjson
from roquet.protocol.bodies.stats import ConsumeOffset, ConsumeStats, TopicOffset, TopicStats
from roquet.protocol.fastjson_reader import JsonError

if TYPE_CHECKING:
    from pathlib import Path

MANY = 12_000


@pytest.mark.parametrize("topic", ["plain", 'a"{b},{"c":1}:\\é'])
def test_statistics_of_very_many_queues_are_read_as_those_of_few(topic: str) -> None:
    queues = [MessageQueue(topic, "broker-a", number) for number in range(MANY)]
    stats = TopicStats(
        offsets={
            it: TopicOffset(min_offset=it.queue_id, max_offset=2**40, last_update=7)
            for it in queues
        },
        put_tps=1.5,
    )
    progress = ConsumeStats(
        offsets={it: ConsumeOffset(broker_offset=9, consumer_offset=it.queue_id) for it in queues}
    )
    assert len(stats.encode()) > fastjson.TOLERANT_SIZE_MAX
    assert TopicStats.decode(stats.encode()) == stats
    assert ConsumeStats.decode(progress.encode()) == progress


@pytest.mark.parametrize(
    "body",
    [
        b'{"offsetTable":{{"topic":"t"',
        b'{"offsetTable":{{"topic":"t"}:{}:{}}}',
        b'{"offsetTable":{"{no object":{}}}',
        b'{"offsetTable":{{"topic":"\xff"}:{}}}',
        b"[]",
    ],
)
def test_long_statistics_that_are_broken_are_refused(body: bytes) -> None:
    for padding in (b"", b" " * fastjson.TOLERANT_SIZE_MAX):
        with pytest.raises(JsonError):
            TopicStats.decode(body + padding)


def test_page_of_a_topic_with_very_many_queues_is_shown(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            a_console(tmp_path) as world,
            connect(f"rmq://{world.cluster.name_servers}") as mq,
        ):
            keeper = world.administrator
            await mq.admin().topics.create("wide", MANY)
            found = await keeper.get("/api/topic", name="wide")
            assert found.status == 200, found.text
            assert found.json["queues_count"] == MANY
            page = await keeper.get("/topic", name="wide")
            assert page.status == 200
            (row,) = (await keeper.get("/api/topics")).json["rows"]
            assert (row["name"], row["queues"], row["error"]) == ("wide", MANY, "")

    asyncio.run(story())
