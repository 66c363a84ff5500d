"""The time that old files are judged by: the wall clock, unless it stands ahead without a reason.

A clock that was set wrong would make every message look expired at once, also when it was set while
the broker was down. So a clock that is further than the time that has passed counts for nothing for
a day; then time is made up for at a few times its speed, and once all that was written before has
expired in its order, the clock is believed. A store that nobody ran for long looks just the same,
and is cleaned in that span as well. No look makes more than an hour's worth expire.

The time is kept in a file beside the tables, so that a start knows it; without one it is the store
time of the newest message.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import Corrupt, RoquetError
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from roquet.store.tables.files import JsonFile

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
JUMP_MS = 300_000
"""A clock that is this much further than the time that has passed was set."""
DOWN_MS = HOUR_MS
"""So long a broker may have been down without anybody wondering at its clock."""
JUMP_HOLD_MS = 24 * HOUR_MS
"""So long a clock that stands ahead counts for nothing, unless messages are kept for less."""
CATCH_UP = 4
"""How many times faster time goes after that."""
SAVE_MS = 60_000


class Known(NamedTuple):
    """What is remembered over a restart."""

    time_ms: int
    """The time that was gone by."""
    held_ms: int
    """How long the clock had stood ahead of it."""


class SteadyTime:
    """Sans-I/O: told the wall clock and a clock that nobody can set, it says what time it is."""

    def __init__(self, reserved_ms: int, known: Known | None = None) -> None:
        """Messages are kept for `reserved_ms`; without `known` the first look is believed."""
        self._reserved_ms = reserved_ms
        self._time_ms = known.time_ms if known else None
        self._held_ms = known.held_ms if known else 0
        self._lead_ms: int | None = None
        self._steady_ms: int | None = None

    @property
    def known(self) -> Known | None:
        """What a start should know; None before the first look."""
        return None if self._time_ms is None else Known(self._time_ms, self._held_ms)

    def keep_for(self, reserved_ms: int) -> None:
        """Judge jumps of the clock by another time that files are kept for."""
        self._reserved_ms = reserved_ms

    @property
    def _hold_ms(self) -> int:
        return min(JUMP_HOLD_MS, self._reserved_ms)

    def look(self, wall_ms: int, steady_ms: int) -> int:
        """Return the time to go by; `steady_ms` never goes back."""
        begins = self._steady_ms is None
        passed = 0 if self._steady_ms is None else max(0, steady_ms - self._steady_ms)
        self._steady_ms = steady_ms
        if self._time_ms is None:
            return self._believe(wall_ms)
        expected = self._time_ms + passed
        lead = wall_ms - expected
        if lead <= (DOWN_MS if begins and not self._held_ms else JUMP_MS):
            return self._believe(wall_ms)
        if self._lead_ms is None or lead > self._lead_ms + JUMP_MS:
            self._warn(lead)
            if self._lead_ms is not None:
                # It jumped once more.
                self._held_ms = 0
        return self._wait(wall_ms, expected, passed)

    def _wait(self, wall_ms: int, expected: int, passed: int) -> int:
        before = max(0, self._held_ms - self._hold_ms)
        self._held_ms += passed
        made_up = max(0, self._held_ms - self._hold_ms)
        time_ms = expected + (made_up - before) * (CATCH_UP - 1)
        gone_by = min(self._held_ms, self._hold_ms) + made_up * CATCH_UP
        if time_ms + JUMP_MS >= wall_ms or gone_by >= self._reserved_ms:
            log.info("the clock is believed again")
            return self._believe(wall_ms)
        self._time_ms = time_ms
        self._lead_ms = wall_ms - time_ms
        return time_ms

    def _believe(self, wall_ms: int) -> int:
        self._time_ms = wall_ms
        self._held_ms = 0
        self._lead_ms = None
        return wall_ms

    def _warn(self, lead_ms: int) -> None:
        log.warning(
            "the clock is %d s ahead of the time that has passed, or nobody ran this store for so"
            " long: nothing counts as expired by that for %d hours, then little by little",
            lead_ms // 1000,
            self._hold_ms // HOUR_MS,
        )


class KeptTime:
    """A steady time with its file."""

    def __init__(self, reserved_ms: int, file: JsonFile | None) -> None:
        """Without a file every start believes the clock, or the newest message."""
        self._reserved_ms = reserved_ms
        self._file = file
        self._time = SteadyTime(reserved_ms)
        self._saved_ms: int | None = None

    def keep_for(self, reserved_ms: int) -> None:
        """Judge jumps of the clock by another time that files are kept for."""
        self._reserved_ms = reserved_ms
        self._time.keep_for(reserved_ms)

    def load(self, newest_ms: int | None) -> None:
        """Take over what the file says, else when the newest message was stored, if there is one.

        No broker should stay down for a damaged file: it is said.
        """
        found = None
        try:
            found = None if self._file is None else self._file.load(_decode)
        except Corrupt as error:
            log.warning("the time is that of the newest message: %s", error)
        if found is None and newest_ms is not None:
            found = Known(newest_ms, 0)
        self._time = SteadyTime(self._reserved_ms, found)

    def look(self, wall_ms: int, steady_ms: int) -> int:
        """Return the time to go by."""
        return self._time.look(wall_ms, steady_ms)

    async def save(self, steady_ms: int | None = None) -> None:
        """Make the time durable; with `steady_ms` only if that was not done within a minute.

        A full disk is no reason not to clean it: that the time cannot be saved is only said.
        """
        known = self._time.known
        if self._file is None or known is None:
            return
        if steady_ms is not None:
            if self._saved_ms is not None and steady_ms - self._saved_ms < SAVE_MS:
                return
            self._saved_ms = steady_ms
        try:
            async with self._file.writing:
                await self._file.save(lambda: _encode(known))
        except (OSError, RoquetError) as error:
            log.warning("the time that files are judged by is not saved: %s", error)


def _encode(known: Known) -> bytes:
    return fastjson.pretty({"heldMs": known.held_ms, "timeMs": known.time_ms})


def _decode(data: bytes) -> Known:
    source = fastjson.read_object(data)
    known = Known(fields.i64(source, "timeMs"), fields.i64(source, "heldMs"))
    if known.time_ms <= 0 or known.held_ms < 0:
        raise fastjson.JsonError(f"{known} is no time")
    return known
