"""Cleaning on demand: queues of topics that are gone (316), old files (329, 306)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.upkeep import Upkeep


class UpkeepAdapter:
    """Deletes what nobody can read any more, or what is older than the store keeps."""

    def __init__(self, upkeep: Upkeep, callers: Callers) -> None:
        self._upkeep = upkeep
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.CLEAN_UNUSED_TOPIC,), self.unused_topics, "admin"),
            Route((RequestCode.DELETE_EXPIRED_COMMITLOG,), self.old_files, "admin"),
            Route((RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,), self.old_files, "admin"),
        ]

    async def unused_topics(self, request: Request) -> Command:
        """Delete the queues of topics that are gone."""
        await self._upkeep.unused_topics(self._callers.of(request))
        return reply_to(request.command)

    async def old_files(self, request: Request) -> Command:
        """Delete log files that are older than they are kept."""
        await self._upkeep.old_files(self._callers.of(request))
        return reply_to(request.command)
