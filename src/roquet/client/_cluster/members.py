"""The groups of this client: what its heartbeats say, and who answers a broker's questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import UsageError
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.stats import ConsumedDirectly, RunningInfo
    from roquet.protocol.headers.client import CheckTransactionStateRequest


class Consumer(Protocol):
    """A consumer group of this client, as heartbeats and brokers see it."""

    def describe(self) -> ConsumerData:
        """Return what heartbeats say of the group."""
        ...

    def rebalance_soon(self) -> None:
        """Hear that the members of the group changed (40)."""
        ...

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on from other offsets (220)."""
        ...

    def progress(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the offsets of the queues of a topic that are read here (221)."""
        ...

    def running_info(self) -> RunningInfo:
        """Return everything that tools show (307)."""
        ...

    async def consume_directly(self, message: StoredMessage) -> ConsumedDirectly:
        """Give one message to the application now (309)."""
        ...


class Checker(Protocol):
    """Answers brokers that ask how transactions of a producer group ended."""

    async def asked(
        self, address: str, header: CheckTransactionStateRequest, message: StoredMessage
    ) -> None:
        """Tell the broker at `address` (39)."""
        ...


class Members:
    """Producer and consumer groups, at most one consumer a group."""

    def __init__(self, client_id: str) -> None:
        """Begin with no group."""
        self.client_id = client_id
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, Consumer] = {}
        self._checkers: dict[str, Checker] = {}

    def add_producer(self, group: str) -> None:
        """Know a producer of a group; several may share one."""
        self._producers[group] = self._producers.get(group, 0) + 1

    def remove_producer(self, group: str) -> bool:
        """Forget one producer; tell whether it was the last of its group."""
        left = self._producers.get(group, 1) - 1
        if left > 0:
            self._producers[group] = left
            return False
        self._producers.pop(group, None)
        return True

    def add_consumer(self, group: str, consumer: Consumer) -> None:
        """Know a consumer. Raises UsageError for a second one of the same group."""
        if group in self._consumers:
            raise UsageError(
                f"group {group} has a consumer in this client already: connect again for another"
            )
        self._consumers[group] = consumer

    def remove_consumer(self, group: str) -> None:
        """Forget a consumer."""
        self._consumers.pop(group, None)

    def consumer(self, group: str) -> Consumer | None:
        """Return the consumer of a group."""
        return self._consumers.get(group)

    def add_checker(self, group: str, checker: Checker) -> None:
        """Know who answers checks. Raises UsageError for a second one of the same group."""
        if self._checkers.setdefault(group, checker) is not checker:
            raise UsageError(f"group {group} has a producer of transactions in this client already")

    def remove_checker(self, group: str, checker: Checker) -> None:
        """Forget who answers checks."""
        if self._checkers.get(group) is checker:
            del self._checkers[group]

    def checker(self, group: str) -> Checker | None:
        """Return who answers checks of a producer group."""
        return self._checkers.get(group)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to say in a heartbeat."""
        return not self._producers and not self._consumers

    @property
    def consumes(self) -> bool:
        """Whether slaves have to hear of this client, too."""
        return bool(self._consumers)

    def heartbeat(self) -> HeartbeatData:
        """Return the heartbeat of all groups."""
        return HeartbeatData(
            client_id=self.client_id,
            producers=tuple(sorted(self._producers)),
            consumers=tuple(self._consumers[group].describe() for group in sorted(self._consumers)),
        )
