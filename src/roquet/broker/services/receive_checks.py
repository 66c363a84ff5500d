"""Whether a request may read from a queue, in the order of 5.5.0 (spec: broker (b) "PULL").

Next: broker/services/receive.py.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Protocol

import msgspec

from roquet.broker.api.receive import Forbids, ReceiveForbidden
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.expressions import Choice
from roquet.broker.services.topic_checks import FAQ, group_for
from roquet.model.subscription import ExpressionType
from roquet.model.topic import can_read
from roquet.protocol import names, tags
from roquet.protocol.light import light_topics
from roquet.store.tables.filters import compiled
from roquet.store.tables.groups import FORBIDDEN_SUBSCRIPTION

if TYPE_CHECKING:
    from roquet.broker.api.receive import ReceiveRequest
    from roquet.broker.pull_rules import PullConfig
    from roquet.broker.state import BrokerState
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.subscription import SubscriptionData
    from roquet.model.topic import TopicConfig
    from roquet.store.tables.filters import Filter, FilterTable
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable


_subscribed = functools.lru_cache(maxsize=1024)(tags.subscribe)
"""What consumers bring with each pull is mostly the same each time."""


def _of_light_topic(request: ReceiveRequest) -> ReceiveRequest:
    """Return the read of a light topic's queue: its parent was judged. Raises Refusal."""
    if not light_topics.is_name(request.light):
        text = f"{request.light[:80]!r} is no name of a light topic"
        raise Refusal(Reason.INVALID_ARGUMENT, text)
    queue = light_topics.queue_of(request.topic, request.light)
    return msgspec.structs.replace(request, topic=queue, queue_id=light_topics.QUEUE_ID)


class ConsumingGroup(Protocol):
    """A group that has members, as far as reads look at it."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets every message."""
        ...


