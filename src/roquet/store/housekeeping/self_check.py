"""Looks from time to time whether the files of a running store are still what they should be."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.store.results import Damage

log = logging.getLogger(__name__)

SHOWN_MAX = 20


class Checkable(Protocol):
    """What is looked at."""

    def self_check(self) -> Sequence[str]:
        """Return what is wrong: a missing or cut file, a hole between two. Raises StoreFault."""
        ...

    def damage(self) -> Damage:
        """Return what was passed over since the start. Raises StoreFault."""
        ...


class SelfCheck:
    """Says in the log what is wrong; nothing is changed, since only a restart can repair."""

    def __init__(self, store: Checkable) -> None:
        self._store = store
        self._told = (0, 0)
        self.problems: tuple[str, ...] = ()

    async def start(self) -> None:
        """Nothing to do: a timer calls `check`."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def check(self) -> None:
        """Look once: the action of a timer."""
        self.problems = tuple(await asyncio.to_thread(self._store.self_check))
        for problem in self.problems[:SHOWN_MAX]:
            log.error("the store is damaged: %s", problem)
        if len(self.problems) > SHOWN_MAX:
            log.error("and %d places more", len(self.problems) - SHOWN_MAX)

    async def tell_damage(self) -> None:
        """Say what was passed over since the last time: the action of a timer, which limits it."""
        damage = self._store.damage()
        reads, conflicts = damage.reads - self._told[0], damage.conflicts - self._told[1]
        self._told = damage.reads, damage.conflicts
        if reads > 0:
            text = "%d messages cannot be read and were passed over, the last one: %s"
            log.error(text, reads, damage.last_read)
        if conflicts > 0:
            text = "%d records have no place in their queue, the last one: %s"
            log.error(text, conflicts, damage.last_conflict)
