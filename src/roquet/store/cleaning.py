"""When old commit-log files go: their age, the hour of the day, and how full the disk is.

Rules of spec store §12. Deleting is the core's; whole files go, oldest first, never the last, and
the queues and the index follow. Nothing is ever deleted because metadata is missing, nor because
the clock has jumped ahead.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.store.settings import StoreSettings

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
JUMP_MS = 300_000
"""A clock that is this much further than the time that has passed was set."""
JUMP_HOLD_MS = 24 * HOUR_MS
"""A jump ahead counts when the clock has stood by it for so long."""
ROUNDS_ASKED = 20
"""Rounds that a request by hand is good for, as in Java."""


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
        """Delete files last written before a time; return how many. Raises StoreFault."""
        ...


class SteadyTime:
    """The wall clock, except that a jump ahead is not believed before a day has passed.

    A clock that was set wrong would make every message look expired at once. Until it is put right,
    or a day is over, time goes on from where it was before.
    """

    def __init__(self) -> None:
        """Know no time yet: the first look is believed."""
        self._known: tuple[int, int] | None = None
        self._jumped_at: int | None = None

    def look(self, wall_ms: int, steady_ms: int) -> int:
        """Return the time to go by; `steady_ms` is a clock that nobody can set."""
        if self._known is None:
            self._known = (wall_ms, steady_ms)
            return wall_ms
        then, steady_then = self._known
        expected = then + steady_ms - steady_then
        if wall_ms > expected + JUMP_MS:
            if self._jumped_at is None:
                self._jumped_at = steady_ms
                log.warning(
                    "the clock is %d s ahead of the time that has passed: nothing counts as expired"
                    " by that for %d hours",
                    (wall_ms - expected) // 1000,
                    JUMP_HOLD_MS // HOUR_MS,
                )
            if steady_ms - self._jumped_at < JUMP_HOLD_MS:
                self._known = (expected, steady_ms)
                return expected
        self._jumped_at = None
        self._known = (wall_ms, steady_ms)
        return wall_ms


def plan(
    settings: StoreSettings, now_ms: int, hour: int, used_percent: int, *, asked: bool = False
) -> Plan | None:
    """Decide what a round may delete; None: nothing. `asked` when somebody wants a round now.

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
    if asked:
        return Plan(expired_ms, settings.delete_batch, "somebody asked for it")
    return None


class Cleaner:
    """Deletes old files every few seconds."""

    def __init__(self, files: LogFiles, settings: StoreSettings, clock: Clock) -> None:
        self._files = files
        self._settings = settings
        self._clock = clock
        self._time = SteadyTime()
        self._asked = 0
        self._again_ms = 0
        self._was_full = False

    async def start(self) -> None:
        """Nothing to do: a timer calls `clean`."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def clean_now(self) -> None:
        """Delete what has expired, whatever the hour; the next rounds do so too."""
        self._asked = ROUNDS_ASKED
        self._again_ms = 0
        await self.clean()

    async def clean(self) -> None:
        """Delete what may go now: the action of a timer."""
        steady_ms = int(asyncio.get_running_loop().time() * 1000)
        now_ms = self._time.look(self._clock.now_ms(), steady_ms)
        asked, self._asked = self._asked > 0, max(0, self._asked - 1)
        if steady_ms < self._again_ms:
            return
        try:
            for _ in range(self._settings.delete_batch):
                if not await self._round(now_ms, asked=asked):
                    return
                await self._pause()
        except StoreFault as fault:
            # Trying again every few seconds would only fill the log.
            self._again_ms = steady_ms + self._settings.redelete_interval_ms
            pause_s = self._settings.redelete_interval_ms // 1000
            log.error("an old file cannot be deleted, next try in %d s: %s", pause_s, fault)  # noqa: TRY400

    async def _round(self, now_ms: int, *, asked: bool) -> bool:
        """Delete once; tell whether the disk should be looked at again."""
        hour = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).astimezone().hour
        used = await asyncio.to_thread(self._files.disk_used_percent)
        self._tell(used)
        todo = plan(self._settings, now_ms, hour, used, asked=asked)
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

    def _tell(self, used: int) -> None:
        full = used > self._settings.disk_full_percent
        if full and not self._was_full:
            log.error("the disk is %d %% full: no messages are taken", used)
        elif self._was_full and not full:
            log.info("the disk is %d %% full: messages are taken again", used)
        self._was_full = full

    async def _pause(self) -> None:
        # Freeing a large file keeps the disk busy, and the messages that come in wait for it.
        if self._settings.delete_interval_ms:
            await self._clock.sleep(self._settings.delete_interval_ms / 1000)
