"""A message that a tool hands to a consumer, outside of any queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.client._received import Outcome, Received
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.stats import ConsumedDirectly

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.client.codecs.base import Codec
    from roquet.model.message import StoredMessage

NOWHERE = ""
"""Broker name of messages that a tool gave, not a queue."""
_TIMEOUT_S = 9.0
"""Tools wait 10 s."""


async def consume_directly(
    message: StoredMessage,
    give: Callable[[Received], None],
    clock: Clock,
    codec: Codec | None = None,
    *,
    ordered: bool,
) -> ConsumedDirectly:
    """Give one message to the application and return what became of it; no offset moves."""
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def settled(_: Received, outcome: Outcome, delay_level: int) -> None:
        del delay_level
        if not done.done():
            done.set_result(outcome)

    began_ms = clock.now_ms()
    nowhere = MessageQueue(message.topic, NOWHERE, message.queue_id)
    give(Received(message, nowhere, settled, codec))
    remark = None
    result = "CR_SUCCESS"
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            if await done is not Outcome.ACK:
                result = "CR_LATER"
    except TimeoutError:
        result, remark = "CR_RETURN_NULL", "the application has not finished in time"
    spent_ms = clock.now_ms() - began_ms
    return ConsumedDirectly(result=result, spent_ms=spent_ms, remark=remark, order=ordered)
