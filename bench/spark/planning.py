"""What the driver does for a micro-batch over very many queues, without a cluster.

`python -m bench.spark.planning [QUEUES]` prints it and writes bench/results/spark-planning-*.json.
"""

from __future__ import annotations

import json
import resource
import time
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from bench import result_files
from roquet.spark.cluster.connections import Connections
from roquet.spark.cluster.metadata import Metadata, View
from roquet.spark.offsets import Bounds, QueueKey, to_json
from roquet.spark.options import SourceOptions, Topics, Wire
from roquet.spark.reading.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUES_A_TOPIC = 8
TOPICS_A_BROKER = 125


class Simulated(Metadata):
    """Knows `count` queues, eight a topic and a thousand a broker, 100 messages more each look."""

    def __init__(self, count: int) -> None:
        """Ask nobody."""
        super().__init__(Wire(name_servers=()), Connections(Wire(name_servers=())))
        self._queues = [
            QueueKey(
                f"topic-{n // QUEUES_A_TOPIC:06}",
                f"broker-{n // (QUEUES_A_TOPIC * TOPICS_A_BROKER)}",
                n % QUEUES_A_TOPIC,
            )
            for n in range(count)
        ]
        self._addresses = {queue.broker: ("127.0.0.1:10911",) for queue in self._queues}
        self._end = 1000

    @override
    def view(self, topics: Topics, *, missing_ok: bool = False) -> View:
        self._end += 100
        bounds = dict.fromkeys(self._queues, Bounds(0, self._end))
        stored = dict.fromkeys(self._queues, self._stored_ms(self._end - 1))
        return View(bounds, self._addresses, stored=stored)

    @override
    def stored_at(
        self, wanted: Mapping[QueueKey, int], view: View, group: str
    ) -> dict[QueueKey, int]:
        return {queue: self._stored_ms(offset) for queue, offset in wanted.items()}

    @staticmethod
    def _stored_ms(offset: int) -> int:
        return 1_700_000_000_000 + offset


def measure(count: int) -> dict[str, float]:
    """Plan a first and a second micro-batch; seconds of CPU, bytes of offsets, peak memory."""
    given = {"nameServers": "a:1", "subscribePattern": ".*", "startingOffsets": "earliest"}
    reader = StreamReader(SourceOptions.parse(given, streaming=True))
    reader._metadata = Simulated(count)  # noqa: SLF001
    limit: Any = reader.getDefaultReadLimit()
    start = time.process_time()
    initial = reader.initialOffset()
    first = reader.latestOffset(initial, limit)
    # Spark keeps offsets as text.
    first = json.loads(json.dumps(first))
    parts: Any = reader.partitions(initial, first)
    assert sum(len(part.ranges) for part in parts) == count
    begun = time.process_time()
    second = json.loads(json.dumps(reader.latestOffset(first, limit)))
    parts = reader.partitions(first, second)
    assert sum(len(part.ranges) for part in parts) == count
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "queues": count,
        "first_cpu_s": begun - start,
        "next_cpu_s": done - begun,
        "offsets_mib": len(json.dumps(to_json({}) | second)) / 2**20,
        "peak_rss_mib": peak,
    }


if __name__ == "__main__":
    import sys

    about = result_files.circumstances("spark-planning", "bench.spark.planning")
    found = measure(int((sys.argv[1:] or ["1000000"])[0]))
    print(json.dumps(found, indent=1))
    print(f"written to {result_files.save({**about, **found})}")
