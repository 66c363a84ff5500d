"""The messages of a batch, and what none of them may ask for."""

from __future__ import annotations

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol import batch as batches
from roquet.protocol import properties as props

_NOT_IN_A_BATCH = (
    props.DELAY,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELAY_MS,
    props.TIMER_DELIVER_MS,
    props.TRANSACTION_PREPARED,
    props.INNER_NUM,
)


def batch_elements(body: bytes) -> list[batches.Element]:
    """Take a batch apart; nothing of one that cannot be stored whole is stored (B8).

    Raises Refusal(ILLEGAL_MESSAGE) for the whole batch.
    """
    try:
        elements = batches.decode(body)
    except batches.BatchError as error:
        raise Refusal(Reason.ILLEGAL_MESSAGE, f"the batch is illegal: {error}") from error
    for _, _, properties in elements:
        found = props.read(properties)
        for name in _NOT_IN_A_BATCH:
            if found.get(name, "0") not in {"0", "false"}:
                raise Refusal(
                    Reason.ILLEGAL_MESSAGE, f"no message of a batch may have property {name}"
                )
    if not elements:
        raise Refusal(Reason.ILLEGAL_MESSAGE, "the batch is empty")
    return elements
