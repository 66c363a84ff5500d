"""Cleaning on demand: queues of topics that are gone (316), old files (329, 306)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.store.store import MessageStore
    from roquet.store.topics import TopicTable

log = logging.getLogger(__name__)

FILES_MAX = 10
"""Log files that one request deletes at most, as Java's cleaner does in a round."""


class UpkeepAdmin:
    """Deletes what nobody can read any more, or what is older than the store keeps."""

    def __init__(
        self, topics: TopicTable, store: MessageStore, clock: Clock, *, keep_hours: int
    ) -> None:
        """`keep_hours` is how long log files are kept (fileReservedTime)."""
        self._topics = topics
        self._store = store
        self._clock = clock
        self._keep_ms = keep_hours * 3_600_000

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.CLEAN_UNUSED_TOPIC,), self.unused_topics, "admin"),
            Route((RequestCode.DELETE_EXPIRED_COMMITLOG,), self.old_files, "admin"),
            Route((RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,), self.old_files, "admin"),
        ]

    async def unused_topics(self, request: Request) -> Command:
        """Delete the queues of topics that are not in the table."""
        queues = await asyncio.to_thread(self._store.native.queues)
        for topic in sorted({row[0] for row in queues}):
            if self._topics.get(topic) is None and not self._topics.is_system(topic):
                await asyncio.to_thread(self._store.native.delete_topic, topic)
                log.info("queues of %s were deleted: there is no such topic", topic)
        return reply_to(request.command)

    async def old_files(self, request: Request) -> Command:
        """Delete log files that are older than they are kept; their queues' files follow."""
        before = self._clock.now_ms() - self._keep_ms
        count = await asyncio.to_thread(self._store.native.delete_expired, before, FILES_MAX)
        log.info("%d log files older than %d ms were deleted", count, self._keep_ms)
        return reply_to(request.command)
