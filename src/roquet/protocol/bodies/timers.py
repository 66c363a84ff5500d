"""Waiting timer messages by topic (Java: TimerMetrics; 61 and the file `timermetrics`)."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from roquet.model.data_version import DataVersion
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.topics import data_version_json, data_version_of


class TopicTimers(NamedTuple):
    """One topic's waiting messages."""

    topic: str
    waiting: int
    timestamp: int
    """When the count last changed, Unix milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimerMetricsBody:
    """How many timers wait, by topic, with the version of the table."""

    topics: tuple[TopicTimers, ...] = ()
    version: DataVersion = dataclasses.field(default_factory=DataVersion)

    def encode(self) -> bytes:
        """Write it as Java does: one line, keys quoted."""
        return fastjson.standard(
            {
                "dataVersion": data_version_json(self.version),
                "timingCount": {
                    row.topic: {"count": row.waiting, "timeStamp": row.timestamp}
                    for row in self.topics
                },
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> TimerMetricsBody:
        """Read it. Raises JsonError."""
        source = fastjson.read_object(data)
        table = fields.obj(source, "timingCount")
        rows = ((topic, fields.obj(table, topic)) for topic in table)
        topics = tuple(
            TopicTimers(topic, fields.i64(row, "count"), fields.i64(row, "timeStamp"))
            for topic, row in rows
        )
        return cls(topics=topics, version=data_version_of(fields.obj(source, "dataVersion")))
