"""How far things are: topics (202), groups (208, 317, 303), who reads what (300, 343), rates (315).

Spec: broker (b) "Admin processor", wire §19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.groups import encode_group_list
from roquet.protocol.bodies.stats import (
    ConsumeOffset,
    ConsumeStats,
    QueueTimeSpan,
    TopicOffset,
    TopicStats,
    encode_broker_stats,
    encode_consume_stats_list,
    encode_time_spans,
)
from roquet.protocol.bodies.topics import encode_topic_list
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    GetConsumeStatsInBroker,
    GetConsumeStatsRequest,
    GetTopicStatsInfoRequest,
    QueryConsumeTimeSpanRequest,
    QueryTopicConsumeByWhoRequest,
    QueryTopicsByConsumerRequest,
    ViewBrokerStatsDataRequest,
)
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.base.clock import Clock
    from roquet.broker.registry import Registry
    from roquet.broker.state import Identity
    from roquet.broker.stats import BrokerStats
    from roquet.model.topic import TopicConfig
    from roquet.store.offsets import OffsetTable
    from roquet.store.store import MessageStore
    from roquet.store.topics import TopicTable


class ProgressAdmin:
    """Answers how far topics and groups are."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        registry: Registry,
        store: MessageStore,
        stats: BrokerStats,
        *,
        identity: Identity,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._offsets = offsets
        self._registry = registry
        self._store = store
        self._stats = stats
        self._identity = identity
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_TOPIC_STATS_INFO,), self.topic, "admin"),
            Route((RequestCode.GET_CONSUME_STATS,), self.group, "admin"),
            Route((RequestCode.GET_BROKER_CONSUME_STATS,), self.every_group, "admin"),
            Route((RequestCode.QUERY_CONSUME_TIME_SPAN,), self.time_spans, "admin"),
            Route((RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,), self.groups_of_topic, "admin"),
            Route((RequestCode.QUERY_TOPICS_BY_CONSUMER,), self.topics_of_group, "admin"),
            Route((RequestCode.VIEW_BROKER_STATS_DATA,), self.rates, "admin"),
        ]

    async def topic(self, request: Request) -> Command:
        """Return each queue's bounds and when its last message was stored."""
        name = GetTopicStatsInfoRequest.decode(request.command.ext).topic
        config = self._topic(name)
        offsets: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.read_queues, config.write_queues)):
            last = self._store.max_offset(name, queue_id)
            stored_ms = self._store.store_time(name, queue_id, last - 1) if last > 0 else 0
            offsets[self._queue(name, queue_id)] = TopicOffset(
                min_offset=max(0, self._store.min_offset(name, queue_id)),
                max_offset=max(0, last),
                last_update=max(0, stored_ms),
            )
        body = TopicStats(offsets=offsets, put_tps=self._stats.put_rate(name))
        return reply_to(request.command, body=body.encode())

    async def group(self, request: Request) -> Command:
        """Return how far a group is in one topic, some, or all that it has offsets in."""
        header = GetConsumeStatsRequest.decode(request.command.ext)
        group = header.consumer_group
        if header.topic and header.topic.strip():
            wanted: Iterable[str] = [header.topic]
        elif header.topic_list:
            wanted = [name for name in header.topic_list.split(";") if name]
        else:
            wanted = self._offsets.topics_of(group)
        stats = [self._progress(group, name) for name in dict.fromkeys(wanted)]
        merged = ConsumeStats(
            offsets={queue: it for one in stats for queue, it in one.offsets.items()},
            consume_tps=sum(one.consume_tps for one in stats),
        )
        return reply_to(request.command, body=merged.encode())

    async def every_group(self, request: Request) -> Command:
        """Return how far every group is, and by how many messages all of them are behind."""
        header = GetConsumeStatsInBroker.decode(request.command.ext)
        found: list[dict[str, list[ConsumeStats]]] = []
        behind = in_flight = 0
        for group in self._all_groups():
            stats = [
                one
                for name in self._offsets.topics_of(group)
                if (config := self._topics.get(name)) is not None
                and (config.order or not header.is_order)
                and (one := self._progress(group, name)).offsets
            ]
            behind += sum(_behind(one) for one in stats)
            in_flight += sum(_in_flight(one) for one in stats)
            found.append({group: stats})
        body = encode_consume_stats_list(
            found,
            broker_address=self._identity.address,
            total_diff=behind,
            total_inflight_diff=in_flight,
        )
        return reply_to(request.command, body=body)

    async def time_spans(self, request: Request) -> Command:
        """Return store times of each queue's oldest, newest and next message for a group."""
        header = QueryConsumeTimeSpanRequest.decode(request.command.ext)
        config = self._topic(header.topic)
        spans: list[QueueTimeSpan] = []
        for queue_id in range(config.write_queues):
            low = self._store.min_offset(header.topic, queue_id)
            high = self._store.max_offset(header.topic, queue_id)
            done = self._offsets.query(header.group, header.topic, queue_id) or 0
            at = self._time(header.topic, queue_id, done - 1) if done > 0 else -1
            oldest = self._time(header.topic, queue_id, low)
            consumed = at if at > 0 else oldest
            is_done = done >= high
            spans.append(
                QueueTimeSpan(
                    queue=self._queue(header.topic, queue_id),
                    min_time=oldest,
                    max_time=self._time(header.topic, queue_id, high - 1),
                    consume_time=consumed,
                    delay_ms=0 if is_done else max(0, self._clock.now_ms() - max(consumed, 0)),
                )
            )
        return reply_to(request.command, body=encode_time_spans(spans))

    def groups_of_topic(self, request: Request) -> Command:
        """Return the groups that read a topic: those connected and those with offsets."""
        name = QueryTopicConsumeByWhoRequest.decode(request.command.ext).topic
        groups = {*self._registry.groups_of_topic(name), *self._offsets.groups_of(name)}
        return reply_to(request.command, body=encode_group_list(groups))

    def topics_of_group(self, request: Request) -> Command:
        """Return the topics in which a group has offsets."""
        group = QueryTopicsByConsumerRequest.decode(request.command.ext).group
        topics = self._offsets.topics_of(group)
        body = encode_topic_list(topics, self._identity.address)
        return reply_to(request.command, body=body)

    def rates(self, request: Request) -> Command:
        """Return the sums of a minute, an hour and a day of one named set and key."""
        header = ViewBrokerStatsDataRequest.decode(request.command.ext)
        found = self._stats.find(header.stats_name, header.stats_key)
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        now_ms = self._clock.now_ms()
        body = encode_broker_stats(
            {
                "statsDay": found.day(now_ms),
                "statsHour": found.hour(now_ms),
                "statsMinute": found.minute(now_ms),
            }
        )
        return reply_to(request.command, body=body)

    def _progress(self, group: str, topic: str) -> ConsumeStats:
        config = self._topics.get(topic)
        member = self._registry.consumer(group)
        if config is None or (member is not None and topic not in member.subscriptions):
            return ConsumeStats(offsets={})
        offsets: dict[MessageQueue, ConsumeOffset] = {}
        for queue_id in range(config.read_queues):
            done = max(0, self._offsets.query(group, topic, queue_id) or 0)
            stored_ms = self._time(topic, queue_id, done - 1) if done > 0 else 0
            offsets[self._queue(topic, queue_id)] = ConsumeOffset(
                broker_offset=max(0, self._store.max_offset(topic, queue_id)),
                consumer_offset=done,
                pull_offset=max(done, self._offsets.pulled(group, topic, queue_id) or 0),
                last_timestamp=max(0, stored_ms),
            )
        return ConsumeStats(offsets=offsets, consume_tps=self._stats.get_rate(group, topic))

    def _all_groups(self) -> list[str]:
        with_offsets = (key.partition("@")[2] for key in self._offsets.export().offsets)
        return sorted({*with_offsets, *self._registry.consumer_groups})

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return config

    def _time(self, topic: str, queue_id: int, offset: int) -> int:
        return self._store.store_time(topic, queue_id, offset) if offset >= 0 else -1

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._identity.name, queue_id)


def _behind(stats: ConsumeStats) -> int:
    return sum(it.broker_offset - it.consumer_offset for it in stats.offsets.values())


def _in_flight(stats: ConsumeStats) -> int:
    return sum(it.pull_offset - it.consumer_offset for it in stats.offsets.values())
