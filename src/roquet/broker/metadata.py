"""The metadata tables as a part of the broker: loaded before anything else, saved last of all.

Offsets are saved after the store has been flushed, so that they never point behind the log.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import DiskFull

if TYPE_CHECKING:
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.filters import FilterTable
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.request_modes import RequestModes
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Metadata:
    """Topics, groups, offsets, filters, request modes, and what was deleted."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: FilterTable
    modes: RequestModes
    deletions: Deletions

    async def start(self) -> None:
        """Load the tables; raises as `load` does, and DiskFull and OSError.

        A store without messages gets its table of offsets here, so that a kill before the first
        commit does not make it look like one whose table was removed.
        """
        has_offsets = self.load()
        if not has_offsets and not self.topics.has_queues():
            await self.offsets.persist()

    def load(self) -> bool:
        """Load the tables and write nothing; return whether there is one of offsets.

        Raises Corrupt when a file and its copy are both unusable.
        """
        self.topics.load()
        has_offsets = self.offsets.load()
        has_groups = self.groups.load()
        if self.topics.has_queues():
            self._say_what_is_missing(has_groups=has_groups, has_offsets=has_offsets)
        self.filters.load()
        self.modes.load()
        self.deletions.load()
        return has_offsets

    def _say_what_is_missing(self, *, has_groups: bool, has_offsets: bool) -> None:
        """Say which tables a store with messages lacks; what topics lost they say themselves."""
        if not has_groups:
            log.warning(
                "subscriptionGroup.json is missing, but the store has messages: the settings of all"
                " consumer groups are the default ones; if there were others, stop the broker and"
                " restore the file"
            )
        # Earlier releases wrote no table before the first commit.
        if not has_offsets and (self.groups.has_own() or not has_groups):
            log.warning(
                "consumerOffset.json is missing, but the store has messages: every consumer group"
                " begins as a new one; if groups had read here, stop the broker and restore the"
                " file before they connect"
            )

    async def stop(self) -> None:
        """Save the tables; one that cannot be saved does not keep the others from it."""
        tables = (self.topics, self.groups, self.filters, self.modes, self.deletions, self.offsets)
        for table in tables:
            try:
                await table.persist()
            except (DiskFull, OSError) as error:
                log.error("%s was not saved: %s", type(table).__name__, error)  # noqa: TRY400
            except Exception:
                log.exception("%s was not saved", type(table).__name__)

    async def persist_configs(self) -> None:
        """Save topics and groups: the action of a timer, for changes nobody waited for."""
        await self.topics.persist()
        await self.groups.persist()

    async def persist_filters(self) -> None:
        """Save the SQL92 filters: the action of a timer."""
        await self.filters.persist()

    async def persist_offsets(self) -> None:
        """Save the offsets: the action of a timer."""
        await self.offsets.persist()
