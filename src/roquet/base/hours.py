"""Hours of the day in settings, as RocketMQ writes them: `04`, or `04;16`."""

from __future__ import annotations

import datetime as dt


def hours(text: str) -> frozenset[int]:
    """Return the hours that a text names. Raises ValueError."""
    return frozenset(int(part) for part in text.split(";") if part.strip())


def hours_fault(text: str) -> str | None:
    """Return what is wrong with a text of hours; None for a good one."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        return None
    return "must be hours within 0..23, separated by `;`"


def hour_of(time_ms: int) -> int:
    """Return the hour of the day, local time, of Unix milliseconds."""
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).astimezone().hour
