"""Which broker a light topic belongs to: that of the parent's queue which its name falls on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.protocol.light import light_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from roquet.model.queue import MessageQueue


class Routes(Protocol):
    """Knows the queues of a topic that take messages, on all brokers."""

    async def of(self, topic: str) -> Collection[MessageQueue] | None:
        """Return the queues; None when nobody can say which there are."""
        ...


class LightOwners:
    """Tells by the route of the parent, as clients choose the queue of a send."""

    def __init__(self, routes: Routes, broker_name: str) -> None:
        self._routes = routes
        self._broker_name = broker_name

    async def of(self, topic: str) -> Callable[[str], bool]:
        """Return what tells of light topics by name whether they belong to this broker.

        Without a route all do, as in Java.
        """
        queues = sorted(await self._routes.of(topic) or ())
        if all(queue.broker_name == self._broker_name for queue in queues):
            return lambda _: True

        def is_here(name: str) -> bool:
            place = light_topics.bucket(name, len(queues))
            return queues[place].broker_name == self._broker_name

        return is_here
