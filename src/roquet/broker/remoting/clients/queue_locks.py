"""LOCK_BATCH_MQ 41 and UNLOCK_BATCH_MQ 42: the adapter of queue locks.

Next: broker/services/clients/queue_locks.py, which has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason
from roquet.broker.remoting.bodies import parts_of
from roquet.protocol.bodies.locks import LockRequest, locked_body, locked_row
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route
from roquet.service.slices import write_rows

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.clients.queue_locks import Locks
    from roquet.model.queue import MessageQueue

LANE = "admin"
ROWS_AT_ONCE = 500
"""Queues that are written before others have their turn."""


class LockAdapter:
    """Answers consumers in order."""

    def __init__(self, locks: Locks, callers: Callers) -> None:
        self._locks = locks
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [
            Route((RequestCode.LOCK_BATCH_MQ,), self.lock, LANE),
            Route((RequestCode.UNLOCK_BATCH_MQ,), self.unlock, LANE),
        ]

    async def lock(self, request: Request) -> Command:
        """Answer 41 with the queues granted."""
        asked = await parts_of(request.command, LockRequest.of_json, Reason.FAILED, "")
        granted = await self._locks.lock(asked, request.peer.key, self._callers.of(request))
        return reply_to(request.command, body=await _locked(granted))

    async def unlock(self, request: Request) -> Command:
        """Answer 42 once the leases are given back."""
        asked = await parts_of(request.command, LockRequest.of_json, Reason.FAILED, "")
        await self._locks.unlock(asked, request.peer.key, self._callers.of(request))
        return reply_to(request.command)


async def _locked(granted: list[MessageQueue]) -> bytes:
    rows = (locked_row(queue) for queue in sorted(granted))
    return locked_body(await write_rows(rows, ROWS_AT_ONCE))
