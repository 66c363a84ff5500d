"""When old commit-log files go: their age, the hour of the day, and how full the disk is.

Rules of spec store §12. Deleting is the core's; whole files go, oldest first, never the last, and
the queues and the index follow. Nothing is ever deleted because metadata is missing, nor because
the clock has jumped ahead (`roquet.store.housekeeping.steady_time`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.base.clock import steady_ms
from roquet.base.hours import hour_of
from roquet.store.housekeeping.steady_time import HOUR_MS, KeptTime
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.store.results import DiskUse
    from roquet.store.settings import StoreConfig
    from roquet.store.tables.files import JsonFile

log = logging.getLogger(__name__)

ANY_AGE_MS = 2**63 - 1
"""Before this every file was written, also one that a clock that stood ahead has dated."""
ROUNDS_ASKED = 20
"""Rounds that a request by hand is good for, as in Java."""


class Plan(NamedTuple):
    """What one round may delete: files last written before a time, at most so many."""

    before_ms: int
    files_max: int
    why: str


class LogFiles(Protocol):
    """What cleaning needs of the message store."""

    def disk_use(self) -> DiskUse:
        """Return how full the disk of the commit log is, and what the store makes of that."""
        ...

    def newest_store_time(self) -> int | None:
        """Return when the newest message was stored, None when there is none."""
        ...

    def delete_expired(self, before_ms: int, limit: int) -> int:
        """Delete files last written before a time; return how many. Raises StoreFault."""
        ...


def plan(
    settings: StoreConfig, disk: DiskUse, now_ms: int, hour: int, *, asked: bool = False
) -> Plan | None:
    """Decide what a round may delete; None: nothing. `asked` when somebody wants a round now.

    Above the level for forced cleaning one file goes at a time, whatever its age, so that no more
    is lost than is needed.
    """
    if settings.clean_forcibly and disk.percent > disk.clean:
        return Plan(ANY_AGE_MS, 1, f"the disk is {disk.percent} % full")
    expired_ms = now_ms - settings.reserved_hours * HOUR_MS
    if disk.percent > disk.expire:
        return Plan(expired_ms, settings.delete_batch, f"the disk is {disk.percent} % full")
    if hour in settings.delete_hours:
        return Plan(expired_ms, settings.delete_batch, f"it is {hour:02d} o'clock")
    if asked:
        return Plan(expired_ms, settings.delete_batch, "somebody asked for it")
    return None


class Cleaner:
    """Deletes old files every few seconds."""

    def __init__(
        self,
        files: LogFiles,
        settings: StoreConfig,
        clock: Clock,
        time_file: JsonFile | None = None,
    ) -> None:
        """`time_file` keeps the time that files are judged by over restarts."""
        self._files = files
        self._settings = settings
        self._clock = clock
        self._time = KeptTime(settings.reserved_hours * HOUR_MS, time_file)
        self._asked = 0
        self._again_ms = 0
        self._was_full = False

    def follow(self, settings: StoreConfig) -> None:
        """Delete by other settings from now on."""
        self._settings = settings
        self._time.keep_for(settings.reserved_hours * HOUR_MS)

    async def start(self) -> None:
        """Learn from the open store what time it was when it was last written."""
        self._time.load(self._files.newest_store_time())
        self._time.look(self._clock.now_ms(), steady_ms())
        await self._time.save()

    async def stop(self) -> None:
        """Save the time."""
        self._time.look(self._clock.now_ms(), steady_ms())
        await self._time.save()

    async def clean_now(self) -> None:
        """Delete what has expired, whatever the hour; the next rounds do so too."""
        self._asked = ROUNDS_ASKED
        self._again_ms = 0
        await self.clean()

    async def clean(self) -> None:
        """Delete what may go now: the action of a timer."""
        passed_ms = steady_ms()
        now_ms = self._time.look(self._clock.now_ms(), passed_ms)
        await self._time.save(passed_ms)
        asked, self._asked = self._asked > 0, max(0, self._asked - 1)
        if passed_ms < self._again_ms:
            return
        try:
            for _ in range(self._settings.delete_batch):
                if not await self._round(now_ms, asked=asked):
                    return
                await self._pause()
        except StoreFault as fault:
            # Trying again every few seconds would only fill the log.
            self._again_ms = passed_ms + self._settings.redelete_interval_ms
            pause_s = self._settings.redelete_interval_ms // 1000
            log.error("an old file cannot be deleted, next try in %d s: %s", pause_s, fault)  # noqa: TRY400

    async def _round(self, now_ms: int, *, asked: bool) -> bool:
        """Delete once; tell whether the disk should be looked at again."""
        hour = hour_of(now_ms)
        disk = await asyncio.to_thread(self._files.disk_use)
        self._tell(disk)
        todo = plan(self._settings, disk, now_ms, hour, asked=asked)
        if todo is None:
            return False
        deleted = 0
        while deleted < todo.files_max:
            if not await asyncio.to_thread(self._files.delete_expired, todo.before_ms, 1):
                break
            deleted += 1
            if deleted < todo.files_max:
                await self._pause()
        if deleted:
            log.info("%d commit-log files were deleted: %s", deleted, todo.why)
        return deleted > 0 and todo.files_max == 1

    def _tell(self, disk: DiskUse) -> None:
        full = disk.percent > disk.full
        if full and not self._was_full:
            log.error("the disk is %d %% full: no messages are taken", disk.percent)
        elif self._was_full and not full:
            log.info("the disk is %d %% full: messages are taken again", disk.percent)
        self._was_full = full

    async def _pause(self) -> None:
        # Freeing a large file keeps the disk busy, and the messages that come in wait for it.
        if self._settings.delete_interval_ms:
            await self._clock.sleep(self._settings.delete_interval_ms / 1000)
