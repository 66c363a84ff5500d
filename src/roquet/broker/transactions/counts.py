"""How many half messages of each topic are open, and what became of the others.

The file `transactionMetrics` is Java's, on one line (spec: store §8).
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

from roquet.model.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.base.clock import Clock
    from roquet.service.metrics import Distribution, Metrics
    from roquet.store.tables.files import JsonFile

FINISHED_S = (5, 60, 600, 3600, 43_200, 86_400)
"""Upper bounds of the classes of transactions by how long they were open, seconds."""
TOPICS_MAX = 100_000
"""Topics counted one by one."""


class TransactionCounts:
    """Open half messages by topic; counts of commits and rollbacks since the start."""

    def __init__(self, file: JsonFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._open: dict[str, tuple[int, int]] = {}
        self._changes = 0
        self._saved = 0
        self.commits: dict[str, int] = {}
        self.rollbacks: dict[str, int] = {}
        self._finished: Distribution | None = None

    def watch(self, metrics: Metrics) -> None:
        """Show the counts under RocketMQ's names."""
        for name, text, read, counts in (
            ("half_messages", "Half messages whose outcome is open", self.open, False),
            ("commit_messages", "Transactions committed", lambda: self.commits, True),
            ("rollback_messages", "Transactions rolled back", lambda: self.rollbacks, True),
        ):
            rows = functools.partial(_rows, read)
            metrics.standard(name, text, ("topic",), rows, counts=counts)
        self._finished = metrics.distribution(
            # As with Java, the unit of the name is not that of the numbers.
            "finish_message_latency_milliseconds",
            "How long transactions were open until they were committed, seconds",
            ("topic",),
            FINISHED_S,
        )

    def open(self) -> dict[str, int]:
        """Return the open half messages by topic."""
        return {topic: count for topic, (count, _) in self._open.items()}

    def opened(self, topic: str, change: int = 1) -> None:
        """Count half messages of a topic; `change` is negative when they are settled."""
        known = self._open.get(topic)
        if known is None and len(self._open) >= TOPICS_MAX:
            return
        count = max(0, (known[0] if known else 0) + change)
        self._open[topic] = (count, self._clock.now_ms())
        self._changes += 1

    def settled(self, topic: str, *, committed: bool, open_ms: int) -> None:
        """Count a commit or a rollback of a half message that was born `open_ms` ago."""
        if committed and self._finished is not None:
            self._finished.observe((topic,), max(0, open_ms) // 1000)
        self.opened(topic, -1)
        table = self.commits if committed else self.rollbacks
        if topic in table or len(table) < TOPICS_MAX:
            table[topic] = table.get(topic, 0) + 1

    def reset(self) -> None:
        """Forget what is open, before it is counted anew."""
        self._open = {topic: (0, self._clock.now_ms()) for topic in self._open}
        self._changes += 1

    async def persist(self) -> None:
        """Write the file; returns at once when nothing has changed."""
        async with self._file.writing:
            changes = self._changes
            if changes != self._saved:
                body = self._body()
                await self._file.save(lambda: body)
                self._saved = changes

    def _body(self) -> bytes:
        version = DataVersion(timestamp=self._clock.now_ms(), counter=self._changes)
        table = {
            "dataVersion": {
                "counter": version.counter,
                "stateVersion": version.state_version,
                "timestamp": version.timestamp,
            },
            "transactionCount": {
                topic: {"count": count, "timeStamp": at_ms}
                for topic, (count, at_ms) in sorted(self._open.items())
            },
        }
        return json.dumps(table, separators=(",", ":")).encode()


def _rows(read: Callable[[], Mapping[str, int]]) -> list[tuple[tuple[str, ...], float]]:
    return [((topic,), float(count)) for topic, count in read().items()]
