"""What brokers ask their clients: 40, 220, 221, 307, 309 (spec: wire §12)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet._native import decode_records
from roquet.base.errors import Refused
from roquet.protocol import records
from roquet.protocol.bodies import offsets
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to
from roquet.protocol.compression import CompressionError
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.admin import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerRunningInfoRequest,
)
from roquet.protocol.headers.client import (
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    ResetOffsetRequest,
)
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.client._members import Consumer, Members
    from roquet.protocol.command import Command

log = logging.getLogger(__name__)

LANE = "answers"


class Answers:
    """Handlers of requests that come from the brokers' side."""

    def __init__(self, members: Members) -> None:
        """Answer for these groups."""
        self._members = members

    def routes(self) -> list[Route]:
        """Return the table."""
        return [
            Route((RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,), self.members_changed, LANE),
            Route((RequestCode.RESET_CONSUMER_CLIENT_OFFSET,), self.reset_offsets, LANE),
            Route((RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,), self.progress, LANE),
            Route((RequestCode.GET_CONSUMER_RUNNING_INFO,), self.running_info, LANE),
            Route((RequestCode.CONSUME_MESSAGE_DIRECTLY,), self.consume_directly, LANE),
        ]

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
        """Say everything else."""
        header = GetConsumerRunningInfoRequest.decode(request.command.ext)
        info = self._consumer(header.consumer_group).running_info()
        return reply_to(request.command, body=info.encode())

    async def consume_directly(self, request: Request) -> Command | None:
        """Give the one message in the body to the application."""
        header = ConsumeMessageDirectlyResultRequest.decode(request.command.ext)
        consumer = self._consumer(header.consumer_group)
        try:
            found = records.messages_of(
                decode_records(request.command.body), header.broker_name or ""
            )
        except (ValueError, CompressionError) as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no readable message: {error}") from error
        if not found:
            raise Refused(ResponseCode.SYSTEM_ERROR, "no message in the body")
        result = await consumer.consume_directly(found[0])
        return reply_to(request.command, body=result.encode())

    def _consumer(self, group: str) -> Consumer:
        consumer = self._members.consumer(group)
        if consumer is None:
            remark = f"The Consumer Group <{group}> not exist in this consumer"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return consumer
