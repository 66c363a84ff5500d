"""Times as people type and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError

_SPAN = re.compile(r"-?([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def place_of(text: str, flag: str = "--to") -> str | int:
    """Return where a group goes on: earliest, latest, or a time in Unix milliseconds.

    Raises UsageError.
    """
    if text in ("earliest", "latest"):
        return text
    return time_of(text, flag, "earliest, latest, ")


def span_ms(text: str, flag: str) -> int:
    """Return a span like `90s`, `5m`, `1h` or `2d` in milliseconds. Raises UsageError."""
    span = _SPAN.fullmatch(text)
    if span is None or text.startswith("-"):
        raise UsageError(f"{flag} {text[:80]!r}: must be a span: 90s, 5m, 1h, 2d")
    return int(timedelta(**{_UNITS[span[2]]: int(span[1])}).total_seconds() * 1000)


def time_of(text: str, flag: str, more: str = "") -> int:
    """Return a time in Unix milliseconds from `1h` back, a date or milliseconds.

    Raises UsageError.
    """
    span = _SPAN.fullmatch(text)
    if span is not None:
        return SystemClock().now_ms() - span_ms(text.removeprefix("-"), flag)
    return date_of(text, flag, f"{more}a time back (1h, 30m, 2d), ")


def due_of(text: str, flag: str) -> tuple[int, bool]:
    """Return a time to come: (milliseconds of a span from now on, True) or (Unix time, False).

    Raises UsageError.
    """
    if _SPAN.fullmatch(text) is not None:
        return span_ms(text, flag), True
    return date_of(text, flag, "a span from now on (90s, 5m, 1h, 2d), "), False


def date_of(text: str, flag: str, more: str = "") -> int:
    """Return a time in Unix milliseconds from a date or milliseconds. Raises UsageError."""
    if text.isascii() and text.isdigit() and len(text) == 13:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{flag} {text[:80]!r}: must be {more}a date (2026-11-20T10:00) or Unix milliseconds"
        ) from None


def shown_time(time_ms: int) -> str:
    """Return a time for people with its zone, - for none and for what is no time."""
    return some_time(time_ms) or "-"


def some_time(time_ms: int) -> str | None:
    """Return a time for people with its zone, None for none and for what is no time."""
    if time_ms <= 0:
        return None
    try:
        local = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None
    return f"{local:%Y-%m-%d %H:%M:%S %Z}"


def up_text(said: str) -> str:
    """Return how long a broker runs, in the two largest units, of `[ 0 days, 3 hours, ... ]`."""
    units = [it.split() for it in said.strip("[ ]").split(",")]
    found = [(it[0], it[1][:1]) for it in units if len(it) == 2 and it[0].isdigit()]
    first = next((at for at, (count, _) in enumerate(found) if count != "0"), len(found) - 1)
    names = {"d": "d", "h": "h", "m": "min", "s": "s"}
    parts = [f"{count} {names.get(unit, unit)}" for count, unit in found[max(0, first) :][:2]]
    return " ".join(it for at, it in enumerate(parts) if at == 0 or not it.startswith("0 "))
