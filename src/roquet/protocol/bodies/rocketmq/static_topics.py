"""Static topics: a fixed number of logical queues, each made of parts of brokers' queues.

The newest part of a queue is written to; a queue that moved has older parts, whose messages stay
where they are. Each broker keeps the parts of the queues that it has or had.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.topics import topic_json, topic_of
from roquet.protocol.fastjson_reader import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.model.topic import TopicConfig
    from roquet.protocol.bodies.fields import Json

UNDECIDED = -1
SCOPE = "__global__"
CREATE, REMAP = "CREATE_OR_UPDATE", "REMAPPING"
_QUEUES_MAX = 65_536


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Part of a logical queue: a queue of a broker (Java: LogicQueueMappingItem)."""

    generation: int
    """Grows from part to part of a logical queue."""
    queue_id: int
    broker_name: str
    first: int
    """Logical offset of its first message; UNDECIDED until the part before is at its end."""
    start: int = 0
    """Offset of its first message in the broker's queue."""
    end: int = UNDECIDED
    since_ms: int = UNDECIDED
    until_ms: int = UNDECIDED

    def to_json(self) -> Json:
        """Return the fields."""
        return {
            "bname": self.broker_name,
            "endOffset": self.end,
            "gen": self.generation,
            "logicOffset": self.first,
            "queueId": self.queue_id,
            "startOffset": self.start,
            "timeOfEnd": self.until_ms,
            "timeOfStart": self.since_ms,
        }

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        return cls(
            generation=fields.i32(source, "gen"),
            queue_id=fields.i32(source, "queueId"),
            broker_name=fields.text(source, "bname"),
            first=fields.i64(source, "logicOffset"),
            start=fields.i64(source, "startOffset"),
            end=fields.i64(source, "endOffset", UNDECIDED),
            since_ms=fields.i64(source, "timeOfStart", UNDECIDED),
            until_ms=fields.i64(source, "timeOfEnd", UNDECIDED),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StaticMapping:
    """What one broker keeps of a static topic's queues (Java: TopicQueueMappingDetail)."""

    topic: str
    broker_name: str
    total: int
    """Logical queues of the topic at all brokers."""
    epoch: int
    """The same at all brokers unless a change was cut short."""
    scope: str = SCOPE
    dirty: bool = False
    queues: Mapping[int, tuple[Part, ...]] = dataclasses.field(
        default_factory=dict[int, tuple[Part, ...]]
    )
    """Logical queue -> parts, the newest last."""

    def to_json(self) -> Json:
        """Return the fields; the broker makes its table of current queues itself."""
        queues: dict[Any, Any] = {
            queue: [part.to_json() for part in parts] for queue, parts in self.queues.items()
        }
        return {
            "bname": self.broker_name,
            "currIdMap": {},
            "dirty": self.dirty,
            "epoch": self.epoch,
            "hostedQueues": queues,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total,
        }

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        hosted = fields.obj(source, "hostedQueues")
        if len(hosted) > _QUEUES_MAX:
            raise JsonError(f"hostedQueues: {len(hosted)} are more than {_QUEUES_MAX}")
        queues = {
            fields.number(queue, "hostedQueues"): tuple(
                map(Part.of_json, fields.objects(hosted, queue))
            )
            for queue in hosted
        }
        return cls(
            topic=fields.text(source, "topic"),
            broker_name=fields.text(source, "bname"),
            total=fields.i32(source, "totalQueues"),
            epoch=fields.i64(source, "epoch"),
            scope=fields.text(source, "scope", SCOPE),
            dirty=fields.boolean(source, "dirty"),
            # A queue without parts is none.
            queues={queue: parts for queue, parts in queues.items() if parts},
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StaticTopic:
    """A topic as one broker has it (Java: TopicConfigAndQueueMapping)."""

    config: TopicConfig
    mapping: StaticMapping | None
    """None of an ordinary topic."""

    def to_json(self) -> Json:
        """Return the fields."""
        mapping = {} if self.mapping is None else {"mappingDetail": self.mapping.to_json()}
        return {**topic_json(self.config), **mapping}

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        mapping = source.get("mappingDetail")
        return cls(
            config=topic_of(source),
            mapping=None
            if mapping is None
            else StaticMapping.of_json(fields.as_object(mapping, "mappingDetail")),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StaticPlan:
    """A static topic at all of its brokers (Java: TopicRemappingDetailWrapper)."""

    topic: str
    kind: str
    epoch: int
    brokers: Mapping[str, StaticTopic]
    into: frozenset[str] = frozenset()
    """Brokers that queues move to."""
    out_of: frozenset[str] = frozenset()
    """Brokers that queues leave."""

    def encode(self) -> bytes:
        """Write the file that RocketMQ's tool writes before and after a change."""
        return fastjson.java(
            {
                "brokerConfigMap": {name: it.to_json() for name, it in self.brokers.items()},
                "brokerToMapIn": sorted(self.into),
                "brokerToMapOut": sorted(self.out_of),
                "epoch": self.epoch,
                "topic": self.topic,
                "type": self.kind,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read such a file. Raises JsonError."""
        source = fastjson.read_object(data)
        table = fields.obj(source, "brokerConfigMap")
        return cls(
            topic=fields.text(source, "topic"),
            kind=fields.text(source, "type"),
            epoch=fields.i64(source, "epoch"),
            brokers={name: StaticTopic.of_json(fields.obj(table, name)) for name in table},
            into=frozenset(fields.texts(source, "brokerToMapIn")),
            out_of=frozenset(fields.texts(source, "brokerToMapOut")),
        )


def decode_static_topic(data: bytes) -> StaticTopic:
    """Read the answer to GET_TOPIC_CONFIG (351) with the mapping. Raises JsonError."""
    return StaticTopic.of_json(fastjson.read_object(data))


def encode_mapping(mapping: StaticMapping) -> bytes:
    """Write the body of UPDATE_AND_CREATE_STATIC_TOPIC (513)."""
    return fastjson.java(mapping.to_json())
