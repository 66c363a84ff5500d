"""Cleaning on demand: queues of topics that are gone, old files."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Reason, Refusal

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.store.store import MessageStore
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)


class Cleaner(Protocol):
    """Deletes old files."""

    async def clean_now(self) -> None:
        """Delete what has expired, whatever the hour."""
        ...


class Upkeep:
    """Deletes what nobody can read any more, or what is older than the store keeps."""

    def __init__(self, topics: TopicTable, store: MessageStore, cleaner: Cleaner) -> None:
        self._topics = topics
        self._store = store
        self._cleaner = cleaner

    async def unused_topics(self, caller: Caller) -> None:
        """Delete the queues of topics that are not in the table, unless that was lost once.

        Raises Refusal. A table that is empty because it was lost says nothing of which messages
        are wanted.
        """
        del caller
        queues = await asyncio.to_thread(self._store.native.queues)
        known = self._topics.all()
        unused = sorted({row[0] for row in queues} - set(known))
        unused = [topic for topic in unused if not self._topics.is_system(topic)]
        if unused and not self._topics.is_complete():
            raise Refusal(
                Reason.FAILED,
                "nothing is cleaned: the table of topics was missing or broken at a start, and"
                f" {len(unused)} topics with queues are not in it ({', '.join(unused[:5])} ...)."
                f" Make those that are wanted, delete the others, then remove"
                f" {self._topics.lost_mark} and restart",
            )
        for topic in unused:
            await asyncio.to_thread(self._store.native.delete_topic, topic)
            log.info("queues of %s were deleted: there is no such topic", topic)

    async def old_files(self, caller: Caller) -> None:
        """Delete log files that are older than they are kept; their queues' files follow.

        What one round leaves, the next ones of the cleaner take, as in Java.
        """
        log.info("%s asks for old files to be deleted", caller.address)
        await self._cleaner.clean_now()
