"""How far topics and groups are, who reads what, and rates (spec: broker (b) "Admin processor")."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.bodies.stats import ConsumeOffset, QueueTimeSpan, TopicOffset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.registry import Registry
    from roquet.broker.metrics.stats import BrokerStats, View
    from roquet.model.topic import TopicConfig
    from roquet.store.store import MessageStore
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable


@dataclasses.dataclass(slots=True)
class GroupProgress:
    """How far a group is in a topic.

    `queues` yields each queue's number and offsets, and adds to the sums; whoever has many rows
    takes them in slices.
    """

    queues: Iterator[tuple[int, ConsumeOffset]] = dataclasses.field(
        default_factory=lambda: iter(())
    )
    tps: float = 0.0
    behind: int = 0
    """Messages that the group has not committed, of the rows that were taken."""
    in_flight: int = 0
    """Messages that were read and not committed, of the rows that were taken."""


class Progress:
    """Knows how far topics and groups are."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        registry: Registry,
        store: MessageStore,
        stats: BrokerStats,
        *,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._registry = registry
        self._store = store
        self._stats = stats
        self._clock = clock

    def put_rate(self, topic: str) -> float:
        """Return how many messages a second a topic takes."""
        return self._stats.put_rate(topic)

    def topic(self, name: str, caller: Caller) -> Iterator[tuple[int, TopicOffset]]:
        """Return each queue's bounds and when its last message was stored. Raises Refusal."""
        del caller
        config = self._topic(name)
        return self._bounds(name, max(config.read_queues, config.write_queues))

    def _bounds(self, topic: str, queues: int) -> Iterator[tuple[int, TopicOffset]]:
        for queue_id in range(queues):
            last = self._store.max_offset(topic, queue_id)
            yield (
                queue_id,
                TopicOffset(
                    min_offset=max(0, self._store.min_offset(topic, queue_id)),
                    max_offset=max(0, last),
                    last_update=max(0, self._time(topic, queue_id, last - 1)),
                ),
            )

    def groups(self, caller: Caller) -> list[str]:
        """Return the groups that are connected or have offsets, in order."""
        del caller
        return sorted({*self._registry.consumer_groups, *self._offsets.groups()})

    def group(self, group: str, topic: str, caller: Caller) -> GroupProgress | None:
        """Return how far a group is in a topic; None when it has nothing to do with it."""
        del caller
        config = self._topics.get(topic)
        member = self._registry.consumer(group)
        if config is None or (member is not None and topic not in member.subscriptions):
            return None
        found = GroupProgress(tps=self._stats.get_rate(group, topic))
        found.queues = self._offsets_of(group, topic, config.read_queues, found)
        return found

    def lags(self, group: str, topic: str, caller: Caller) -> Iterator[int]:
        """Return how many messages of each queue a group has not committed.

        There is none of a topic that the group has nothing to do with. Nothing is read from disk,
        other than for the rows of `group`.
        """
        del caller
        config = self._topics.get(topic)
        member = self._registry.consumer(group)
        if config is None or (member is not None and topic not in member.subscriptions):
            return
        for queue_id in range(config.read_queues):
            done = max(0, self._offsets.query(group, topic, queue_id) or 0)
            yield max(0, self._store.max_offset(topic, queue_id) - done)

    def members(self, group: str, caller: Caller) -> int:
        """Return how many members of a group are connected."""
        del caller
        member = self._registry.consumer(group)
        return 0 if member is None else len(member.client_ids)

    def is_known(self, topic: str, *, ordered: bool) -> bool:
        """Tell whether a topic exists here and, if `ordered`, is one for messages in order."""
        config = self._topics.get(topic)
        return config is not None and (config.order or not ordered)

    def time_spans(
        self, group: str, topic: str, caller: Caller
    ) -> Iterator[tuple[int, QueueTimeSpan]]:
        """Return store times of each queue's oldest, newest and next message for a group.

        Raises Refusal.
        """
        del caller
        return self._spans(group, topic, self._topic(topic).write_queues)

    def _spans(self, group: str, topic: str, queues: int) -> Iterator[tuple[int, QueueTimeSpan]]:
        for queue_id in range(queues):
            low = self._store.min_offset(topic, queue_id)
            high = self._store.max_offset(topic, queue_id)
            done = self._offsets.query(group, topic, queue_id) or 0
            at = self._time(topic, queue_id, done - 1) if done > 0 else -1
            oldest = self._time(topic, queue_id, low)
            consumed = at if at > 0 else oldest
            is_done = done >= high
            yield (
                queue_id,
                QueueTimeSpan(
                    min_time=oldest,
                    max_time=self._time(topic, queue_id, high - 1),
                    consume_time=consumed,
                    delay_ms=0 if is_done else max(0, self._clock.now_ms() - max(consumed, 0)),
                ),
            )

    def groups_of_topic(self, topic: str, caller: Caller) -> set[str]:
        """Return the groups that read a topic: those connected and those with offsets."""
        del caller
        return {*self._registry.groups_of_topic(topic), *self._offsets.groups_of(topic)}

    def topics_of_group(self, group: str, caller: Caller) -> list[str]:
        """Return the topics in which a group has offsets."""
        del caller
        return self._offsets.topics_of(group)

    def rates(self, name: str, key: str, caller: Caller) -> View:
        """Return one named set and key of the statistics. Raises Refusal."""
        del caller
        found = self._stats.find(name, key)
        if found is None:
            raise Refusal(Reason.FAILED, f"The stats <{name}> <{key}> not exist")
        return found

    def _offsets_of(
        self, group: str, topic: str, queues: int, sums: GroupProgress
    ) -> Iterator[tuple[int, ConsumeOffset]]:
        for queue_id in range(queues):
            done = max(0, self._offsets.query(group, topic, queue_id) or 0)
            one = ConsumeOffset(
                broker_offset=max(0, self._store.max_offset(topic, queue_id)),
                consumer_offset=done,
                pull_offset=max(done, self._offsets.pulled(group, topic, queue_id) or 0),
                last_timestamp=max(0, self._time(topic, queue_id, done - 1)),
            )
            sums.behind += one.broker_offset - one.consumer_offset
            sums.in_flight += one.pull_offset - one.consumer_offset
            yield queue_id, one

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"topic[{name}] not exist")
        return config

    def _time(self, topic: str, queue_id: int, offset: int) -> int:
        return self._store.store_time(topic, queue_id, offset) if offset >= 0 else -1
