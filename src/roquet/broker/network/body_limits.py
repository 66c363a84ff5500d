"""How long the body of each request may be: what no row names may hardly have one.

A body is held in memory and read by somebody; how long that takes must not be for a stranger to
choose. Each row has its reason. What is above the limit is answered 29 before anything is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.auth.requests import BODY_LIMITS as USER_LIMITS
from roquet.base.limits import FRAME_SIZE_MAX, KIB, MIB
from roquet.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

NO_BODY = 4 * KIB
"""Bytes for requests that say everything in their header: some clients send an empty object."""

_MESSAGES = "messages: `maxMessageSize` bounds them, with a text of its own"

BODY_LIMITS: Mapping[RequestCode, tuple[int, str]] = {
    **dict.fromkeys(
        (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_IN_SEQUENCE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
        ),
        (FRAME_SIZE_MAX, _MESSAGES),
    ),
    RequestCode.HEART_BEAT: (MIB, "2,000 groups with a few topics each; read beside the loop"),
    RequestCode.LOCK_BATCH_MQ: (256 * KIB, "more than 1,000 queues of long names"),
    RequestCode.UNLOCK_BATCH_MQ: (256 * KIB, "as 41"),
    RequestCode.QUERY_ASSIGNMENT: (16 * KIB, "a few names"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: (16 * KIB, "a few names"),
    RequestCode.CHECK_CLIENT_CONFIG: (16 * KIB, "one subscription: an expression has 4,096"),
    RequestCode.BATCH_ACK_MESSAGE: (
        4 * MIB,
        "sets of bits, one for each message that lies between",
    ),
    RequestCode.LITE_SUBSCRIPTION_CTL: (
        MIB,
        "12,000 light topics of long names, 65,536 of short ones; read beside the loop",
    ),
    **USER_LIMITS,
    RequestCode.UPDATE_BROKER_CONFIG: (256 * KIB, "settings: the handler takes 64 KiB and says so"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (MIB, "some 4,000 topics; read beside the loop"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (64 * KIB, "one group with subscriptions"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (MIB, "some 1,500 groups"),
}
"""Request code -> bytes at most, and why."""


_BY_NUMBER = {int(code): limit for code, (limit, _) in BODY_LIMITS.items()}


def body_max(code: int) -> int:
    """Return how many bytes the body of a request may have."""
    return _BY_NUMBER.get(code, NO_BODY)
