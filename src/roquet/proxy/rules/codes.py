"""Codes of 5.x, and which one a refusal of the broker becomes: the one table of this front."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError
from roquet.broker.api.refusal import Reason, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping


class Code(enum.IntEnum):
    """Codes of the status of an answer (spec: proxy, code table)."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    UNSUPPORTED = 50500
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502


class Rejected(RoquetError):  # noqa: N818  (it is an answer, not an accident)
    """A call that is answered with a code and a text other than success."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text


OF_REASON: Mapping[Reason, Code] = {
    Reason.BUSY: Code.TOO_MANY_REQUESTS,
    Reason.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    Reason.UNSUPPORTED: Code.NOT_IMPLEMENTED,
    Reason.UNKNOWN_TOPIC: Code.TOPIC_NOT_FOUND,
    Reason.UNKNOWN_GROUP: Code.CONSUMER_GROUP_NOT_FOUND,
    Reason.ACCOUNT_REFUSED: Code.UNAUTHORIZED,
    Reason.UNPARSABLE_FILTER: Code.ILLEGAL_FILTER_EXPRESSION,
    Reason.LIGHT_QUEUES_FULL: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    Reason.LIGHT_SUBSCRIPTIONS_FULL: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}
"""Every other reason is INTERNAL_SERVER_ERROR, as every other response code is in Java."""


def status_of(error: Exception) -> tuple[Code, str]:
    """Return code and text for what a call has raised."""
    if isinstance(error, Rejected):
        return error.code, error.text
    if isinstance(error, Refusal):
        return OF_REASON.get(error.reason, Code.INTERNAL_SERVER_ERROR), error.text
    return Code.INTERNAL_SERVER_ERROR, "internal server error"
