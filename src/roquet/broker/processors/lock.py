"""LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42: leases on queues for consumers in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.protocol.bodies.locks import LockRequest, encode_locked
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.remoting.router import Request, Route
from roquet.service.lifecycle import Timer
from roquet.service.slices import read_body, write_body

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.lock_votes import LockVotes
    from roquet.broker.locks import QueueLocks

LANE = "admin"


class Lock:
    """Grants, renews and takes back leases."""

    def __init__(self, locks: QueueLocks, clock: Clock, votes: LockVotes | None = None) -> None:
        """`votes` asks the other replicas when this broker's own word is not enough."""
        self._locks = locks
        self._clock = clock
        self._votes = votes

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        if self._votes is not None:
            return [
                Route((RequestCode.LOCK_BATCH_MQ,), self.lock_by_vote, LANE),
                Route((RequestCode.UNLOCK_BATCH_MQ,), self.unlock_everywhere, LANE),
            ]
        return [
            Route((RequestCode.LOCK_BATCH_MQ,), self.lock, LANE),
            Route((RequestCode.UNLOCK_BATCH_MQ,), self.unlock, LANE),
        ]

    async def lock(self, request: Request) -> Command:
        """Answer 41 with the queues granted; one that is refused is just not among them."""
        asked = await _asked(request)
        granted = self._locks.lock(asked.group, asked.client_id, asked.queues, self._clock.now_ms())
        body = await write_body(lambda: encode_locked(granted), len(granted))
        return reply_to(request.command, body=body)

    async def unlock(self, request: Request) -> Command:
        """Answer 42; queues of others are passed over in silence."""
        asked = await _asked(request)
        self._locks.unlock(asked.group, asked.client_id, asked.queues)
        return reply_to(request.command)

    async def lock_by_vote(self, request: Request) -> Command:
        """Answer 41 with the queues that a majority of the replicas grants."""
        asked = await _asked(request)
        granted = self._locks.lock(asked.group, asked.client_id, asked.queues, self._clock.now_ms())
        if self._votes is not None and not asked.only_this_broker:
            granted = await self._votes.confirm(asked, granted)
        body = await write_body(lambda: encode_locked(granted), len(granted))
        return reply_to(request.command, body=body)

    async def unlock_everywhere(self, request: Request) -> Command:
        """Answer 42, the other replicas being told as well."""
        asked = await _asked(request)
        self._locks.unlock(asked.group, asked.client_id, asked.queues)
        if self._votes is not None and not asked.only_this_broker:
            await self._votes.release(asked)
        return reply_to(request.command)

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Forgetting what has run out, so that groups that have gone take no room."""
        return (Timer("forget old locks", self.sweep, 60.0, 60.0),)

    async def sweep(self) -> None:
        """Forget leases that have run out."""
        self._locks.sweep(self._clock.now_ms())


async def _asked(request: Request) -> LockRequest:
    try:
        asked = await read_body(LockRequest.decode, request.command.body)
    except JsonError as error:
        raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    if not asked.group or not asked.client_id:
        raise Refused(ResponseCode.SYSTEM_ERROR, "consumerGroup and clientId are needed")
    return asked
