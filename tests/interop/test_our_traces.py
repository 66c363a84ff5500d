"""What our client traces, shown by RocketMQ's own tool; what Java traces, shown by ours."""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import until
from roquet.cli.app import run
from roquet.client import TransactionState

if TYPE_CHECKING:
    from interop_world import Side, World
    from roquet.model.message import StoredMessage

SIDES = ["java", "ours"]


async def _unknown(_: StoredMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def _live(side: Side, topic: str, traces: str) -> tuple[str, list[str], str]:
    """Send, consume and decide while tracing; return the ids of the messages."""
    async with (
        asyncio.timeout(90),
        roquet.connect(f"rmq://{side.namesrv}", trace=traces) as mq,
        mq.producer("traced_shop") as producer,
        mq.consumer(f"traced_{side.name}", topic, start="earliest") as consumer,
    ):
        sent = await producer.send(topic, b"one", tag="paid", keys="trace-key")
        futures = [await producer.submit(topic, b"%d" % number) for number in range(3)]
        many = [(await future).message_id for future in futures]
        for _ in range(4):
            received = await consumer.receive(60)
            assert received is not None
            received.ack()
        async with mq.transaction_producer("traced_till", _unknown) as till:
            decided = await till.begin(topic, b"maybe")
            await decided.rollback()
    return sent.message_id, many, decided.receipt.message_id


def ours(side: Side, message_id: str, traces: str) -> str:
    """Return what our own tool prints of a message's trace."""
    out = io.StringIO()
    words = ("queryMsgTraceById", "-n", side.namesrv, "-i", message_id, "-t", traces)
    with contextlib.redirect_stdout(out):
        assert run(["mqadmin", *words]) == 0
    return out.getvalue()


@pytest.mark.parametrize("name", SIDES)
def test_javas_tool_shows_what_we_trace(world: World, name: str) -> None:
    side = world.java if name == "java" else world.ours
    topic = world.topic(f"WeTrace-{name}", side)
    traces = world.topic(f"OurTraces-{name}", side)
    first, many, half = asyncio.run(_live(side, topic, traces))

    def shown(message_id: str) -> str:
        words = ("queryMsgTraceById", "-n", side.namesrv, "-i", message_id, "-t", traces)
        return world.driver.mqadmin(*words)

    # An index shows a message once it is dispatched.
    until("the traces", lambda: "SubAfter" in shown(first) or "Sub" in shown(first))
    text = shown(first)
    lines = [line.split() for line in text.splitlines()]
    assert [line.split() for line in ours(side, first, traces).splitlines()] == lines
    (pub,) = [line for line in lines if line[:1] == ["Pub"]]
    assert "traced_shop" in pub
    assert pub[-1] == "success"
    (sub,) = [line for line in lines if line[:1] == ["Sub"]]
    assert f"traced_{side.name}" in sub
    for message_id in many:
        text = shown(message_id)
        assert "traced_shop" in text
        assert f"traced_{side.name}" in text
    assert "traced_till" in shown(half)
