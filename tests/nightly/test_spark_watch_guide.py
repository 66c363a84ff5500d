"""The examples of the guide to watching consumers run as they stand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roquet.client import Message, connect
from roquet.protocol import names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
GUIDE = Path(__file__).parents[2] / "docs/guide/watching-consumers.md"
TRACE = (
    "Pub\x011000\x01R\x01p\x01orders\x01ID-3\x01a\x01order-3\x01h:1\x015\x017\x010\x01O\x01true\x02"
    "SubBefore\x011100\x01R\x01billing\x01REQ\x01ID-3\x010\x01order-3\x02"
    "SubAfter\x01REQ\x01ID-3\x0120\x01true\x01order-3\x010\x011120\x01billing\x02"
)


async def _one_is_dead(name_servers: str) -> None:
    """Consume two messages; the second becomes a dead letter."""
    async with (
        connect(name_servers) as mq,
        mq.consumer("billing", "watched", start="earliest") as consumer,
    ):
        for _ in range(2):
            received = await consumer.receive(120)
            assert received is not None
            if received.keys == ("bad",):
                received.dead_letter()
            else:
                received.ack()


@pytest.fixture
def traced(running: Running, tmp_path: Path) -> Iterator[Running]:
    """A cluster with a trace topic."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    # The harness is a plugin: a module that imports it as well cannot be collected alone.
    found = type(running)(folder, traceTopicEnable="true")
    found.start()
    yield found
    found.stop()


def test_the_examples_of_the_guide_run(
    spark: SparkSession, traced: Running, tmp_path: Path
) -> None:
    running = traced
    running.create_topic("watched", 1)
    running.send("watched", [Message("watched", b"x", None, (key,)) for key in ("ok", "bad")], 0)
    asyncio.run(_one_is_dead(running.name_servers))
    running.send(names.TRACE_TOPIC, [Message(names.TRACE_TOPIC, TRACE.encode())], 0)
    text = GUIDE.read_text().replace("127.0.0.1:9876", running.name_servers)
    text = text.replace("/data/", f"{tmp_path}/")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    found: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), found)
    groups = spark.read.parquet(f"{tmp_path}/lag/groups").where("topic = 'watched'").collect()
    assert [(row.group, row.messagesLeft) for row in groups] == [("billing", 0)]
    dead = found["dead"].where("group = 'billing'").collect()
    assert [(row.keys, row.original) for row in dead] == [("bad", "found")]
    given = {"nameServers": running.name_servers, "subscribe": "watched"}
    rows = spark.read.format("roquet").options(**given).load().collect()
    assert sorted(row.keys for row in rows) == ["bad", "bad", "ok"]
    assert "ID-3 of topic orders: 120 ms in all" in found["report"].lines
