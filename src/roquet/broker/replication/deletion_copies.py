"""Deletions of topics and groups, as a slave learns of them.

A name that is deleted and made again begins at offset 0 once more. A slave that kept the queues
would give messages of the former topic after a fail-over, and one that kept the offsets would pass
over new ones. It learns of a deletion by its master's list, which says up to where of the log
messages are not the topic's any more; and, before that list comes, by a queue that begins anew in
the log.

Invariant: offsets go durably before it is noted that the deletion is known here. A copy that does
not reach as far as a deletion yet waits with it: the list is read again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.service.slices import in_slices
from roquet.store.marks import deleted
from roquet.store.tables.topics import is_path_safe

if TYPE_CHECKING:
    from roquet.broker.metadata import Metadata
    from roquet.protocol.bodies.deletions import DeletionsBody
    from roquet.store.store import MessageStore

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Names that are looked at before others have their turn."""
ENDS_AT_ONCE = 2_000
"""Topics that are deleted with one write of the store's note; nothing is dispatched meanwhile."""


class DeletionCopies:
    """Lets a slave forget what its master has deleted."""

    def __init__(self, metadata: Metadata, store: MessageStore) -> None:
        self._metadata = metadata
        self._store = store

    async def follow(self, body: DeletionsBody) -> bool:
        """Do what the master did; tell whether all of it is done. Raises StoreFault, OSError."""
        known, offsets = self._metadata.deletions, self._metadata.offsets
        ends = deleted.log_ends(self._store)
        late: set[str] = set()
        rows = [row for row in body.log_ends.items() if ends.get(row[0], 0) < row[1]]
        rows = [row for row in rows if is_path_safe(row[0])]
        for start in range(0, len(rows), ENDS_AT_ONCE):
            late.update(await deleted.follow(self._store, rows[start : start + ENDS_AT_ONCE]))
        if rows:
            log.info("the master has deleted %d topics", len(rows) - len(late))
        topics = {name: at for name, at in body.topics.items() if name not in late}
        news = known.news(topics, body.groups)
        async for topic in in_slices(news.topics, AT_ONCE):
            await offsets.remove_topic(topic)
        async for group in in_slices(news.groups, AT_ONCE):
            await offsets.remove_group(group)
        if news.topics or news.groups:
            await offsets.persist()
            known.adopt(news)
            await known.persist()
        return not late

    async def look_at_log(self) -> None:
        """Forget the offsets of topics that began anew in what was copied. Raises OSError."""
        renewed = deleted.renewed(self._store)
        async for topic in in_slices(renewed, AT_ONCE):
            log.info("topic %s began anew in the log: its offsets are forgotten", topic)
            await self._metadata.offsets.remove_topic(topic)
        if renewed:
            await self._metadata.offsets.persist()
