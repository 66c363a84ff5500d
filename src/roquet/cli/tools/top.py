"""`roquet top`: what a cluster does now, problems first, again and again."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import TYPE_CHECKING

from roquet.admin.health import troubles
from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.base.times import shown_time
from roquet.cli import output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from roquet.admin import Admin

_CLEAR = "\x1b[H\x1b[J"
_NAME_MIN = 16
_NAME_MAX = 40
_FIGURES = 12 + 14 + 9
"""Columns of a table's figures: rate, messages or lag, members."""
_WIDE = _NAME_MAX + _FIGURES
_RED = "\x1b[31m"
_PLAIN = "\x1b[0m"


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment. `at_ms` is of a clock that never goes back."""

    at_ms: int
    now_ms: int
    stored: Mapping[str, int]
    """Topic -> messages ever stored."""
    taken: Mapping[str, int]
    """Group -> messages ever consumed: the sum of its offsets."""
    lag: Mapping[str, int]
    members: Mapping[str, int]
    troubles: Sequence[tuple[str, str, str]]
    """Level, place and text, the worst first."""


async def top(admin: Admin, options: argparse.Namespace) -> int:
    """Show the cluster until Ctrl-C, or --count times."""
    clock = SystemClock()
    before: Look | None = None
    shown = 0
    while options.count is None or shown < options.count:
        try:
            now = await look(admin, clock)
        except (Unreachable, OutcomeUnknown) as error:
            if before is None:
                raise
            output.error(str(error))
        else:
            _show(before, now, options)
            before = now
            shown += 1
        if options.count is None or shown < options.count:
            await clock.sleep(options.every)
    return 0


async def look(admin: Admin, clock: SystemClock) -> Look:
    """Ask the cluster once. Raises Refused, Unreachable."""
    stored: dict[str, int] = {}
    for topic in await admin.topics.names(system=False):
        try:
            bounds = (await admin.topics.offsets(topic)).values()
            stored[topic] = sum(it.max_offset for it in bounds)
        except Refused:
            continue  # deleted between two questions
    taken: dict[str, int] = {}
    lag: dict[str, int] = {}
    members: dict[str, int] = {}
    for group in await admin.groups.names(system=False):
        offsets = (await admin.groups.offsets(group)).values()
        taken[group] = sum(max(0, it.consumer_offset) for it in offsets)
        lag[group] = sum(max(0, it.broker_offset - it.consumer_offset) for it in offsets)
        online = await admin.groups.connection(group)
        members[group] = 0 if online is None else len(online.connections)
    found = [row for row in await troubles(admin) if row[0] != "fine"]
    found += [
        ("warning", group, f"behind by {behind} messages with no member online")
        for group, behind in lag.items()
        if behind and not members[group]
    ]
    return Look(clock.steady_ms(), clock.now_ms(), stored, taken, lag, members, found)


def frame(before: Look | None, now: Look, rows: int, columns: int = _WIDE) -> list[str]:
    """Return the lines of one look, of each table at most `rows`, those with most traffic first.

    Names are cut so that a row of a table is no wider than `columns`.
    """
    width = max(_NAME_MIN, min(_NAME_MAX, columns - _FIGURES))

    def named(name: str) -> str:
        return output.plain(name)[: width - 1].ljust(width)

    elapsed_s = max(0.001, (now.at_ms - before.at_ms) / 1000) if before else 0.0

    def rate(table: str, name: str) -> float | None:
        old = getattr(before, table).get(name) if before else None
        return None if old is None else max(0, getattr(now, table)[name] - old) / elapsed_s

    lines = [f"{shown_time(now.now_ms)}  {len(now.stored)} topics, {len(now.lag)} groups"]
    lines += [f"{level}: {place}: {output.plain(text)}" for level, place, text in now.troubles]
    topics = sorted(now.stored, key=lambda it: (-(rate("stored", it) or 0), it))
    lines += ["", f"{named('topic')}{'messages/s':>12}{'in all':>14}"]
    lines += [
        f"{named(it)}{_number(rate('stored', it)):>12}{now.stored[it]:>14}" for it in topics[:rows]
    ]
    groups = sorted(now.lag, key=lambda it: (-now.lag[it], it))
    lines += ["", f"{named('group')}{'messages/s':>12}{'lag':>14}{'members':>9}"]
    lines += [
        f"{named(it)}{_number(rate('taken', it)):>12}{now.lag[it]:>14}{now.members[it]:>9}"
        for it in groups[:rows]
    ]
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _show(before: Look | None, now: Look, options: argparse.Namespace) -> None:
    if options.output != "table":
        output.one(dataclasses.asdict(now), options.output)
        output.flush()
        return
    terminal = sys.stdout.isatty()
    colour = terminal and not os.environ.get("NO_COLOR")
    rows, columns = 10, _WIDE
    if terminal:
        size = os.get_terminal_size(sys.stdout.fileno())
        # A terminal that does not know its size says 0.
        rows, columns = max(1, (size.lines - 8) // 2), size.columns or _WIDE
        sys.stdout.write(_CLEAR)
    for line in frame(before, now, rows, columns):
        is_red = colour and line.startswith("problem")
        output.line(f"{_RED}{line}{_PLAIN}" if is_red else line)
    if not terminal:
        output.line("")
    output.flush()
