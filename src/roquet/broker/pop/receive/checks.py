"""Whether a POP request may read, acknowledge or wait: checks and texts in Java's order.

Spec: broker (h), wire §11.1.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.pop import MESSAGES_MAX
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.expressions import EVERYTHING, Choice
from roquet.broker.services.topic_checks import FAQ
from roquet.model.attributes import MESSAGE_TYPE, priority_factor
from roquet.model.subscription import ExpressionType
from roquet.model.topic import can_read
from roquet.protocol import tags
from roquet.protocol.pop.handle import HandleError, ReceiptHandle
from roquet.store.tables.filters import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.broker.api.pop import NotificationRequest, PeekRequest, PopRequest
    from roquet.broker.state import BrokerState, Identity
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.topic import TopicConfig
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable

LATE_MS = 500
"""A request that is so much older than its client waits for is not worked on."""
INVISIBLE_MS_MAX = 10 * 366 * 86_400_000
"""No invisible time is longer; `timerMaxDelaySec` bounds it further."""


AHEAD_MS_MAX = 60_000
"""How far a pop time may lie ahead of the clock, which may have been set back, or be another
broker's."""
AGE_MS_MIN = 86_400_000
"""Handles live so long at least, whatever the longest invisible time is: consumers may acknowledge
what they popped before the broker stood still."""


class TimerLimits(Protocol):
    """What the timer wheel takes."""

    @property
    def enabled(self) -> bool:
        """Whether there is one: checkpoints wait in it."""
        ...

    @property
    def delay_max_s(self) -> int:
        """The longest time that something may wait in it."""
        ...


