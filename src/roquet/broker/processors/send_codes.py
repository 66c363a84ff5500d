"""What a producer is told for each outcome of an append (spec: store §11.2)."""

from __future__ import annotations

from typing import NoReturn

from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.store.results import PutStatus

CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
"""Statuses that are not system errors (spec: store §11.2)."""

_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {size}B, msg properties length limit 32KB."
)
_REMARKS = {
    PutStatus.MESSAGE_ILLEGAL: _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: _ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: (
        "service not available now. It may be caused by one of the following reasons: the broker's"
        " disk is full, messages are put to the slave, message store has been shut down, etc."
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "accurate timer message is not enabled on this broker",
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: "timer message illegal",
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: "timer message is under flow control",
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
}


def refuse(status: PutStatus, why: str, body_max: int) -> NoReturn:
    """Raise the refusal of a message that was not stored; `body_max` is bytes."""
    code = CODES.get(status, ResponseCode.SYSTEM_ERROR)
    remark = _REMARKS.get(status, f"UNKNOWN_ERROR {status.name}")
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        remark = remark.format(size=body_max)
    raise Refused(code, f"{remark} ({why})" if why else remark)
