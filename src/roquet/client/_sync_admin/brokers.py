"""Blocking administration of brokers: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet import admin
    from roquet.protocol.bodies.clients import Connection, ProducerInfo
    from roquet.protocol.bodies.replication import HaStatusBody
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import BrokerStatsItem, ConsumeStatsList, GroupLag
    from roquet.protocol.bodies.timers import TimerMetricsBody
    from roquet.service.loop_thread import LoopThread


class Brokers:
    """Brokers of a cluster: one is named by its name (then its master) or its address."""

    def __init__(self, inner: admin.Brokers, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def cluster(self) -> ClusterInfo:
        """Return all brokers that the name server knows. Raises Unreachable."""
        return self._loop.run(self._inner.cluster())

    def masters(self, *, cluster: str | None = None) -> dict[str, str]:
        """Return broker name -> address of all masters, or of a cluster's.

        Raises NotFound where there is none, Unreachable.
        """
        return self._loop.run(self._inner.masters(cluster=cluster))

    def runtime(self, broker: str) -> dict[str, str]:
        """Return what a broker says about itself, by key. Raises UsageError, Refused, Unreachable.

        The keys are those of RocketMQ's `brokerStatus`.
        """
        return self._loop.run(self._inner.runtime(broker))

    def config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings, by Java name. Raises as `runtime` does."""
        return self._loop.run(self._inner.config(broker))

    def set_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker, all or none. Raises as `runtime` does."""
        self._loop.run(self._inner.set_config(broker, changes))

    def set_role(self, broker: str, role: str, broker_id: int) -> str:
        """Have a running broker take a role, `ASYNC_MASTER`, `SYNC_MASTER` or `SLAVE`.

        A master's `broker_id` is 0, a slave's is not. Returns what went wrong without making the
        change fail, mostly nothing. A change takes seconds when a slave or a request is slow: it
        goes on when the answer comes too late. Raises as `runtime` does, and UsageError for a
        master beside one that its group has and that answers.
        """
        return self._loop.run(self._inner.set_role(broker, role, broker_id))

    def ha_status(self, broker: str) -> HaStatusBody:
        """Return a broker's replication at this moment. Raises as `runtime` does."""
        return self._loop.run(self._inner.ha_status(broker))

    def statistics(self, broker: str, name: str, key: str) -> dict[str, BrokerStatsItem]:
        """Return sums of the last minute, hour and day of one set, `TOPIC_PUT_NUMS` say, and key.

        The keys are statsMinute, statsHour and statsDay. Raises as `runtime` does.
        """
        return self._loop.run(self._inner.statistics(broker, name, key))

    def consume_stats(self, broker: str, *, ordered: bool = False) -> ConsumeStatsList:
        """Return how far all groups are on a broker; `ordered`: in ordered topics alone.

        Raises as `runtime` does.
        """
        return self._loop.run(self._inner.consume_stats(broker, ordered=ordered))

    def group_lags(self, broker: str) -> dict[str, GroupLag] | None:
        """Return by how many messages each group is behind on a broker, by one request.

        None of a broker that answers no such question, as RocketMQ's. Raises as `runtime` does.
        """
        return self._loop.run(self._inner.group_lags(broker))

    def timers(self, broker: str) -> TimerMetricsBody:
        """Return how many timer messages wait, by topic. Raises as `runtime` does."""
        return self._loop.run(self._inner.timers(broker))

    def producers(self, broker: str) -> dict[str, tuple[ProducerInfo, ...]]:
        """Return the producers that are connected, by group. Raises as `runtime` does."""
        return self._loop.run(self._inner.producers(broker))

    def producer_connections(self, broker: str, group: str) -> tuple[Connection, ...]:
        """Return the members of one producer group. Raises as `runtime` does."""
        return self._loop.run(self._inner.producer_connections(broker, group))

    def drain(self, broker_name: str) -> int:
        """Have all name servers say that nobody writes to a broker; return how many topics.

        Consumers go on. The change is lost when the broker or a name server starts anew. Raises
        UsageError for an unknown name, Refused, Unreachable.
        """
        return self._loop.run(self._inner.drain(broker_name))

    def drained(self) -> frozenset[str]:
        """Return the names of brokers that nobody writes to, as name servers say.

        Raises Unreachable.
        """
        return self._loop.run(self._inner.drained())

    def departed(self) -> tuple[str, ...]:
        """Return the names of brokers that left and have not come back, as the name server recalls.

        None for a name server that does not keep who left (RocketMQ's), and when no broker at all
        is there any more. Raises Unreachable.
        """
        return self._loop.run(self._inner.departed())

    def forget(self, broker_name: str) -> None:
        """Have all name servers miss a broker no more that left. Raises Refused, Unreachable."""
        self._loop.run(self._inner.forget(broker_name))

    def undrain(self, broker_name: str) -> int:
        """Undo `drain`; return how many topics. Raises as `drain` does."""
        return self._loop.run(self._inner.undrain(broker_name))

    def clean_queues(self, broker: str) -> None:
        """Delete consume-queue files whose messages are gone. Raises as `runtime` does."""
        self._loop.run(self._inner.clean_queues(broker))

    def clean_topics(self, broker: str) -> None:
        """Delete queues of topics that are not there any more. Raises as `runtime` does."""
        self._loop.run(self._inner.clean_topics(broker))

    def delete_expired(self, broker: str) -> None:
        """Delete files of the log that are older than the store keeps. Raises as `runtime` does."""
        self._loop.run(self._inner.delete_expired(broker))

    def set_master_flushed(self, broker: str, offset: int) -> None:
        """Have a slave believe that its master's log is durable up to an offset.

        Raises as `runtime` does.
        """
        self._loop.run(self._inner.set_master_flushed(broker, offset))

    def move_pop_records(self, broker: str) -> None:
        """Have a broker move records of pops from its key-value store to files.

        A broker that keeps them in files does nothing. Raises as `runtime` does.
        """
        self._loop.run(self._inner.move_pop_records(broker))
