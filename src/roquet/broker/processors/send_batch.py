"""The messages of a batch, and what none of them may ask for."""

from __future__ import annotations

from roquet.base.errors import Refused
from roquet.protocol import batch as batches
from roquet.protocol import properties as props
from roquet.protocol.codes import ResponseCode

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

    Raises Refused (13) for the whole batch.
    """
    try:
        elements = batches.decode(body)
    except batches.BatchError as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the batch is illegal: {error}") from error
    for _, _, properties in elements:
        found = props.read(properties)
        for name in _NOT_IN_A_BATCH:
            if found.get(name, "0") not in {"0", "false"}:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL, f"no message of a batch may have property {name}"
                )
    if not elements:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    return elements
