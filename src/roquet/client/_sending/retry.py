"""When a send is tried again. Pure."""

from __future__ import annotations

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode

RETRYABLE_CODES = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers that say the message was not stored and another broker may take it (client.md)."""


_ABOUT_BROKER = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)


def tells_of_broker(error: Exception) -> bool:
    """Tell whether a failure says something about the broker, and not about topic or message."""
    return not isinstance(error, Refused) or error.code in _ABOUT_BROKER


def is_busy(error: Exception) -> bool:
    """Tell whether a broker refuses for now: it has too much to do, or changes its role."""
    return isinstance(error, Refused) and error.code == ResponseCode.SYSTEM_BUSY


def may_retry(error: Exception, *, retry_unknown: bool) -> bool:
    """Tell whether the same message may be sent elsewhere after this failure.

    What never left may always be; what was refused only for some codes; what left without an
    answer may be stored already, so the caller must have asked for it.
    """
    if isinstance(error, Unreachable):
        return True
    if isinstance(error, OutcomeUnknown):
        return retry_unknown
    return isinstance(error, Refused) and error.code in RETRYABLE_CODES
