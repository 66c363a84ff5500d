"""Leases on queues for consumers in order.

A lease is granted on a queue that this broker has, of a topic that the group subscribes to, to a
client whose heartbeat has put this connection into the group. Java grants whatever is asked for.

A group without any member here may have its clients behind a proxy, which keeps their heartbeats
to itself and asks for them over connections of its own: then whoever asks is taken for a client.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Protocol

from roquet.acl.needs import lock_needs
from roquet.base.clock import steady_ms
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.access import Access
from roquet.service.background import give_way
from roquet.service.lifecycle import Timer
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.locks import QueueLocks
    from roquet.broker.clients.registry import Registry
    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.locks import LockRequest
    from roquet.store.tables.topics import TopicTable

QUEUES_AT_ONCE = 500
"""Queues that are locked or unlocked before others have their turn."""


class Votes(Protocol):
    """Asks the other replicas."""

    @property
    def needed(self) -> bool:
        """Whether this broker's own grant is not enough."""
        ...

    async def confirm(
        self, asked: LockRequest, granted: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Return those of the queues granted here that a majority grants."""
        ...

    async def release(self, asked: LockRequest) -> None:
        """Tell the other replicas that queues are given back."""
        ...


class Locks:
    """Grants, renews and takes back leases."""

    def __init__(
        self,
        locks: QueueLocks,
        registry: Registry,
        topics: TopicTable,
        broker_name: str,
        votes: Votes | None = None,
        *,
        now_ms: Callable[[], int] = steady_ms,
        access: Access | None = None,
    ) -> None:
        """`votes` asks the other replicas when this broker's own word is not enough."""
        self._locks = locks
        self._registry = registry
        self._topics = topics
        self._broker_name = broker_name
        self._votes = votes
        self._now_ms = now_ms
        self._access = access or Access()

    async def lock(self, asked: LockRequest, key: int, caller: Caller) -> list[MessageQueue]:
        """Return the queues granted; one that is refused is just not among them.

        `key` is the number of the client's connection. In strict mode those are granted that a
        majority of the replicas grants. Raises Refusal.
        """
        await self._check(asked, caller)
        granted = await self._grant(key, asked)
        votes = self._needed_votes
        if votes is not None and not asked.only_this_broker:
            # Others are asked only for what this broker may grant at all.
            real = self._real(asked) if self._is_client(key, asked) else []
            asked = dataclasses.replace(asked, queues=frozenset(real))
            granted = await votes.confirm(asked, granted)
        return granted

    async def unlock(self, asked: LockRequest, key: int, caller: Caller) -> None:
        """Take leases back; queues of others are passed over in silence. Raises Refusal.

        In strict mode the other replicas are told as well.
        """
        await self._check(asked, caller)
        await self._take_back(key, asked)
        votes = self._needed_votes
        is_client = self._is_client(key, asked)
        if votes is not None and is_client and not asked.only_this_broker:
            await votes.release(asked)

    @property
    def _needed_votes(self) -> Votes | None:
        return self._votes if self._votes is not None and self._votes.needed else None

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Forgetting what has run out, so that groups that have gone take no room."""
        return (Timer("forget old locks", self.sweep, 60.0, 60.0),)

    async def sweep(self) -> None:
        """Forget leases that have run out."""
        self._locks.sweep(self._now_ms())

    async def _check(self, asked: LockRequest, caller: Caller) -> None:
        async for needs in in_slices(lock_needs(asked), 1):
            self._access.require(caller, needs)
        if not asked.group or not asked.client_id:
            raise Refusal(Reason.FAILED, "consumerGroup and clientId are needed")

    # --- who may have what -----------------------------------------------------------------------

    async def _grant(self, key: int, asked: LockRequest) -> list[MessageQueue]:
        is_vote = self._is_vote(asked)
        holder = ("vote", asked.client_id) if is_vote else ("connection", key)
        granted: list[MessageQueue] = []
        for part in _slices(asked.queues):
            # Between two slices the client may have left the group.
            if not self._is_client(key, asked):
                break
            queues = self._real(dataclasses.replace(asked, queues=frozenset(part)))
            now_ms = self._now_ms()
            granted += self._locks.lock(asked.group, asked.client_id, queues, now_ms, holder)
            await give_way()
        return granted

    async def _take_back(self, key: int, asked: LockRequest) -> None:
        for part in _slices(asked.queues):
            # Who has left the group still gives back what this connection took.
            is_client = self._is_client(key, asked)
            holder = None if is_client else ("connection", key)
            self._locks.unlock(asked.group, asked.client_id, part, holder)
            await give_way()

    def _is_client(self, key: int, asked: LockRequest) -> bool:
        """Tell whether the client is in the group: on this connection, or a replica asks for it."""
        group = self._registry.consumer(asked.group)
        if group is None:
            return True
        if self._is_vote(asked):
            return group.member_with_id(asked.client_id) is not None
        member = group.members.get(key)
        return member is not None and member.client.client_id == asked.client_id

    def _is_vote(self, asked: LockRequest) -> bool:
        return self._needed_votes is not None and asked.only_this_broker

    def _real(self, asked: LockRequest) -> list[MessageQueue]:
        """Return those queues that exist here and are of topics that the group subscribes to."""
        group = self._registry.consumer(asked.group)
        return [
            queue
            for queue in asked.queues
            if (group is None or queue.topic in group.subscriptions)
            and queue.broker_name == self._broker_name
            and 0 <= queue.queue_id < self._queues_of(queue.topic)
        ]

    def _queues_of(self, topic: str) -> int:
        config = self._topics.get(topic)
        return 0 if config is None else max(config.read_queues, config.write_queues)


def _slices(queues: Collection[MessageQueue]) -> Iterator[list[MessageQueue]]:
    left = iter(queues)
    while part := list(itertools.islice(left, QUEUES_AT_ONCE)):
        yield part
