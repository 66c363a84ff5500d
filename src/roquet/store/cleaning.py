"""When old commit-log files go: their age, the hour of the day, and how full the disk is.

Rules of spec store §12. Deleting is the core's; whole files go, oldest first, never the last, and
the queues and the index follow. Nothing is ever deleted because metadata is missing.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.store.settings import StoreSettings

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000


class Plan(NamedTuple):
    """What one round may delete: files last written before a time, at most so many."""

    before_ms: int
    files_max: int
    why: str


class LogFiles(Protocol):
    """What cleaning needs of the message store."""

    def disk_used_percent(self) -> int:
        """Return how full the disk of the commit log is."""
        ...

    def delete_expired(self, before_ms: int, limit: int) -> int:
        """Delete files last written before a time; return how many."""
        ...


def plan(settings: StoreSettings, now_ms: int, hour: int, used_percent: int) -> Plan | None:
    """Decide what a round may delete; None: nothing.

    Above the level for forced cleaning one file goes at a time, whatever its age, so that no more
    is lost than is needed.
    """
    if settings.clean_forcibly and used_percent > settings.disk_clean_percent:
        return Plan(now_ms, 1, f"the disk is {used_percent} % full")
    expired_ms = now_ms - settings.reserved_hours * HOUR_MS
    if used_percent > settings.disk_used_percent:
        return Plan(expired_ms, settings.delete_batch, f"the disk is {used_percent} % full")
    if hour in settings.delete_hours:
        return Plan(expired_ms, settings.delete_batch, f"it is {hour:02d} o'clock")
    return None


class Cleaner:
    """Deletes old files every few seconds."""

    def __init__(self, files: LogFiles, settings: StoreSettings, clock: Clock) -> None:
        self._files = files
        self._settings = settings
        self._clock = clock

    async def start(self) -> None:
        """Nothing to do: a timer calls `clean`."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def clean(self) -> None:
        """Delete what may go now: the action of a timer."""
        for _ in range(self._settings.delete_batch):
            now_ms = self._clock.now_ms()
            hour = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).astimezone().hour
            used = await asyncio.to_thread(self._files.disk_used_percent)
            todo = plan(self._settings, now_ms, hour, used)
            if todo is None:
                return
            deleted = await asyncio.to_thread(
                self._files.delete_expired, todo.before_ms, todo.files_max
            )
            if deleted:
                log.info("%d commit-log files were deleted: %s", deleted, todo.why)
            if deleted == 0 or todo.files_max > 1:
                return
