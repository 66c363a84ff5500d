"""Looking without taking: peek (200052), and whether there is something to pop (200054, 200055)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.pop import PeekResult
from roquet.broker.clients.expressions import EVERYTHING
from roquet.broker.pop.receive.reads import Draw, has_wanted, read_for, rest_of

if TYPE_CHECKING:
    from roquet.broker.api.pop import NotificationRequest, PeekRequest
    from roquet.broker.clients.expressions import Choice
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.offsets import PopOffsets
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.broker.pop.receive.reads import Draws, Reader
    from roquet.broker.pop.receive.rules import PopConfig
    from roquet.model.topic import TopicConfig
    from roquet.store.tables.topics import TopicTable


class PopBrowser:
    """Answers what changes nothing."""

    def __init__(
        self,
        *,
        checks: PopChecks,
        topics: TopicTable,
        store: Reader,
        offsets: PopOffsets,
        orders: PopOrders,
        rules: PopConfig,
        draws: Draws,
    ) -> None:
        self._checks = checks
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._rules = rules
        self._draws = draws

    def follow(self, rules: PopConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    def peek(self, request: PeekRequest) -> PeekResult:
        """Return what the group would get next. Raises Refusal and StoreFault."""
        topic = self._checks.peek(request)
        parts: list[bytes] = []
        messages = rest = 0
        for name, queue_id in self._places(topic, request.group, request.queue_id):
            if messages >= request.max_messages:
                rest += self._offsets.rest(request.group, name, queue_id)
                continue
            begin = self._offsets.seen(request.group, name, queue_id)
            most = request.max_messages - messages
            queue, group = (name, queue_id), request.group
            result = read_for(
                *(self._store, queue, begin),
                group=group,
                most=most,
                wanted=EVERYTHING,
                may_read=request.may_read,
            )
            parts.append(result.records)
            messages += result.messages
            rest += rest_of(result)
        return PeekResult(rest=rest, records=b"".join(parts), messages=messages)

    def has_messages(self, request: NotificationRequest) -> bool:
        """Tell whether a pop would find something. Raises Refusal and StoreFault."""
        topic, wanted = self._checks.notification(request)
        places = self._places(topic, request.group, request.queue_id)
        if request.is_ordered:
            # Messages popped in order are not redelivered by way of a retry topic.
            places = [(name, at) for name, at in places if name == topic.name]
        return any(
            self._has(request, name, queue_id, wanted)
            for name, queue_id in places
            if not request.is_ordered
            or not self._orders.is_blocked((name, request.group, queue_id), request.attempt_id)
        )

    def _has(self, request: NotificationRequest, topic: str, queue_id: int, wanted: Choice) -> bool:
        group, allowed = request.group, request.may_read
        begin = self._offsets.seen(group, topic, queue_id)
        end = begin + self._offsets.rest(group, topic, queue_id)
        if not self._rules.filter_notifications:
            wanted = EVERYTHING
        most = self._rules.filter_notifications_max - 1
        queue = topic, queue_id
        return has_wanted(
            *(self._store, queue, begin, end), wanted=wanted, most=most, may_read=allowed
        )

    def _places(self, topic: TopicConfig, group: str, queue_id: int) -> list[tuple[str, int]]:
        """Return the queues to look at, those of redelivered messages first or last."""
        draw = Draw(self._rules, self._draws.take())
        again = draw.turned(self._topics.get(draw.retry_topic(topic.name, group)))
        normal = draw.turned(topic) if queue_id < 0 else [(topic.name, queue_id)]
        return [*again, *normal] if draw.retry_first else [*normal, *again]
