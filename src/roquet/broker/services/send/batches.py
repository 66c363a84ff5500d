"""The messages of a batch, and what none of them may ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol import properties as props
from roquet.protocol.messages import batch as batches
from roquet.protocol.messages.message_id import offset_id
from roquet.service.slices import in_slices, in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.protocol.bodies.fields import Steps

IDS_AT_ONCE = 5_000
CHECKED_AT_ONCE = 1_000
"""Messages whose properties are read before others have their turn."""
_NOT_IN_A_BATCH = (
    props.DELAY,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELAY_MS,
    props.TIMER_DELIVER_MS,
    props.TRANSACTION_PREPARED,
    props.INNER_NUM,
    props.INNER_MULTI_DISPATCH,
    props.LITE_TOPIC,
    props.SEQUENCE,
)


async def batch_elements(body: bytes, most: int) -> list[batches.Element]:
    """Take a batch apart; nothing of one that cannot be stored whole is stored (B8).

    Thousands of messages are taken apart in turns. Raises Refusal(ILLEGAL_MESSAGE) for the whole
    batch.
    """
    return await in_turns(_elements(body, most))


async def offset_ids(store_host: bytes, offsets: Sequence[int]) -> list[str]:
    """Return the ids of a batch's messages."""
    return [offset_id(store_host, at) async for at in in_slices(offsets, IDS_AT_ONCE)]


def _elements(body: bytes, most: int) -> Steps[list[batches.Element]]:
    try:
        elements = yield from batches.decoding(body, most)
    except batches.BatchError as error:
        raise Refusal(Reason.ILLEGAL_MESSAGE, f"the batch is illegal: {error}") from error
    for number, (_, _, properties) in enumerate(elements):
        if number % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1:
            yield
        found = props.read(properties)
        for name in _NOT_IN_A_BATCH:
            if found.get(name, "0") not in {"0", "false"}:
                raise Refusal(
                    Reason.ILLEGAL_MESSAGE, f"no message of a batch may have property {name}"
                )
    if not elements:
        raise Refusal(Reason.ILLEGAL_MESSAGE, "the batch is empty")
    return elements
