"""The small files of a rebuilt store: topics, delay offsets, checkpoint."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from roquet.base.durable import write_synced
from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.protocol import names
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.protocol.bodies.topics import TopicTableBody

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from roquet.spark.rebuilding.pieces import Last
    from roquet.spark.rebuilding.queues import QueuePlan

CHECKPOINT_SIZE: Final = 4096


def topics_of(queues: Iterable[QueuePlan]) -> dict[str, TopicConfig]:
    """Return the topics that consumers can see, with as many queues as the log tells of.

    Topics that every broker makes for itself are not among them.
    """
    counts: dict[str, int] = {}
    for queue in queues:
        if not names.is_system_topic(queue.topic):
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    return {
        topic: TopicConfig(name=topic, read_queues=count, write_queues=count)
        for topic, count in sorted(counts.items())
    }


def write_tables(
    root: Path, topics: Mapping[str, TopicConfig], delays: Mapping[int, int], last: Last
) -> None:
    """Write `config/topics.json`, `config/delayOffset.json` and `checkpoint`. Raises OSError."""
    version = DataVersion(timestamp=last.time_ms, counter=1)
    folder = root / "config"
    folder.mkdir(parents=True, exist_ok=True)
    table = TopicTableBody(topics=topics, version=version)
    write_synced(folder / "topics.json", table.encode_file())
    if delays:
        body = DelayOffsetBody(offsets=delays, version=version)
        write_synced(folder / "delayOffset.json", body.encode_file())
    numbers = struct.pack(">6q", last.time_ms, last.time_ms, last.time_ms, 0, 0, last.begin)
    write_synced(root / "checkpoint", numbers.ljust(CHECKPOINT_SIZE, b"\0"))
