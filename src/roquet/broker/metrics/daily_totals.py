"""Messages put and got until now, until this morning and until yesterday morning.

The totals survive a restart and roll at the broker's local midnight, as tools that compute what a
day brought expect (runtime info `msgPutTotalTodayNow` and the like).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Corrupt
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.store.tables.files import JsonFile

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Total:
    """One total at three moments."""

    now: int = 0
    this_morning: int = 0
    yesterday_morning: int = 0

    def roll(self, days: int) -> None:
        """Begin a new day, `days` after the old one."""
        self.yesterday_morning = self.this_morning if days == 1 else self.now
        self.this_morning = self.now


class DailyTotals:
    """The totals of puts and gets. A service when it has a file."""

    def __init__(self, clock: Clock, file: JsonFile | None = None) -> None:
        """Begin at zero; `start` takes over what the file says."""
        self._clock = clock
        self._file = file
        self._saved: bytes | None = None
        self.puts = Total()
        self.gets = Total()
        self._day, self._midnight_ms = _day_of(clock.now_ms())

    def put(self, count: int, now_ms: int) -> None:
        """Count messages stored."""
        if now_ms >= self._midnight_ms:
            self._roll(now_ms)
        self.puts.now += count

    def get(self, count: int, now_ms: int) -> None:
        """Count messages read."""
        if now_ms >= self._midnight_ms:
            self._roll(now_ms)
        self.gets.now += count

    async def start(self) -> None:
        """Take over the file's totals; a damaged file is said and begins anew.

        These are figures for people: no broker should stay down for them.
        """
        try:
            found = None if self._file is None else self._file.load(_decode)
        except Corrupt as error:
            log.warning("the totals of the days begin at zero: %s", error)
            return
        if found is not None:
            self._day, self.puts, self.gets = found
            self._midnight_ms = _midnight_after(self._day)
            self._roll(self._clock.now_ms())

    async def stop(self) -> None:
        """Save the totals."""
        await self.persist()

    async def persist(self) -> None:
        """Make the totals durable; returns at once when nothing changed since the last time."""
        if self._file is None:
            return
        self._roll(self._clock.now_ms())
        async with self._file.writing:
            data = _encode(self._day, self.puts, self.gets)
            if data != self._saved:
                await self._file.save(lambda: data)
                self._saved = data

    def _roll(self, now_ms: int) -> None:
        day, midnight_ms = _day_of(now_ms)
        if day > self._day:
            self.puts.roll(day - self._day)
            self.gets.roll(day - self._day)
            self._day, self._midnight_ms = day, midnight_ms


def _day_of(now_ms: int) -> tuple[int, int]:
    """Return the number of the local day, and when the next one begins."""
    day = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC).astimezone().date().toordinal()
    return day, _midnight_after(day)


def _midnight_after(day: int) -> int:
    date = dt.date.fromordinal(day + 1)
    midnight = dt.datetime(date.year, date.month, date.day)  # noqa: DTZ001  (local time is the rule)
    return int(midnight.timestamp() * 1000)


def _encode(day: int, puts: Total, gets: Total) -> bytes:
    return fastjson.pretty(
        {"day": day, "gets": dataclasses.asdict(gets), "puts": dataclasses.asdict(puts)}
    )


def _decode(data: bytes) -> tuple[int, Total, Total]:
    source = fastjson.read_object(data)
    day = fields.i32(source, "day")
    if not 1 <= day <= dt.date.max.toordinal() - 1:
        raise fastjson.JsonError(f"day: {day} is none")
    puts, gets = (
        Total(
            now=fields.i64(it, "now"),
            this_morning=fields.i64(it, "this_morning"),
            yesterday_morning=fields.i64(it, "yesterday_morning"),
        )
        for it in (fields.obj(source, "puts"), fields.obj(source, "gets"))
    )
    return day, puts, gets
