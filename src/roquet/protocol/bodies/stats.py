"""What tools ask about progress: 202, 208, 317, 303, 315, 28, 307, 309."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.fields import Json


def encode_kv_table(table: Mapping[str, str]) -> bytes:
    """Write a KVTable (28, 219, answer to 103)."""
    return fastjson.java({"table": dict(table)})


def decode_kv_table(data: bytes) -> dict[str, str]:
    """Read a KVTable. Raises JsonError."""
    return fields.text_map(fastjson.read_object(data), "table")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicOffset:
    """One queue's bounds. `last_update` is the last message's store time, 0 when there is none."""

    min_offset: int
    max_offset: int
    last_update: int

    def row(self, queue: str) -> str:
        """Write what the table of a TopicStats has of a queue, given as JSON."""
        return (
            f'{queue}:{{"lastUpdateTimestamp":{self.last_update},'
            f'"maxOffset":{self.max_offset},"minOffset":{self.min_offset}}}'
        )


def topic_stats_body(rows: bytes, put_tps: float) -> bytes:
    """Write the answer to GET_TOPIC_STATS_INFO (202) around its rows, separated by commas."""
    return b'{"offsetTable":{%b},"topicPutTps":%b}' % (rows, fastjson.java(float(put_tps)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """Answer to GET_TOPIC_STATS_INFO (202)."""

    offsets: Mapping[MessageQueue, TopicOffset]
    put_tps: float = 0.0

    def encode(self) -> bytes:
        """Write the body."""
        rows = ",".join(it.row(_queue(queue)) for queue, it in sorted(self.offsets.items()))
        return topic_stats_body(rows.encode(), self.put_tps)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_keyed(data)
        return cls(
            offsets={
                queue: TopicOffset(
                    min_offset=fields.i64(item, "minOffset"),
                    max_offset=fields.i64(item, "maxOffset"),
                    last_update=fields.i64(item, "lastUpdateTimestamp"),
                )
                for queue, item in fields.queue_items(source, "offsetTable")
            },
            put_tps=fields.real(source, "topicPutTps"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOffset:
    """One queue's progress. `last_timestamp` is the store time of the last consumed message."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int = 0
    last_timestamp: int = 0

    def row(self, queue: str) -> str:
        """Write what the table of a ConsumeStats has of a queue, given as JSON."""
        return (
            f'{queue}:{{"brokerOffset":{self.broker_offset},'
            f'"consumerOffset":{self.consumer_offset},'
            f'"lastTimestamp":{self.last_timestamp},"pullOffset":{self.pull_offset}}}'
        )


def consume_stats_body(rows: bytes, consume_tps: float) -> bytes:
    """Write the answer to GET_CONSUME_STATS (208) around its rows, separated by commas."""
    return b'{"consumeTps":%b,"offsetTable":{%b}}' % (fastjson.java(float(consume_tps)), rows)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStats:
    """Answer to GET_CONSUME_STATS (208)."""

    offsets: Mapping[MessageQueue, ConsumeOffset]
    consume_tps: float = 0.0

    def encode(self) -> bytes:
        """Write the body."""
        rows = ",".join(it.row(_queue(queue)) for queue, it in sorted(self.offsets.items()))
        return consume_stats_body(rows.encode(), self.consume_tps)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        return cls.of_json(fastjson.read_keyed(data))

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        return cls(
            offsets={
                queue: ConsumeOffset(
                    broker_offset=fields.i64(item, "brokerOffset"),
                    consumer_offset=fields.i64(item, "consumerOffset"),
                    pull_offset=fields.i64(item, "pullOffset"),
                    last_timestamp=fields.i64(item, "lastTimestamp"),
                )
                for queue, item in fields.queue_items(source, "offsetTable")
            },
            consume_tps=fields.real(source, "consumeTps"),
        )


def consume_stats_list_body(
    groups: Mapping[str, Iterable[bytes]],
    *,
    broker_address: str,
    total_diff: int,
    total_inflight_diff: int = 0,
) -> bytes:
    """Write the answer to GET_BROKER_CONSUME_STATS (317) around what `consume_stats_body` gave."""
    listed = b",".join(
        b"{%b:[%b]}" % (fastjson.quoted(name).encode(), b",".join(stats))
        for name, stats in groups.items()
    )
    totals = f'"totalDiff":{total_diff},"totalInflightDiff":{total_inflight_diff}'.encode()
    address = fastjson.quoted(broker_address).encode()
    return b'{"brokerAddr":%b,"consumeStatsList":[%b],%b}' % (address, listed, totals)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatsList:
    """How far every group of a broker is in each of its topics (Java: ConsumeStatsList)."""

    groups: tuple[tuple[str, tuple[ConsumeStats, ...]], ...]
    """Group and its topics, in the broker's order."""
    total_diff: int = 0

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the answer to 317. Raises JsonError."""
        source = fastjson.read_keyed(data)
        return cls(
            groups=tuple(
                (group, tuple(ConsumeStats.of_json(it) for it in fields.objects(listed, group)))
                for listed in fields.objects(source, "consumeStatsList")
                for group in listed
            ),
            total_diff=fields.i64(source, "totalDiff"),
        )


GROUP_LAGS = "groupLags"
"""Key of a broker's runtime information: whether it answers 317 with `lagOnly`."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupLag:
    """How far one group is behind on a broker, and how many of its members are connected there."""

    lag: int
    members: int


