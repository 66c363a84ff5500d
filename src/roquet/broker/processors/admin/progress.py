"""How far things are: topics (202), groups (208, 317, 303), who reads what (300, 343), rates (315).

Spec: broker (b) "Admin processor", wire §19.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.base.limits import ANSWER_SIZE_MAX
from roquet.broker.processors.admin.common import QUEUES_AT_ONCE
from roquet.protocol.bodies.fields import QueueText
from roquet.protocol.bodies.groups import encode_group_list
from roquet.protocol.bodies.stats import (
    ConsumeOffset,
    QueueTimeSpan,
    TopicOffset,
    consume_stats_body,
    consume_stats_list_body,
    encode_broker_stats,
    time_spans_body,
    topic_stats_body,
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
from roquet.service.slices import in_slices, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        queues = max(config.read_queues, config.write_queues)
        rows = await write_rows(self._bounds(name, queues), QUEUES_AT_ONCE)
        body = topic_stats_body(rows, self._stats.put_rate(name))
        return reply_to(request.command, body=body)

    def _bounds(self, topic: str, queues: int) -> Iterator[str]:
        text = QueueText(topic, self._identity.name)
        for queue_id in range(queues):
            last = self._store.max_offset(topic, queue_id)
            found = TopicOffset(
                min_offset=max(0, self._store.min_offset(topic, queue_id)),
                max_offset=max(0, last),
                last_update=max(0, self._time(topic, queue_id, last - 1)),
            )
            yield found.row(text.of(queue_id))

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
        parts: list[bytes] = []
        size = 0
        tps = 0.0
        async for name in in_slices(dict.fromkeys(wanted), QUEUES_AT_ONCE):
            one = await self._progress(group, name)
            if one.rows:
                parts.append(one.rows)
                size = _checked_size(size + len(one.rows))
            tps += one.tps
        body = consume_stats_body(b",".join(parts), tps)
        return reply_to(request.command, body=body)

    async def every_group(self, request: Request) -> Command:
        """Return how far every group is, and by how many messages all of them are behind."""
        header = GetConsumeStatsInBroker.decode({"isOrder": "false", **(request.command.ext or {})})
        found: dict[str, list[bytes]] = {}
        behind = in_flight = size = 0
        groups = {*self._registry.consumer_groups, *self._offsets.groups()}
        async for group in in_slices(sorted(groups), GROUPS_AT_ONCE):
            found[group] = []
            for name in self._offsets.topics_of(group):
                config = self._topics.get(name)
                if config is None or (header.is_order and not config.order):
                    continue
                one = await self._progress(group, name)
                if one.rows:
                    found[group].append(consume_stats_body(one.rows, one.tps))
                    size = _checked_size(size + len(one.rows))
                    behind += one.behind
                    in_flight += one.in_flight
        body = consume_stats_list_body(
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
        spans = self._spans(header.group, header.topic, config.write_queues)
        body = time_spans_body(await write_rows(spans, QUEUES_AT_ONCE))
        return reply_to(request.command, body=body)

    def _spans(self, group: str, topic: str, queues: int) -> Iterator[str]:
        text = QueueText(topic, self._identity.name)
        for queue_id in range(queues):
            low = self._store.min_offset(topic, queue_id)
            high = self._store.max_offset(topic, queue_id)
            done = self._offsets.query(group, topic, queue_id) or 0
            at = self._time(topic, queue_id, done - 1) if done > 0 else -1
            oldest = self._time(topic, queue_id, low)
            consumed = at if at > 0 else oldest
            is_done = done >= high
            span = QueueTimeSpan(
                min_time=oldest,
                max_time=self._time(topic, queue_id, high - 1),
                consume_time=consumed,
                delay_ms=0 if is_done else max(0, self._clock.now_ms() - max(consumed, 0)),
            )
            yield span.row(text.of(queue_id))

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

    async def _progress(self, group: str, topic: str) -> _Progress:
        config = self._topics.get(topic)
        member = self._registry.consumer(group)
        if config is None or (member is not None and topic not in member.subscriptions):
            return _Progress()
        found = _Progress(tps=self._stats.get_rate(group, topic))
        # Also the looks at many small topics come to a slice: nobody knows how many there are.
        await give_way()
        rows = self._offsets_of(group, topic, config.read_queues, found)
        found.rows = await write_rows(rows, QUEUES_AT_ONCE)
        return found

    def _offsets_of(self, group: str, topic: str, queues: int, sums: _Progress) -> Iterator[str]:
        text = QueueText(topic, self._identity.name)
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
            yield one.row(text.of(queue_id))

    def _topic(self, name: str) -> TopicConfig:
        config = self._topics.get(name)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return config

    def _time(self, topic: str, queue_id: int, offset: int) -> int:
        return self._store.store_time(topic, queue_id, offset) if offset >= 0 else -1


@dataclasses.dataclass(slots=True)
class _Progress:
    """How far a group is in a topic: rows of its queues, and sums over them."""

    rows: bytes = b""
    tps: float = 0.0
    behind: int = 0
    in_flight: int = 0


def _checked_size(size: int) -> int:
    """Return the size of an answer. Raises Refused when no frame could carry it."""
    if size > ANSWER_SIZE_MAX:
        what = f"the answer has more than {ANSWER_SIZE_MAX} bytes: ask for one topic at a time"
        raise Refused(ResponseCode.SYSTEM_ERROR, what)
    return size
