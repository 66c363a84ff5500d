"""QUERY_CONSUMER_OFFSET 14, UPDATE_CONSUMER_OFFSET 15, and the offsets of queues: 29 to 32."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.offsets import (
    CommitRequest,
    CommitResult,
    CommittedRequest,
    OffsetByTimeRequest,
    QueueRequest,
)
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.refusals import refusal_reply
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from roquet.protocol.light import light_topics
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.offsets import Offsets


class OffsetAdapter:
    """Answers questions about offsets and takes commits."""

    def __init__(self, offsets: Offsets, callers: Callers) -> None:
        self._offsets = offsets
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.QUERY_CONSUMER_OFFSET,), self.committed, "consumer_manage"),
            Route((RequestCode.UPDATE_CONSUMER_OFFSET,), self.commit, "consumer_manage"),
            Route((RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,), self.by_time, "admin"),
            Route((RequestCode.GET_MAX_OFFSET,), self.max_offset, "admin"),
            Route((RequestCode.GET_MIN_OFFSET,), self.min_offset, "admin"),
            Route((RequestCode.GET_EARLIEST_MSG_STORETIME,), self.earliest, "admin"),
        ]

    def committed(self, request: Request) -> Command:
        """Answer 14: where a group continues in a queue, or that it has never been there."""
        header = QueryConsumerOffsetRequest.decode(request.command.ext)
        wanted = CommittedRequest(
            topic=header.topic,
            queue_id=header.queue_id,
            group=header.consumer_group,
            may_begin_at_zero=header.set_zero_if_not_found is not False,
        )
        try:
            offset = self._offsets.committed(wanted, self._callers.of(request))
        except Refusal as refusal:
            if refusal.reason is not Reason.NOT_FOUND:
                raise
            # Java's answer has empty extFields here, not none.
            return refusal_reply(request.command, refusal, ext={})
        return reply_to(request.command, ext=QueryConsumerOffsetResponse(offset=offset).encode())

    def commit(self, request: Request) -> Command:
        """Answer 15: take a commit."""
        header = UpdateConsumerOffsetRequest.decode(request.command.ext)
        wanted = CommitRequest(
            topic=header.topic,
            queue_id=header.queue_id,
            group=header.consumer_group,
            offset=header.commit_offset,
        )
        result = self._offsets.commit(wanted, self._callers.of(request))
        is_ignored = result is CommitResult.RESET_PENDING
        remark = "Offset has been previously reset" if is_ignored else None
        return reply_to(request.command, remark=remark, ext={})

    def by_time(self, request: Request) -> Command:
        """Answer 29: the offset for a store time."""
        header = SearchOffsetRequest.decode(request.command.ext)
        topic, queue_id = header.topic, header.queue_id
        name = (header.lite_topic or "").strip()
        if name:
            if not light_topics.is_name(name):
                text = f"{name[:80]!r} is no name of a light topic"
                raise Refusal(Reason.INVALID_ARGUMENT, text)
            # The guard has asked for the right to the parent, which is what counts.
            topic, queue_id = light_topics.queue_of(topic, name), light_topics.QUEUE_ID
        wanted = OffsetByTimeRequest(
            topic=topic,
            queue_id=queue_id,
            time_ms=header.timestamp,
            upper=header.boundary_type == "UPPER",
        )
        offset = self._offsets.by_time(wanted, self._callers.of(request))
        return reply_to(request.command, ext=SearchOffsetResponse(offset=offset).encode())

    def max_offset(self, request: Request) -> Command:
        """Answer 30: the offset that the next message of a queue will have."""
        header = GetMaxOffsetRequest.decode(request.command.ext)
        offset = self._offsets.max_offset(_queue(header), self._callers.of(request))
        return reply_to(request.command, ext=GetMaxOffsetResponse(offset=offset).encode())

    def min_offset(self, request: Request) -> Command:
        """Answer 31: the first offset of a queue."""
        header = GetMinOffsetRequest.decode(request.command.ext)
        offset = self._offsets.min_offset(_queue(header), self._callers.of(request))
        ext = GetMinOffsetResponse(offset=offset).encode()
        # An empty remark instead of none is what 5.5.0 answers here.
        return reply_to(request.command, remark="", ext=ext)

    def earliest(self, request: Request) -> Command:
        """Answer 32: when the first message of a queue was stored, -1 when it is empty."""
        header = GetEarliestMsgStoretimeRequest.decode(request.command.ext)
        time_ms = self._offsets.earliest_ms(_queue(header), self._callers.of(request))
        ext = GetEarliestMsgStoretimeResponse(timestamp=time_ms).encode()
        return reply_to(request.command, ext=ext)


def _queue(
    header: GetMaxOffsetRequest | GetMinOffsetRequest | GetEarliestMsgStoretimeRequest,
) -> QueueRequest:
    return QueueRequest(topic=header.topic, queue_id=header.queue_id)