class Consumers(Protocol):
    """Knows who consumes what."""

    def consumer(self, group: str) -> ConsumingGroup | None:
        """Return a group that has members."""
        ...

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what the group's heartbeats say about a topic."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """A read that passed the checks."""

    request: ReceiveRequest
    topic: TopicConfig
    group: SubscriptionGroupConfig
    subscription: SubscriptionData
    codes: list[int] | None
    """Tag codes that are wanted; None for all."""
    filter_by: Filter | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether some messages may not be wanted."""
        return bool(self.subscription.tags) or self.filter_by is not None


class Expressions(Protocol):
    """Is told what expressions mean that pulls bring."""

    def note(self, kind: str, text: str, choice: Choice) -> None:
        """Know what an expression of a kind means."""
        ...


class ReceiveChecks:
    """Whether a request may read (spec: wire §10.2)."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        filters: FilterTable,
        consumers: Consumers,
        *,
        state: BrokerState,
        rules: PullConfig,
        expressions: Expressions,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._filters = filters
        self._expressions = expressions
        self._consumers = consumers
        self.state = state
        self._rules = rules

    def follow(self, rules: PullConfig) -> None:
        """Admit by other settings from now on."""
        self._rules = rules

    def admit(self, request: ReceiveRequest) -> Admitted:
        """Return what the read is for. Raises Refusal."""
        if self.state.is_slave and not self._rules.slave_read:
            text = "[REJECTREQUEST]system busy, start flow control for a while"
            raise Refusal(Reason.BUSY, text)
        if not self.state.is_readable:
            raise ReceiveForbidden(Forbids.BROKER, "the broker does not serve reads")
        if request.is_lite and not self._rules.lite_pull:
            raise ReceiveForbidden(Forbids.BROKER, "the broker does not serve lite pulls")
        group = group_for(self._groups, request.group)
        if not group.consume_enable:
            raise ReceiveForbidden(
                Forbids.GROUP, f"subscription group no permission, {request.group}"
            )
        topic = self._topics.get(request.topic)
        if topic is None:
            raise Refusal(
                Reason.UNKNOWN_TOPIC,
                f"topic[{request.topic}] not exist, apply first please!{FAQ}",
            )
        if not can_read(topic.perm):
            raise ReceiveForbidden(
                Forbids.TOPIC, f"the topic[{request.topic}] pulling message is forbidden"
            )
        if not 0 <= request.queue_id < topic.read_queues:
            raise Refusal(
                Reason.INVALID_ARGUMENT,
                f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queues}]",
            )
        subscription, codes, filter_by = self._subscription(request, group)
        if request.light:
            request = _of_light_topic(request)
        return Admitted(request, topic, group, subscription, codes, filter_by)

    def _subscription(
        self, request: ReceiveRequest, group: SubscriptionGroupConfig
    ) -> tuple[SubscriptionData, list[int] | None, Filter | None]:
        own = request.filter
        if own is not None:
            try:
                found = _subscribed(
                    request.topic,
                    own.expression,
                    version=request.version,
                    expression_type=own.kind,
                )
            except tags.ExpressionError as error:
                raise _unparsable(error) from error
        else:
            found = self._registered(request, group)
        is_sql = found.expression_type not in ("", ExpressionType.TAG)
        sql_serves = self._rules.property_filter and found.expression_type == ExpressionType.SQL92
        if is_sql and not sql_serves:
            raise Refusal(
                Reason.FAILED,
                "The broker does not support consumer to filter message by "
                + found.expression_type,
            )
        if self._rules.reject_pull_consumers and self._consumers.consumer(group.name) is None:
            self._refuse_absent(group.name)
        filter_by = self._filter(request, found) if sql_serves else None
        codes = found.wanted_codes
        if own is not None:
            choice = Choice(codes, filter_by)
            self._expressions.note(own.kind or ExpressionType.TAG, own.expression or "", choice)
        if not sql_serves and self._rules.filter_retries and names.is_retry(request.topic):
            filter_by = self._filters.for_retries(request.group)
        return found, codes, filter_by

    def _registered(
        self, request: ReceiveRequest, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        consuming = self._consumers.consumer(group.name)
        if consuming is None:
            self._refuse_absent(group.name)
        elif consuming.is_broadcasting and not group.consume_broadcast_enable:
            raise ReceiveForbidden(
                Forbids.BROADCAST,
                f"the consumer group[{group.name}] can not consume by broadcast way",
            )
        if self._groups.forbidden(group.name, request.topic) & FORBIDDEN_SUBSCRIPTION:
            raise ReceiveForbidden(
                Forbids.SUBSCRIPTION,
                f"the consumer group[{group.name}] is forbidden for topic[{request.topic}]",
            )
        found = self._consumers.subscription(group.name, request.topic)
        if found is None:
            raise Refusal(
                Reason.NOT_SUBSCRIBED,
                f"the consumer's subscription not exist{FAQ}",
            )
        if found.version < request.version:
            raise Refusal(Reason.SUBSCRIPTION_OUTDATED, "the consumer's subscription not latest")
        if found.expression_type not in ("", ExpressionType.TAG):
            self._check_filter(request, found.version)
        return found

    def _check_filter(self, request: ReceiveRequest, version: int) -> None:
        entry = self._filters.find(request.topic, request.group)
        if entry is None:
            raise Refusal(
                Reason.UNKNOWN_FILTER,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if entry.version < version:
            raise Refusal(
                Reason.FILTER_OUTDATED,
                "the consumer's consumer filter data not latest",
            )

    def _filter(self, request: ReceiveRequest, found: SubscriptionData) -> Filter:
        if request.filter is None:
            entry = self._filters.find(request.topic, request.group)
            if entry is not None:
                return entry.filter
        try:
            return compiled(found.expression)
        except tags.ExpressionError as error:
            raise _unparsable(error) from error

    def _refuse_absent(self, group: str) -> None:
        raise Refusal(
            Reason.NOT_SUBSCRIBED,
            f"the consumer's group info not exist, group: {group}{FAQ}",
        )


def _unparsable(error: tags.ExpressionError) -> Refusal:
    return Refusal(
        Reason.UNPARSABLE_FILTER,
        f"parse the consumer's subscription failed: {error}",
    )