class PopChecks:
    """Admits requests or raises Refusal."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        *,
        identity: Identity,
        state: BrokerState,
        timers: TimerLimits,
        revive_topic: str,
        has_records: Callable[[int], bool],
        newest_ms: Callable[[], int],
        clock: Clock,
    ) -> None:
        """`newest_ms` tells the latest pop time before the clock was set back, 0 if it was not.

        `has_records` tells of a revive queue whether there is or was a record in it.
        """
        self._topics = topics
        self._groups = groups
        self._identity = identity
        self._state = state
        self._timers = timers
        self._revive_topic = revive_topic
        self._has_records = has_records
        self._newest_ms = newest_ms
        self._clock = clock

    def follow(self, timers: TimerLimits) -> None:
        """Go by other limits from now on."""
        self._timers = timers

    # --- requests for messages --------------------------------------------------------------------

    def pop(self, request: PopRequest) -> tuple[TopicConfig, Choice]:
        """Admit a pop; return its topic and what it takes of it."""
        if self.is_late(request.born_ms, request.poll_ms):
            text = f"the broker[{self._identity.ip}] pop message is timeout too much"
            raise Refusal(Reason.POLLING_TIMEOUT, text)
        self.check_serving("pop message")
        if request.max_messages > MESSAGES_MAX:
            ip = self._identity.ip
            text = f"the broker[{ip}] pop message's num is greater than {MESSAGES_MAX}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        self._check_timers()
        topic = self._readable(request.topic, request.queue_id, request.group)
        self._group(request.group)
        wanted = self.wanted(request.topic, request.expression, request.expression_type)
        # From here on stricter than Java, which takes these and then holds or loses them.
        if request.max_messages < 1:
            text = f"maxMsgNums is {request.max_messages}: a pop asks for one message or more"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        self.check_invisible(request.invisible_ms)
        return topic, wanted

    def urgent_percent(self, topic: TopicConfig, request: PopRequest) -> int:
        """Return how many of 100 such pops, once admitted, take the most urgent messages first."""
        if request.is_ordered or topic.attributes.get(MESSAGE_TYPE) != "PRIORITY":
            return 0
        group = self._groups.get(request.group)
        return 0 if group is None else priority_factor(group.attributes)

    def peek(self, request: PeekRequest) -> TopicConfig:
        """Admit a peek."""
        self.check_serving("peeking message")
        topic = self._readable(request.topic, request.queue_id, request.group)
        self._group(request.group)
        if not 0 < request.max_messages <= MESSAGES_MAX:
            text = f"maxMsgNums is {request.max_messages}: must be 1 to {MESSAGES_MAX}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        return topic

    def notification(self, request: NotificationRequest) -> tuple[TopicConfig, Choice]:
        """Admit a question for messages to pop."""
        self.check_serving("peeking message")
        topic = self._readable(request.topic, request.queue_id, request.group)
        self._group(request.group)
        wanted = self.wanted(request.topic, request.expression, request.expression_type)
        return topic, wanted

    def polling(self, topic: str, group: str, queue_id: int) -> None:
        """Admit a question for waiting pops."""
        self.check_serving("peeking message")
        self._readable(topic, queue_id, group)
        self._group(group)

    def is_late(self, born_ms: int, poll_ms: int) -> bool:
        """Tell whether a client has given up waiting."""
        return self._clock.now_ms() - born_ms - poll_ms > LATE_MS

    def wanted(self, topic: str, expression: str | None, kind: str | None) -> Choice:
        """Return what an expression takes. Raises Refusal."""
        if not expression:
            return EVERYTHING
        try:
            return _wanted(topic, expression, kind or ExpressionType.TAG)
        except tags.ExpressionError as error:
            text = "parse the consumer's subscription failed"
            raise Refusal(Reason.UNPARSABLE_FILTER, text) from error

    # --- what settles messages --------------------------------------------------------------------

    def settled_queue(self, name: str, queue_id: int, client: str) -> None:
        """Check the queue of an acknowledgement, whose topic may be a pop retry topic."""
        self._check_master()
        topic = self._known(name)
        if not 0 <= queue_id < topic.read_queues:
            raise Refusal(Reason.ILLEGAL_MESSAGE, _no_queue(topic, queue_id, client))

    def handle(self, text: str) -> ReceiptHandle:
        """Read a receipt handle that this broker can settle."""
        try:
            handle = ReceiptHandle.decode(text)
        except HandleError as error:
            raise Refusal(Reason.FAILED, str(error)) from error
        ordered = handle.is_ordered
        self.check_place(handle.broker_name, handle.revive_queue, is_ordered=ordered)
        return handle

    def check_place(self, broker_name: str, revive_queue: int, *, is_ordered: bool = False) -> None:
        """Check who keeps the checkpoint of a message, and where."""
        if broker_name != self._identity.name:
            text = f"the receipt handle is of broker {broker_name[:255]!r}"
            raise Refusal(Reason.INVALID_ARGUMENT, f"{text}, this is {self._identity.name}")
        revive = self._topics.get(self._revive_topic)
        queues = 0 if revive is None else max(revive.read_queues, revive.write_queues)
        if is_ordered or 0 <= revive_queue < queues:
            return
        # A topic with fewer queues than before: what was popped before has its checkpoints there.
        if revive_queue < 0 or not self._has_records(revive_queue):
            text = f"the receipt handle names revive queue {revive_queue} of {queues}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)

    def check_invisible(self, invisible_ms: int) -> None:
        """Check that a message may be invisible so long."""
        most = self._invisible_max_ms
        if not 0 <= invisible_ms <= most:
            text = f"invisibleTime is {invisible_ms}: must be 0 to {most} ms (timerMaxDelaySec)"
            raise Refusal(Reason.INVALID_ARGUMENT, text)

    def popped(self, group: str, start_offset: int, pop_time_ms: int, invisible_ms: int) -> None:
        """Check that a pop of the group may have had such a checkpoint.

        What cannot belong to any pop would be stored and remembered for nothing.
        """
        if self._groups.get(group) is None:
            raise Refusal(Reason.UNKNOWN_GROUP, _no_group(group))
        now_ms, most = self._clock.now_ms(), self._invisible_max_ms
        oldest_ms = now_ms - max(most, AGE_MS_MIN)
        newest_ms = max(now_ms, self._newest_ms()) + AHEAD_MS_MAX
        if not oldest_ms <= pop_time_ms <= newest_ms:
            text = f"the receipt handle is of a pop at {pop_time_ms}, now it is {now_ms} ms"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        if start_offset < 0:
            text = f"the receipt handle names a checkpoint at offset {start_offset}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        self.check_invisible(invisible_ms)

    @property
    def _invisible_max_ms(self) -> int:
        return min(self._timers.delay_max_s * 1000, INVISIBLE_MS_MAX)

    # --- parts of these ---------------------------------------------------------------------------

    def check_serving(self, what: str) -> None:
        """Check that the broker gives messages to those who pop."""
        self._check_master()
        if not self._state.is_readable:
            text = f"the broker[{self._identity.ip}] {what} is forbidden"
            raise Refusal(Reason.FORBIDDEN, text)

    def _check_master(self) -> None:
        if self._state.is_slave:
            text = f"the broker[{self._identity.ip}] is a slave: only a master serves POP"
            raise Refusal(Reason.NOT_MASTER, text)

    def _check_timers(self) -> None:
        if not self._timers.enabled:
            raise Refusal(
                Reason.FAILED,
                f"the broker[{self._identity.ip}] pop message is forbidden because"
                " timerWheelEnable is false",
            )

    def _known(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            text = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise Refusal(Reason.UNKNOWN_TOPIC, text)
        return topic

    def _readable(self, name: str, queue_id: int, group: str) -> TopicConfig:
        topic = self._known(name)
        if not can_read(topic.perm):
            raise Refusal(Reason.FORBIDDEN, f"the topic[{name}] peeking message is forbidden")
        if queue_id >= topic.read_queues:
            raise Refusal(Reason.INVALID_ARGUMENT, _no_queue(topic, queue_id, group))
        return topic

    def _group(self, name: str) -> SubscriptionGroupConfig:
        group = self._groups.find(name)
        if group is None:
            raise Refusal(Reason.UNKNOWN_GROUP, _no_group(name))
        if not group.consume_enable:
            raise Refusal(Reason.FORBIDDEN, f"subscription group no permission, {name}")
        return group


def _no_group(name: str) -> str:
    return f"subscription group [{name}] does not exist, {FAQ}"


def _no_queue(topic: TopicConfig, queue_id: int, client: str) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.name}]"
        f" topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{client}]"
    )


@functools.lru_cache(maxsize=1024)
def _wanted(topic: str, expression: str, kind: str) -> Choice:
    """Work out what consumers bring with each pop, which is mostly the same each time."""
    found = tags.subscribe(topic, expression, expression_type=kind)
    if kind == ExpressionType.TAG:
        return Choice(codes=found.wanted_codes)
    if kind != ExpressionType.SQL92:
        raise tags.ExpressionError(f"expressions of the kind {kind[:40]!r} are not known")
    return Choice(filter_by=compiled(found.expression))
