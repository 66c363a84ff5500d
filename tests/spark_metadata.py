"""What a cluster says to the driver, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from roquet.model.route import BrokerData
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.spark.cluster.connections import Connections
from roquet.spark.cluster.metadata import Metadata, View
from roquet.spark.options import Wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.spark.offsets import Bounds, QueueKey
    from roquet.spark.options import Topics

ADDRESSES = {"b0": ("127.0.0.1:1",), "b1": ("127.0.0.1:2", "127.0.0.1:3")}


class Known(Metadata):
    """Answers with `held`, as a test changes it."""

    def __init__(self, held: dict[QueueKey, Bounds]) -> None:
        super().__init__(Wire(name_servers=()), Connections(Wire(name_servers=())))
        self.held = held
        self.size = 100.0
        self.views = 0
        self.times: dict[QueueKey, int] = {}
        """Store time of the first message of a queue; those that follow are a millisecond apart."""
        self.absent: tuple[str, ...] = ()
        self.away: set[str] = set()
        """Brokers that no name server knows; they are back once somebody asks who is registered."""

    @override
    def view(self, topics: Topics, *, missing_ok: bool = False) -> View:
        self.views += 1
        held = {q: it for q, it in sorted(self.held.items()) if q.broker not in self.away}
        last = {queue: self.time(queue, it.high - 1) for queue, it in held.items() if it.high}
        there = {name: it for name, it in ADDRESSES.items() if name not in self.away}
        return View(held, there, stored=last, absent=self.absent)

    @override
    def clusters(self) -> ClusterInfo:
        there = [it for it in ADDRESSES if it not in self.away]
        self.away.clear()
        brokers = {it: BrokerData(cluster="c", broker_name=it, addresses={}) for it in there}
        return ClusterInfo(brokers=brokers, clusters={})

    @override
    def confirmed(self, view: View, queues: Iterable[QueueKey]) -> View:
        return view

    @override
    def stored_at(
        self, wanted: Mapping[QueueKey, int], view: View, group: str
    ) -> dict[QueueKey, int]:
        return {
            queue: self.time(queue, offset)
            for queue, offset in wanted.items()
            if self.held[queue].low <= offset < self.held[queue].high
        }

    def time(self, queue: QueueKey, offset: int) -> int:
        return self.times.get(queue, 1) + offset

    @override
    def mean_size(
        self, queue: QueueKey, offset: int, addresses: tuple[str, ...], group: str
    ) -> float | None:
        return self.size


class Asked(Known):
    """What a cluster says, with a list of what it was asked about."""

    def __init__(self, held: dict[QueueKey, Bounds], found: int = 0) -> None:
        super().__init__(held)
        self.found = found
        self.asked: list[Any] = []
        self.closes = 0

    @override
    def close(self) -> None:
        self.closes += 1
        super().close()

    @override
    def offset_at(self, queue: QueueKey, timestamp_ms: int, addresses: tuple[str, ...]) -> int:
        self.asked.append((queue, timestamp_ms, addresses))
        return self.found

    @override
    def stored_at(
        self, wanted: Mapping[QueueKey, int], view: View, group: str
    ) -> dict[QueueKey, int]:
        self.asked.append((dict(wanted), group))
        return super().stored_at(wanted, view, group)
