"""The Java admin tool asks our consumer, over our broker and over Java's."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import messages, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from interop_world import Sent, Side, World
    from roquet.client import Consumer


class Seen:
    """What our consumer was given, by message id."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}

    def note(self, message_id: str) -> None:
        self.times[message_id] = self.times.get(message_id, 0) + 1


async def while_consuming(
    side: Side, topic: str, group: str, seen: Seen, ask: Callable[[str], None]
) -> None:
    """Consume while `ask(client id)` runs beside."""
    stop = asyncio.Event()

    async def read(consumer: Consumer) -> None:
        while not stop.is_set():
            delivery = await consumer.receive(timeout_s=0.2)
            if delivery is not None:
                seen.note(delivery.message_id)
                delivery.ack()

    async with (
        roquet.connect(f"rmq://{side.namesrv}") as mq,
        mq.consumer(group, {topic: "*"}, start="earliest") as consumer,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(read(consumer))
        try:
            await asyncio.to_thread(ask, mq.client_id)
        finally:
            stop.set()


@pytest.mark.parametrize("make", ["ours", "java"])
def test_the_tool_asks_our_consumer(world: World, make: str) -> None:
    side = world.ours if make == "ours" else world.java
    topic = world.topic(f"Asked-{make}", side)
    group = f"asked_{make}"
    sent = world.driver.send(side.namesrv, topic, messages(8, seed=71))
    seen = Seen()

    def tool(command: str, *arguments: str) -> str:
        return world.driver.mqadmin(command, "-n", side.namesrv, *arguments)

    def ask(client: str) -> None:
        until("all eight", lambda: len(seen.times) == 8)
        members = tool("consumerConnection", "-g", group)
        assert client in members
        assert re.search(rf"{re.escape(topic)}\s+\*", members)
        status = tool("consumerStatus", "-g", group, "-i", client)
        assert re.search(r"PROP_CONSUMEORDERLY\s*: false", status)
        assert re.search(rf"Topic: {re.escape(topic)}\s", status)
        assert (
            len(re.findall(rf"^{re.escape(topic)} .*ProcessQueueInfo", status, re.MULTILINE)) == 4
        )
        one = sent[3]
        at = ("-t", topic, "-i", one["offset_msg_id"], "-g", group, "-d", client)
        again = tool("queryMsgById", *at)
        assert "consumeResult=CR_SUCCESS" in again
        assert seen.times[one["msg_id"]] == 2
        _offsets_are_set_back(tool, sent, seen, (topic, group))

    asyncio.run(while_consuming(side, topic, group, seen, ask))


def _offsets_are_set_back(
    tool: Callable[..., str], sent: list[Sent], seen: Seen, where: tuple[str, str]
) -> None:
    before = dict(seen.times)
    topic, group = where
    text = tool("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-f", "true")
    assert "Exception" not in text
    ids = {answer["msg_id"] for answer in sent}
    until("each once more", lambda: all(seen.times[one] > before[one] for one in ids), 90)
