"""What brokers ask their clients: 39, 40, 220, 221, 307, 309, 326 (spec: wire §12)."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet._native import decode_messages
from roquet.base.errors import Refused
from roquet.client._consuming.stacks import stacks
from roquet.model.message import StoredMessage
from roquet.protocol import properties as props
from roquet.protocol.bodies import offsets
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to
from roquet.protocol.fastjson import JsonError
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
from roquet.protocol.hosts import host_text
from roquet.protocol.messages import records
from roquet.protocol.messages.compression import BODY_SIZE_MAX, CompressionError, body_of
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.client._cluster.members import Consumer, Members
    from roquet.client._replies import Replies
    from roquet.protocol.command import Command

log = logging.getLogger(__name__)

LANE = "answers"


class Answers:
    """Handlers of requests that come from the brokers' side."""

    def __init__(self, members: Members, replies: Replies, clock: Clock) -> None:
        """Answer for these groups."""
        self._members = members
        self._replies = replies
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the table."""
        return [
            Route((RequestCode.CHECK_TRANSACTION_STATE,), self.check_transaction, LANE),
            Route((RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,), self.reply_arrived, LANE),
            Route((RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,), self.members_changed, LANE),
            Route((RequestCode.RESET_CONSUMER_CLIENT_OFFSET,), self.reset_offsets, LANE),
            Route((RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,), self.progress, LANE),
            Route((RequestCode.GET_CONSUMER_RUNNING_INFO,), self.running_info, LANE),
            Route((RequestCode.CONSUME_MESSAGE_DIRECTLY,), self.consume_directly, LANE),
        ]

    async def check_transaction(self, request: Request) -> Command | None:
        """Say how a transaction ended; the answer is a request of its own (37)."""
        header = CheckTransactionStateRequest.decode(request.command.ext)
        message = _message(request.command.body, "")
        checker = self._members.checker(message.properties.get(props.PRODUCER_GROUP, ""))
        if checker is None:
            log.warning("nobody here answers checks of %s", message.unique_key)
        else:
            await checker.asked(request.peer.address, header, message)
        return None

    def reply_arrived(self, request: Request) -> Command | None:
        """Give an answer to whoever waits for it; one that is too late is answered 0 as well."""
        command = request.command
        header = ReplyMessageRequest.decode(command.ext)
        try:
            body = body_of(command.body, header.sys_flag, BODY_SIZE_MAX)
        except CompressionError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        message = StoredMessage(
            topic=header.topic,
            body=body,
            properties={
                **props.read(header.properties),
                props.ARRIVE_TIME: str(self._clock.now_ms()),
            },
            msg_id="",
            queue_id=header.queue_id,
            queue_offset=-1,
            physical_offset=-1,
            store_size=0,
            born_timestamp=header.born_timestamp,
            born_host=header.born_host,
            store_timestamp=header.store_timestamp,
            store_host=header.store_host,
            flag=header.flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times or 0,
        )
        if not self._replies.arrived(message):
            log.warning("nobody waits for the reply %s", message.unique_key)
        return reply_to(command)

    def members_changed(self, request: Request) -> Command | None:
        """Balance again: a member came or went."""
        header = NotifyConsumerIdsChangedRequest.decode(request.command.ext)
        consumer = self._members.consumer(header.consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()
        return reply_to(request.command)

    async def reset_offsets(self, request: Request) -> Command | None:
        """Go on from the offsets in the body."""
        header = ResetOffsetRequest.decode(request.command.ext)
        try:
            table = offsets.decode_queue_offsets(request.command.body)
        except JsonError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        await self._consumer(header.group).reset_offsets(header.topic, table)
        return reply_to(request.command)

    def progress(self, request: Request) -> Command | None:
        """Say how far each queue of a topic is."""
        header = GetConsumerStatusRequest.decode(request.command.ext)
        table = self._consumer(header.group).progress(header.topic)
        return reply_to(request.command, body=offsets.encode_consumer_status(table))

    def running_info(self, request: Request) -> Command | None:
        """Say everything else; where it is asked for, what the threads do."""
        header = GetConsumerRunningInfoRequest.decode(request.command.ext)
        info = self._consumer(header.consumer_group).running_info()
        if header.jstack_enable:
            info = dataclasses.replace(info, stacks=stacks())
        return reply_to(request.command, body=info.encode())

    async def consume_directly(self, request: Request) -> Command | None:
        """Give the one message in the body to the application."""
        header = ConsumeMessageDirectlyResultRequest.decode(request.command.ext)
        consumer = self._consumer(header.consumer_group)
        message = _message(request.command.body, header.broker_name or "")
        result = await consumer.consume_directly(message)
        return reply_to(request.command, body=result.encode())

    def _consumer(self, group: str) -> Consumer:
        consumer = self._members.consumer(group)
        if consumer is None:
            remark = f"The Consumer Group <{group}> not exist in this consumer"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return consumer


def _message(body: bytes, broker_name: str) -> StoredMessage:
    try:
        found = records.messages_of(decode_messages(body, broker_name, host_text))
    except (ValueError, CompressionError) as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no readable message: {error}") from error
    if not found:
        raise Refused(ResponseCode.SYSTEM_ERROR, "no message in the body")
    return found[0]
