"""Queue offsets: committed ones (14, 15), and those of the queues (29 to 32).

Spec: broker (b) "Consume manage", wire §10.5 and §10.6.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.base.errors import Refused
from roquet.protocol.codes import RequestCode, ResponseCode
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
from roquet.remoting.router import Request, Route
from roquet.store.offsets import FULL

if TYPE_CHECKING:
    from roquet.store.groups import GroupTable
    from roquet.store.offsets import OffsetTable
    from roquet.store.topics import TopicTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRules:
    """Settings of committed offsets."""

    new_queue_zero: bool = setting(
        "newQueueFromZero",
        True,
        "Whether a group that has no offset begins at 0 in a queue that never had a message, so"
        " that it gets the message that arrives while it starts; false answers as RocketMQ does.",
        live=True,
    )


class QueueStore(Protocol):
    """What is asked of the message store about its queues."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset still there."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last dispatched message."""
        ...

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """Return the offset for a store time."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, -1 when there is none."""
        ...

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether a message is so new that it is probably cached."""
        ...


class OffsetProcessor:
    """Answers questions about offsets and takes commits."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        store: QueueStore,
        rules: OffsetRules | None = None,
    ) -> None:
        """Answer by `rules`, those of a fresh broker by default."""
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._rules = rules or OffsetRules()

    def follow(self, rules: OffsetRules) -> None:
        """Answer by other rules from now on."""
        self._rules = rules

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.QUERY_CONSUMER_OFFSET,), self.query, "consumer_manage"),
            Route((RequestCode.UPDATE_CONSUMER_OFFSET,), self.update, "consumer_manage"),
            Route((RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,), self.search, "admin"),
            Route((RequestCode.GET_MAX_OFFSET,), self.max_offset, "admin"),
            Route((RequestCode.GET_MIN_OFFSET,), self.min_offset, "admin"),
            Route((RequestCode.GET_EARLIEST_MSG_STORETIME,), self.earliest, "admin"),
        ]

    def query(self, request: Request) -> Command:
        """Return where a group continues in a queue, 22 when it has never been there."""
        header = QueryConsumerOffsetRequest.decode(request.command.ext)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            remark = self._why_not_zero(header)
            if remark is not None:
                # Not Refused: Java's answer has empty extFields here, not none.
                return reply_to(
                    request.command, ResponseCode.QUERY_NOT_FOUND, remark=remark, ext={}
                )
            offset = 0
        return reply_to(request.command, ext=QueryConsumerOffsetResponse(offset=offset).encode())

    def _why_not_zero(self, header: QueryConsumerOffsetRequest) -> str | None:
        """Return why a group without an offset does not begin at 0, or None: it does."""
        if header.set_zero_if_not_found is False:
            return "Not found, do not set to zero, maybe this group boot first"
        group = self._groups.get(header.consumer_group)
        if group is not None and not group.consume_from_min_enable:
            return "Not found, the group may not begin at the first message"
        is_whole = self._store.min_offset(header.topic, header.queue_id) <= 0
        if is_whole and self._store.is_in_memory(header.topic, header.queue_id, 0):
            return None
        if is_whole and self._rules.new_queue_zero and self._never_had_a_message(header):
            # Answered 22, the client asks for the end (30) next, and a message that arrives
            # between the two questions is lost for the group.
            return None
        return "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"

    def _never_had_a_message(self, header: QueryConsumerOffsetRequest) -> bool:
        topic = self._topics.get(header.topic)
        return (
            topic is not None
            and 0 <= header.queue_id < topic.read_queues
            and self._store.max_offset(header.topic, header.queue_id) <= 0
        )

    def update(self, request: Request) -> Command:
        """Take a commit; one behind a pending reset is answered but ignored."""
        header = UpdateConsumerOffsetRequest.decode(request.command.ext)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        # A commit creates no group, unlike a heartbeat or a pull.
        if self._groups.get(header.consumer_group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {header.consumer_group} not exist!",
            )
        if header.commit_offset < 0 or header.queue_id < 0:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] or commitOffset[{header.commit_offset}] is negative",
            )
        queues = max(topic.read_queues, topic.write_queues)
        if header.queue_id >= queues:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] has"
                f" {queues} queues",
            )
        where = (header.consumer_group, header.topic, header.queue_id)
        if self._offsets.pending_reset(*where) is not None:
            remark = "Offset has been previously reset"
            return reply_to(request.command, remark=remark, ext={})
        if not self._offsets.commit(*where, header.commit_offset):
            raise Refused(ResponseCode.SYSTEM_ERROR, FULL)
        return reply_to(request.command, ext={})

    def search(self, request: Request) -> Command:
        """Return the offset for a store time."""
        header = SearchOffsetRequest.decode(request.command.ext)
        offset = self._store.offset_by_time(
            header.topic, header.queue_id, header.timestamp, upper=header.boundary_type == "UPPER"
        )
        return reply_to(request.command, ext=SearchOffsetResponse(offset=offset).encode())

    def max_offset(self, request: Request) -> Command:
        """Return the offset that the next message of a queue will have."""
        header = GetMaxOffsetRequest.decode(request.command.ext)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return reply_to(request.command, ext=GetMaxOffsetResponse(offset=offset).encode())

    def min_offset(self, request: Request) -> Command:
        """Return the first offset of a queue."""
        header = GetMinOffsetRequest.decode(request.command.ext)
        offset = self._store.min_offset(header.topic, header.queue_id)
        # An empty remark instead of none is what 5.5.0 answers here.
        return reply_to(
            request.command, remark="", ext=GetMinOffsetResponse(offset=offset).encode()
        )

    def earliest(self, request: Request) -> Command:
        """Return when the first message of a queue was stored, -1 when it is empty."""
        header = GetEarliestMsgStoretimeRequest.decode(request.command.ext)
        first = self._store.min_offset(header.topic, header.queue_id)
        timestamp = self._store.store_time(header.topic, header.queue_id, first)
        return reply_to(
            request.command, ext=GetEarliestMsgStoretimeResponse(timestamp=timestamp).encode()
        )
