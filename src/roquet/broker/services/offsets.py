"""Queue offsets: committed ones, and those of the queues.

Spec: broker (b) "Consume manage", wire §10.5 and §10.6.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.broker.api.offsets import CommitResult
from roquet.broker.api.refusal import Reason, Refusal
from roquet.store.tables.offsets import FULL

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.offsets import (
        CommitRequest,
        CommittedRequest,
        OffsetByTimeRequest,
        QueueRequest,
    )
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetConfig:
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


class Offsets:
    """Answers questions about offsets and takes commits."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        store: QueueStore,
        rules: OffsetConfig | None = None,
    ) -> None:
        """Answer by `rules`, those of a fresh broker by default."""
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._rules = rules or OffsetConfig()

    def follow(self, rules: OffsetConfig) -> None:
        """Answer by other rules from now on."""
        self._rules = rules

    def committed(self, request: CommittedRequest, caller: Caller) -> int:
        """Return where a group continues in a queue.

        Raises Refusal(NOT_FOUND) when it has never been there and does not begin at 0.
        """
        del caller
        offset = self._offsets.query(request.group, request.topic, request.queue_id)
        if offset is not None:
            return offset
        why = self._why_not_zero(request)
        if why is not None:
            raise Refusal(Reason.NOT_FOUND, why)
        return 0

    def _why_not_zero(self, request: CommittedRequest) -> str | None:
        """Return why a group without an offset does not begin at 0, or None: it does."""
        if not request.may_begin_at_zero:
            return "Not found, do not set to zero, maybe this group boot first"
        group = self._groups.get(request.group)
        if group is not None and not group.consume_from_min_enable:
            return "Not found, the group may not begin at the first message"
        is_whole = self._store.min_offset(request.topic, request.queue_id) <= 0
        if is_whole and self._store.is_in_memory(request.topic, request.queue_id, 0):
            return None
        if is_whole and self._rules.new_queue_zero and self._never_had_a_message(request):
            # Told that there is none, the client asks for the end next, and a message that
            # arrives between the two questions is lost for the group.
            return None
        return "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"

    def _never_had_a_message(self, request: QueueRequest) -> bool:
        topic = self._topics.get(request.topic)
        return (
            topic is not None
            and 0 <= request.queue_id < topic.read_queues
            and self._store.max_offset(request.topic, request.queue_id) <= 0
        )

    def commit(self, request: CommitRequest, caller: Caller) -> CommitResult:
        """Take a commit; one behind a pending reset is ignored.

        Raises Refusal for a topic, group or queue that is not there, and a negative number.
        """
        del caller
        topic = self._topics.get(request.topic)
        if topic is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"Topic {request.topic} not exist!")
        # A commit creates no group, unlike a heartbeat or a pull.
        if self._groups.get(request.group) is None:
            raise Refusal(Reason.UNKNOWN_GROUP, f"Group {request.group} not exist!")
        if request.offset < 0 or request.queue_id < 0:
            raise Refusal(
                Reason.INVALID_ARGUMENT,
                f"queueId[{request.queue_id}] or commitOffset[{request.offset}] is negative",
            )
        queues = max(topic.read_queues, topic.write_queues)
        if request.queue_id >= queues:
            raise Refusal(
                Reason.INVALID_ARGUMENT,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}] has"
                f" {queues} queues",
            )
        where = (request.group, request.topic, request.queue_id)
        if self._offsets.pending_reset(*where) is not None:
            return CommitResult.RESET_PENDING
        if not self._offsets.commit(*where, request.offset):
            raise Refusal(Reason.FAILED, FULL)
        return CommitResult.STORED

    def by_time(self, request: OffsetByTimeRequest, caller: Caller) -> int:
        """Return the offset for a store time."""
        del caller
        return self._store.offset_by_time(
            request.topic, request.queue_id, request.time_ms, upper=request.upper
        )

    def max_offset(self, request: QueueRequest, caller: Caller) -> int:
        """Return the offset that the next message of a queue will have."""
        del caller
        return self._store.max_offset(request.topic, request.queue_id)

    def min_offset(self, request: QueueRequest, caller: Caller) -> int:
        """Return the first offset of a queue."""
        del caller
        return self._store.min_offset(request.topic, request.queue_id)

    def earliest_ms(self, request: QueueRequest, caller: Caller) -> int:
        """Return when the first message of a queue was stored, Unix ms; -1 when it is empty."""
        del caller
        first = self._store.min_offset(request.topic, request.queue_id)
        return self._store.store_time(request.topic, request.queue_id, first)