def encode_group_lags(groups: Mapping[str, GroupLag]) -> bytes:
    """Write the answer to 317 with `lagOnly`."""
    rows = {name: {"lag": it.lag, "members": it.members} for name, it in groups.items()}
    return fastjson.java({"groups": rows})


def decode_group_lags(data: bytes) -> dict[str, GroupLag]:
    """Read the answer to 317 with `lagOnly`. Raises JsonError."""
    found: dict[str, GroupLag] = {}
    for name, source in fields.obj(fastjson.read_object(data), "groups").items():
        one = fields.as_object(source, name)
        found[name] = GroupLag(fields.i64(one, "lag"), fields.i64(one, "members"))
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueTimeSpan:
    """Store times of one queue's oldest, newest and next message, Unix milliseconds (303)."""

    min_time: int
    max_time: int
    consume_time: int
    delay_ms: int

    def row(self, queue: str) -> str:
        """Write what the list of time spans has of a queue, given as JSON."""
        return (
            f'{{"consumeTimeStamp":{self.consume_time},"delayTime":{self.delay_ms},'
            f'"maxTimeStamp":{self.max_time},"messageQueue":{queue},'
            f'"minTimeStamp":{self.min_time}}}'
        )


def time_spans_body(rows: bytes) -> bytes:
    """Write the answer to QUERY_CONSUME_TIME_SPAN (303) around its rows, separated by commas."""
    return b'{"consumeTimeSpanSet":[%b]}' % rows


def encode_broker_stats(stats: Mapping[str, tuple[int, float, float]]) -> bytes:
    """Write the answer to VIEW_BROKER_STATS_DATA (315).

    `stats` has the keys statsMinute, statsHour and statsDay with (sum, tps, average put time).
    """
    return fastjson.java(
        {
            name: {"avgpt": float(average), "sum": total, "tps": float(tps)}
            for name, (total, tps, average) in stats.items()
        }
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatsItem:
    """What was counted in a minute, an hour or a day (Java: BrokerStatsItem)."""

    total: int
    tps: float
    average_ms: float
    """Mean of what was measured with each count."""


def decode_broker_stats(data: bytes) -> dict[str, BrokerStatsItem]:
    """Read the answer to 315: statsMinute, statsHour and statsDay. Raises JsonError."""
    source = fastjson.read_object(data)
    found: dict[str, BrokerStatsItem] = {}
    for name in ("statsMinute", "statsHour", "statsDay"):
        item = fields.obj(source, name)
        found[name] = BrokerStatsItem(
            total=fields.i64(item, "sum"),
            tps=fields.real(item, "tps"),
            average_ms=fields.real(item, "avgpt"),
        )
    return found


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedDirectly:
    """Answer of a client to CONSUME_MESSAGE_DIRECTLY (309)."""

    result: str
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL."""
    spent_ms: int
    remark: str | None = None
    order: bool = False
    auto_commit: bool = True

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "autoCommit": self.auto_commit,
                "consumeResult": self.result,
                "order": self.order,
                "remark": self.remark,
                "spentTimeMills": self.spent_ms,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        return cls(
            result=fields.text(source, "consumeResult"),
            spent_ms=fields.i64(source, "spentTimeMills"),
            remark=fields.optional_text(source, "remark"),
            order=fields.boolean(source, "order"),
            auto_commit=fields.boolean(source, "autoCommit", default=True),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunningInfo:
    """What a consumer says of itself (307). Brokers pass the body on unread."""

    properties: Mapping[str, str]
    subscriptions: tuple[Json, ...]
    queues: Mapping[MessageQueue, Json]
    """Java: mqTable; the fields of ProcessQueueInfo."""
    status: Mapping[str, Json]
    """Topic -> the fields of ConsumeStatus."""
    user_info: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """What the application says of itself."""
    stacks: str | None = None
    """Stacks of its threads, where they were asked for."""

    def encode(self) -> bytes:
        """Write the body."""
        table: dict[Any, Json] = {fields.queue_key(queue): it for queue, it in self.queues.items()}
        return fastjson.java(
            {
                **({} if self.stacks is None else {"jstack": self.stacks}),
                "mqPopTable": {},
                "mqTable": table,
                "properties": dict(self.properties),
                "statusTable": dict(self.status),
                "subscriptionSet": list(self.subscriptions),
                "userConsumerInfo": dict(self.user_info),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_keyed(data)
        status = fields.obj(source, "statusTable")
        return cls(
            properties=fields.text_map(source, "properties"),
            subscriptions=tuple(fields.objects(source, "subscriptionSet")),
            queues={
                queue: fields.as_object(item, "mqTable")
                for queue, item in fields.queue_items(source, "mqTable")
            },
            status={topic: fields.as_object(item, topic) for topic, item in status.items()},
            user_info=fields.text_map(source, "userConsumerInfo"),
            stacks=fields.optional_text(source, "jstack"),
        )


def _queue(queue: MessageQueue) -> str:
    return fields.QueueText(queue.topic, queue.broker_name).of(queue.queue_id)
