"""LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42: leases on queues for consumers in order.

A lease is granted on a queue that this broker has, of a topic that the group subscribes to, to a
client whose heartbeat has put this connection into the group. Java grants whatever is asked for.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from roquet.acl.needs import lock_needs
from roquet.acl.rights import EVERYBODY
from roquet.base.clock import steady_ms
from roquet.base.errors import Refused
from roquet.protocol.bodies.locks import LockRequest, locked_body, locked_row
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.remoting.router import Request, Route
from roquet.service.background import give_way
from roquet.service.lifecycle import Timer
from roquet.service.slices import in_slices, read_parts, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from roquet.acl.rights import Rights
    from roquet.broker.lock_votes import LockVotes
    from roquet.broker.locks import QueueLocks
    from roquet.broker.registry import ConsumerGroup, Registry
    from roquet.model.queue import MessageQueue
    from roquet.store.topics import TopicTable

LANE = "admin"
QUEUES_AT_ONCE = 500
"""Queues that are locked, unlocked or written before others have their turn."""


class Lock:
    """Grants, renews and takes back leases."""

    def __init__(
        self,
        locks: QueueLocks,
        registry: Registry,
        topics: TopicTable,
        broker_name: str,
        votes: LockVotes | None = None,
        *,
        now_ms: Callable[[], int] = steady_ms,
        rights: Rights = EVERYBODY,
    ) -> None:
        """`votes` asks the other replicas when this broker's own word is not enough."""
        self._locks = locks
        self._registry = registry
        self._topics = topics
        self._broker_name = broker_name
        self._votes = votes
        self._now_ms = now_ms
        self._rights = rights

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [
            Route((RequestCode.LOCK_BATCH_MQ,), self.lock, LANE),
            Route((RequestCode.UNLOCK_BATCH_MQ,), self.unlock, LANE),
        ]

    async def lock(self, request: Request) -> Command:
        """Answer 41 with the queues granted; one that is refused is just not among them.

        In strict mode those that a majority of the replicas grants.
        """
        asked = await self._asked(request)
        granted = await self._grant(request, asked)
        votes = self._needed_votes
        if votes is not None and not asked.only_this_broker:
            # Others are asked only for what this broker may grant at all.
            group = self._group(request, asked)
            real = [] if group is None else self._real(group, asked.queues)
            asked = dataclasses.replace(asked, queues=frozenset(real))
            granted = await votes.confirm(asked, granted)
        return reply_to(request.command, body=await _locked(granted))

    async def unlock(self, request: Request) -> Command:
        """Answer 42; queues of others are passed over in silence.

        In strict mode the other replicas are told as well.
        """
        asked = await self._asked(request)
        await self._take_back(request, asked)
        votes = self._needed_votes
        is_member = self._group(request, asked) is not None
        if votes is not None and is_member and not asked.only_this_broker:
            await votes.release(asked)
        return reply_to(request.command)

    @property
    def _needed_votes(self) -> LockVotes | None:
        return self._votes if self._votes is not None and self._votes.needed else None

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Forgetting what has run out, so that groups that have gone take no room."""
        return (Timer("forget old locks", self.sweep, 60.0, 60.0),)

    async def sweep(self) -> None:
        """Forget leases that have run out."""
        self._locks.sweep(self._now_ms())

    async def _asked(self, request: Request) -> LockRequest:
        """Return what is asked for, of a client that may read the topics. Raises Refused."""
        try:
            asked = await read_parts(LockRequest.of_json, request.command.body)
        except JsonError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        caller = self._rights.caller(request.command, request.peer.address)
        async for needs in in_slices(lock_needs(asked), 1):
            self._rights.require(caller, needs)
        if not asked.group or not asked.client_id:
            raise Refused(ResponseCode.SYSTEM_ERROR, "consumerGroup and clientId are needed")
        return asked

    # --- who may have what -----------------------------------------------------------------------

    async def _grant(self, request: Request, asked: LockRequest) -> list[MessageQueue]:
        is_vote = self._is_vote(asked)
        holder = ("vote", asked.client_id) if is_vote else ("connection", request.peer.key)
        granted: list[MessageQueue] = []
        for part in _slices(asked.queues):
            # Between two slices the client may have left the group.
            group = self._group(request, asked)
            if group is None:
                break
            queues = self._real(group, part)
            now_ms = self._now_ms()
            granted += self._locks.lock(asked.group, asked.client_id, queues, now_ms, holder)
            await give_way()
        return granted

    async def _take_back(self, request: Request, asked: LockRequest) -> None:
        for part in _slices(asked.queues):
            is_member = self._group(request, asked) is not None
            # Who has left the group still gives back what this connection took.
            holder = None if is_member else ("connection", request.peer.key)
            self._locks.unlock(asked.group, asked.client_id, part, holder)
            await give_way()

    def _group(self, request: Request, asked: LockRequest) -> ConsumerGroup | None:
        """Return the group if the client is in it: on this connection, or a replica asks for it."""
        group = self._registry.consumer(asked.group)
        if group is None:
            return None
        if self._is_vote(asked):
            return group if group.member_with_id(asked.client_id) is not None else None
        member = group.members.get(request.peer.key)
        return group if member is not None and member.client.client_id == asked.client_id else None

    def _is_vote(self, asked: LockRequest) -> bool:
        return self._needed_votes is not None and asked.only_this_broker

    def _real(self, group: ConsumerGroup, asked: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return those queues that exist here and are of topics that the group subscribes to."""
        return [
            queue
            for queue in asked
            if queue.topic in group.subscriptions
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


async def _locked(granted: list[MessageQueue]) -> bytes:
    rows = (locked_row(queue) for queue in sorted(granted))
    return locked_body(await write_rows(rows, QUEUES_AT_ONCE))
