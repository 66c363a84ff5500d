"""How far things are: topics (202), groups (208, 317, 303), who reads what (300, 343), rates (315).

Spec: broker (b) "Admin processor", wire §19.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.broker.processors.admin.common import QUEUES_AT_ONCE
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
from roquet.service.background import give_way
from roquet.service.slices import in_slices, write_body

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


GROUPS_AT_ONCE = 20


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
        queues = range(max(config.read_queues, config.write_queues))
        async for queue_id in in_slices(queues, QUEUES_AT_ONCE):
            last = self._store.max_offset(name, queue_id)
            stored_ms = self._store.store_time(name, queue_id, last - 1) if last > 0 else 0
            offsets[self._queue(name, queue_id)] = TopicOffset(
                min_offset=max(0, self._store.min_offset(name, queue_id)),
                max_offset=max(0, last),
                last_update=max(0, stored_ms),
            )
        body = TopicStats(offsets=offsets, put_tps=self._stats.put_rate(name))
        written = await write_body(body.encode, len(offsets))
        return reply_to(request.command, body=written)

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
        offsets: dict[MessageQueue, ConsumeOffset] = {}
        tps = 0.0
        async for name in in_slices(dict.fromkeys(wanted), QUEUES_AT_ONCE):
            one = await self._progress(group, name)
            offsets.update(one.offsets)
            tps += one.consume_tps
        merged = ConsumeStats(offsets=offsets, consume_tps=tps)
        body = await write_body(merged.encode, len(offsets))
        return reply_to(request.command, body=body)

    async def every_group(self, request: Request) -> Command:
        """Return how far every group is, and by how many messages all of them are behind."""
        header = GetConsumeStatsInBroker.decode({"isOrder": "false", **(request.command.ext or {})})
        found: list[dict[str, list[ConsumeStats]]] = []
        behind = in_flight = items = 0
        by_group = self._topics_by_group()
        async for group in in_slices(sorted(by_group), GROUPS_AT_ONCE):
            stats: list[ConsumeStats] = []
            for name in by_group[group]:
                config = self._topics.get(name)
                if config is None or (header.is_order and not config.order):
                    continue
                one = await self._progress(group, name)
                if one.offsets:
                    stats.append(one)
                    behind += _behind(one)
                    in_flight += _in_flight(one)
                    items += len(one.offsets)
            found.append({group: stats})
        body = await write_body(
            functools.partial(
                encode_consume_stats_list,
                found,
                broker_address=self._identity.address,
                total_diff=behind,
                total_inflight_diff=in_flight,
            ),
            items + len(found),
        )
        return reply_to(request.command, body=body)

    async def time_spans(self, request: Request) -> Command:
        """Return store times of each queue's oldest, newest and next message for a group."""
        header = QueryConsumeTimeSpanRequest.decode(request.command.ext)
        config = self._topic(header.topic)
        spans: list[QueueTimeSpan] = []
        async for queue_id in in_slices(range(config.write_queues), QUEUES_AT_ONCE):
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
        body = await write_body(lambda: encode_time_spans(spans), len(spans))
        return reply_to(request.command, body=body)

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

    async def _progress(self, group: str, topic: str) -> ConsumeStats:
        config = self._topics.get(topic)
        member = self._registry.consumer(group)
        if config is None or (member is not None and topic not in member.subscriptions):
            return ConsumeStats(offsets={})
        offsets: dict[MessageQueue, ConsumeOffset] = {}
        # Also the looks at many small topics come to a slice: nobody knows how many there are.
        await give_way()
        async for queue_id in in_slices(range(config.read_queues), QUEUES_AT_ONCE):
            done = max(0, self._offsets.query(group, topic, queue_id) or 0)
            stored_ms = self._time(topic, queue_id, done - 1) if done > 0 else 0
            offsets[self._queue(topic, queue_id)] = ConsumeOffset(
                broker_offset=max(0, self._store.max_offset(topic, queue_id)),
                consumer_offset=done,
                pull_offset=max(done, self._offsets.pulled(group, topic, queue_id) or 0),
                last_timestamp=max(0, stored_ms),
            )
        return ConsumeStats(offsets=offsets, consume_tps=self._stats.get_rate(group, topic))

    def _topics_by_group(self) -> dict[str, list[str]]:
        """Return every group, connected or with offsets, with the topics of its offsets."""
        found: dict[str, list[str]] = {group: [] for group in self._registry.consumer_groups}
        for topic, group in self._offsets.pairs():
            found.setdefault(group, []).append(topic)
        return found

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
