"""What a producer is told of a message that was not stored (spec: store §11.2)."""

from __future__ import annotations

from typing import NoReturn

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendStatus
from roquet.store.results import PutStatus

STATUSES = {
    PutStatus.PUT_OK: SendStatus.STORED,
    PutStatus.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: SendStatus.REPLICA_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: SendStatus.NO_REPLICA,
}
"""Outcomes of an append after which the message is stored."""

_REASONS = {
    PutStatus.SERVICE_NOT_AVAILABLE: Reason.STORE_UNAVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: Reason.ILLEGAL_MESSAGE,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: Reason.ILLEGAL_MESSAGE,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: Reason.ILLEGAL_MESSAGE,
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: Reason.LIGHT_QUEUES_FULL,
    PutStatus.OS_PAGE_CACHE_BUSY: Reason.BUSY,
}
"""Every other outcome is FAILED."""

_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {size}B, msg properties length limit 32KB."
)
_TEXTS = {
    PutStatus.MESSAGE_ILLEGAL: _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: _ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: (
        "service not available now. It may be caused by one of the following reasons: the broker's"
        " disk is full, messages are put to the slave, message store has been shut down, etc."
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."
    ),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "accurate timer message is not enabled on this broker",
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: "timer message illegal",
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: "timer message is under flow control",
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
}


def refuse(status: PutStatus, why: str, body_max: int) -> NoReturn:
    """Raise the refusal of a message that was not stored; `body_max` is bytes."""
    text = _TEXTS.get(status, f"UNKNOWN_ERROR {status.name}")
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        text = text.format(size=body_max)
    raise Refusal(_REASONS.get(status, Reason.FAILED), f"{text} ({why})" if why else text)
