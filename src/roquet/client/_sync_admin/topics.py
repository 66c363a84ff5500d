"""Blocking administration of topics: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.model.topic import READ_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from roquet import admin
    from roquet.admin.topics import Presence
    from roquet.model.queue import MessageQueue
    from roquet.model.route import TopicRoute
    from roquet.model.topic import TopicConfig
    from roquet.protocol.bodies.stats import TopicOffset
    from roquet.service.loop_thread import LoopThread


class Topics:
    """Topics of a cluster, on every master unless brokers are named."""

    def __init__(self, inner: admin.Topics, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def names(self, *, system: bool = True, left: bool = False) -> list[str]:
        """Return the names of all topics, in order; without `system` only those that users made.

        Retry and dead-letter topics of groups count as the system's. `left`: also topics of brokers
        that have left, if the name server keeps who left. Raises Refused, Unreachable.
        """
        return self._loop.run(self._inner.names(system=system, left=left))

    def system(self) -> frozenset[str]:
        """Return names that are topics of the system: clusters, brokers and a broker's own."""
        return self._loop.run(self._inner.system())

    def reserved(self) -> frozenset[str]:
        """Return the names of clusters and brokers, which name servers keep as topics'."""
        return self._loop.run(self._inner.reserved())

    def get(
        self, topic: str, *, brokers: Iterable[str] | None = None, cluster: str | None = None
    ) -> dict[str, TopicConfig]:
        """Return broker name -> configuration, of the masters that have the topic.

        Raises UsageError, Refused, Unreachable.
        """
        return self._loop.run(self._inner.get(topic, brokers=brokers, cluster=cluster))

    def table(self, broker: str) -> dict[str, TopicConfig]:
        """Return all topics of one broker (a name or an address), with those of the system.

        Raises UsageError, Refused, Unreachable.
        """
        return self._loop.run(self._inner.table(broker))

    def units(
        self,
        queue: MessageQueue,
        index: int,
        count: int,
        *,
        group: str | None = None,
        broker: str | None = None,
    ) -> Mapping[str, Any] | None:
        """Return units of a consume queue as the broker tells them, by Java's names.

        `queueData` has at most `count` from `index` on; with `group`, `subscriptionData` and
        `filterData` say whether its filter takes them. None: the queue has no unit there. The
        queue's master is asked unless another `broker` is given. Raises UsageError, Refused,
        Unreachable.
        """
        return self._loop.run(self._inner.units(queue, index, count, group=group, broker=broker))

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is. Raises Refused with code 17 when it is nowhere, Unreachable."""
        return self._loop.run(self._inner.route(topic))

    def presence(self, topic: str) -> Presence:
        """Return where a topic is, and which brokers left that served it.

        That it is nowhere is no error. Raises Refused, Unreachable.
        """
        return self._loop.run(self._inner.presence(topic))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read, in order. Raises as `route` does."""
        return self._loop.run(self._inner.queues(topic))

    def offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic, in order. Raises as `route` does."""
        return self._loop.run(self._inner.offsets(topic))

    def stats(self, topic: str) -> tuple[dict[MessageQueue, TopicOffset], float]:
        """Return the bounds of every queue, and messages stored a second. Raises as `route`."""
        return self._loop.run(self._inner.stats(topic))

    def offsets_on(self, topic: str, broker: str) -> Mapping[MessageQueue, TopicOffset]:
        """Return the bounds of a topic's queues on one broker, by its name or an address.

        Raises UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.offsets_on(topic, broker))

    def offsets_at(self, topic: str, time_ms: int) -> dict[MessageQueue, int]:
        """Return each queue's offset of the first message stored at `time_ms` or later.

        `time_ms` is Unix milliseconds. Raises as `route` does.
        """
        return self._loop.run(self._inner.offsets_at(topic, time_ms))

    def offset_at(self, queue: MessageQueue, time_ms: int, *, broker: str | None = None) -> int:
        """Return a queue's offset of the first message stored at `time_ms` or later.

        Its master is asked unless another `broker` is given, by an address. Raises UsageError,
        Refused, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.offset_at(queue, time_ms, broker=broker))

    def groups(self, topic: str) -> list[str]:
        """Return the names of all groups that consume a topic. Raises as `route` does."""
        return self._loop.run(self._inner.groups(topic))

    def create(
        self,
        name: str,
        queues: int = 8,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
    ) -> dict[str, TopicConfig]:
        """Create a topic and wait until the name server knows it; return broker -> configuration.

        `queues` is per broker. Raises Refused with code 18 when a broker has the topic already
        (then nothing is changed), UsageError, Unreachable, and OutcomeUnknown when the topic is
        made but has no route yet.
        """
        return self._loop.run(
            self._inner.create(
                name,
                queues,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
            )
        )

    def put(
        self,
        config: TopicConfig,
        *,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
        removed: Iterable[str] = (),
    ) -> None:
        """Create a topic or change it to this, and wait until the name server knows.

        `removed` are the names of attributes to take away. Raises as `create` does, but for 18.
        """
        self._loop.run(self._inner.put(config, brokers=brokers, cluster=cluster, removed=removed))

    def put_all(
        self, configs: Iterable[TopicConfig], *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create topics or change them to these, all with one request; wait for no name server.

        Raises as `put` does.
        """
        self._loop.run(self._inner.put_all(configs, brokers=brokers))

    def alter(
        self,
        name: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
        cluster: str | None = None,
    ) -> dict[str, TopicConfig]:
        """Change what is given wherever the topic is; return broker -> the configuration before.

        Attributes that are not given stay.

        Raises Refused with code 17 when it is nowhere, else as `put` does.
        """
        return self._loop.run(
            self._inner.alter(
                name,
                queues=queues,
                perm=perm,
                order=order,
                attributes=attributes,
                brokers=brokers,
                cluster=cluster,
            )
        )

    def delete(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a topic from every broker and name server, or only those of a cluster.

        Raises UsageError, Refused, Unreachable; a name server that is away raises its error when
        all others have deleted.
        """
        self._loop.run(self._inner.delete(name, cluster=cluster))

    def delete_on(self, name: str, broker: str) -> None:
        """Delete a topic from one broker, by its name, and leave it on the others.

        Name servers keep what a broker registered last, so it registers first that nobody reads or
        writes the topic there, which clients obey. Where no other broker has the topic, this is
        `delete`. Raises NotFound for a broker that is none, Refused with code 17 where it has no
        such topic, and as `put` does.
        """
        self._loop.run(self._inner.delete_on(name, broker))
