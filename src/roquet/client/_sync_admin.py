"""Administration by the blocking client; see sync.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.model.topic import READ_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.client import _admin
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.route import TopicRoute
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import ConsumeOffset, TopicOffset
    from roquet.service.loop_thread import LoopThread


class Admin:
    """Administration, blocking."""

    def __init__(self, inner: _admin.Admin, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create or change a topic and wait until the name server knows it."""
        self._loop.run(
            self._inner.create_topic(
                name, queues, perm=perm, order=order, attributes=attributes, brokers=brokers
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic from every broker and name server."""
        self._loop.run(self._inner.delete_topic(name))

    def topics(self) -> list[str]:
        """Return all topics."""
        return self._loop.run(self._inner.topics())

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is."""
        return self._loop.run(self._inner.route(topic))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return self._loop.run(self._inner.queues(topic))

    def cluster(self) -> ClusterInfo:
        """Return all brokers."""
        return self._loop.run(self._inner.cluster())

    def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic."""
        return self._loop.run(self._inner.topic_offsets(topic))

    def group_offsets(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, ConsumeOffset]:
        """Return how far a group is in each queue."""
        return self._loop.run(self._inner.group_offsets(group, topic))

    def create_group(
        self, group: str | SubscriptionGroupConfig, *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create or change a consumer group."""
        self._loop.run(self._inner.create_group(group, brokers=brokers))

    def delete_group(self, group: str, *, offsets: bool = False) -> None:
        """Delete a consumer group."""
        self._loop.run(self._inner.delete_group(group, offsets=offsets))

    def view_message(self, offset_id: str) -> StoredMessage:
        """Return a message by its offset id."""
        return self._loop.run(self._inner.view_message(offset_id))
