"""From outcomes to response codes and remarks: the one table of the remoting front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.broker.api.receive import ReceiveResult, ReceiveStatus
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.replies import ReplyResult
from roquet.broker.api.send import SendResult, SendStatus
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import reply_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.command import Command

CODES: Mapping[Reason, ResponseCode] = {
    Reason.FAILED: ResponseCode.SYSTEM_ERROR,
    Reason.LIGHT_QUEUES_FULL: ResponseCode.LMQ_QUOTA_EXCEEDED,
    Reason.LIGHT_SUBSCRIPTIONS_FULL: ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    Reason.BUSY: ResponseCode.SYSTEM_BUSY,
    Reason.UNSUPPORTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    Reason.NOT_MASTER: ResponseCode.SLAVE_NOT_AVAILABLE,
    Reason.ILLEGAL_MESSAGE: ResponseCode.MESSAGE_ILLEGAL,
    Reason.STORE_UNAVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    Reason.FORBIDDEN: ResponseCode.NO_PERMISSION,
    # Java 4.x's answer to everything that an account may not do; see `code_of`.
    Reason.ACCOUNT_REFUSED: ResponseCode.SYSTEM_ERROR,
    Reason.UNKNOWN_TOPIC: ResponseCode.TOPIC_NOT_EXIST,
    Reason.UNKNOWN_GROUP: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Reason.NOT_FOUND: ResponseCode.QUERY_NOT_FOUND,
    Reason.UNPARSABLE_FILTER: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    Reason.NOT_SUBSCRIBED: ResponseCode.SUBSCRIPTION_NOT_EXIST,
    Reason.SUBSCRIPTION_OUTDATED: ResponseCode.SUBSCRIPTION_NOT_LATEST,
    Reason.UNKNOWN_FILTER: ResponseCode.FILTER_DATA_NOT_EXIST,
    Reason.FILTER_OUTDATED: ResponseCode.FILTER_DATA_NOT_LATEST,
    Reason.INVALID_ARGUMENT: ResponseCode.INVALID_PARAMETER,
    Reason.CLIENT_OFFLINE: ResponseCode.CONSUMER_NOT_ONLINE,
    Reason.CLIENT_TIMEOUT: ResponseCode.CONSUME_MSG_TIMEOUT,
    Reason.NO_MESSAGE: ResponseCode.NO_MESSAGE,
    Reason.POLLING_FULL: ResponseCode.POLLING_FULL,
    Reason.POLLING_TIMEOUT: ResponseCode.POLLING_TIMEOUT,
    Reason.RATE_LIMITED: ResponseCode.FLOW_CONTROL,
    Reason.ILLEGAL_OPERATION: ResponseCode.ILLEGAL_OPERATION,
}
"""Every reason has a code."""


STATUSES: Mapping[SendStatus | ReceiveStatus, ResponseCode] = {
    SendStatus.STORED: ResponseCode.SUCCESS,
    SendStatus.FLUSH_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    SendStatus.REPLICA_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SendStatus.NO_REPLICA: ResponseCode.SLAVE_NOT_AVAILABLE,
    ReceiveStatus.FOUND: ResponseCode.SUCCESS,
    ReceiveStatus.NOT_FOUND: ResponseCode.PULL_NOT_FOUND,
    ReceiveStatus.RETRY: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReceiveStatus.OFFSET_MOVED: ResponseCode.PULL_OFFSET_MOVED,
}
"""Sends and reads that were carried out, more or less safely (spec: store §11.2, wire §10.3)."""

_REASONS = {int(code): reason for reason, code in reversed(tuple(CODES.items()))}


class PluginRefusal(Refusal):
    """A refusal whose response code a plugin has chosen."""

    def __init__(self, reason: Reason, text: str, code: int) -> None:
        super().__init__(reason, text)
        self.code = code


class OutcomeCodes:
    """Response codes of outcomes, as plugins and metrics show them."""

    def of(self, result: object, error: Exception | None) -> int:
        """Return the code of a result, or of what went wrong."""
        if isinstance(error, Refusal):
            return code_of(error)
        if error is not None:
            return ResponseCode.SYSTEM_ERROR
        if isinstance(result, ReplyResult):
            return ResponseCode.SUCCESS if result.fault is None else CODES[Reason.FAILED]
        if isinstance(result, SendResult | ReceiveResult):
            return STATUSES[result.status]
        return ResponseCode.SUCCESS

    def refusal(self, refused: Refused) -> Refusal:
        """Return what a plugin means that refuses by code; this front answers that very code."""
        reason = _REASONS.get(refused.code, Reason.FAILED)
        return PluginRefusal(reason, refused.remark, refused.code)


def code_of(refusal: Refusal) -> int:
    """Return the response code of a refusal; of the account's, the one that its guard chose."""
    if isinstance(refusal, PluginRefusal):
        return refusal.code
    by_guard = refusal.__cause__
    if refusal.reason is Reason.ACCOUNT_REFUSED and isinstance(by_guard, Refused):
        return by_guard.code
    return CODES[refusal.reason]


def refused(refusal: Refusal) -> Refused:
    """Return a refusal as this front answers it. The remark is the refusal's text, unchanged."""
    return Refused(code_of(refusal), refusal.text)


def translated(error: Exception) -> Exception:
    """Return a service's refusal as `refused` does, and any other error as it is."""
    return refused(error) if isinstance(error, Refusal) else error


def refusal_reply(
    command: Command, refusal: Refusal, *, ext: Mapping[str, str] | None = None
) -> Command:
    """Return the answer that says no, with the fields that clients read from it.

    A refusal without a text has no remark at all, as some of Java's.
    """
    return reply_to(command, code_of(refusal), remark=refusal.text or None, ext=ext)
