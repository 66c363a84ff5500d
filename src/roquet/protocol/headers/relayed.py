"""What a request becomes on the connection of somebody else.

The invariant: nothing that one account signed reaches another. A signature covers the values of
the fields and the body but not the code, so whoever sees the signature of another account can use
it for a request of his own. A relayed request is therefore built from its typed header alone: the
access key, the signature, the token and any field without a rule here stay behind.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.headers.admin import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
)
from roquet.protocol.headers.client import (
    CheckTransactionStateRequest,
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    ResetOffsetRequest,
)
from roquet.protocol.headers.message import ReplyMessageRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.command import Command
    from roquet.protocol.header import Header

HEADERS: Mapping[int, type[Header]] = {
    RequestCode.CHECK_TRANSACTION_STATE: CheckTransactionStateRequest,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: NotifyConsumerIdsChangedRequest,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetRequest,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: GetConsumerStatusRequest,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: ReplyMessageRequest,
    RequestCode.GET_CONSUMER_RUNNING_INFO: GetConsumerRunningInfoRequest,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectlyResultRequest,
}
"""What brokers ask clients, and the fields that such a request has."""


def relayed(command: Command, /, **changes: str) -> Command:
    """Return a broker's request to a client for another connection, with `changes` of its fields.

    Raises HeaderError for a field that is missing or has a wrong value, KeyError for a code that
    nobody relays.
    """
    ext = HEADERS[command.code].decode(command.ext).encode() | changes
    return dataclasses.replace(command, ext=ext, remark=None)


def relayed_answer(answer: Command) -> Command:
    """Return a client's answer for another connection: answers to these requests have no fields."""
    return dataclasses.replace(answer, ext=None)
