"""Log lines that a peer can cause are limited: one line per thing and span, then a count."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from roquet.base.clock import Clock

KEYS_MAX = 1024
"""How many things are remembered; a flood of new ones makes the oldest forgotten."""

_SHOWN_MAX = 300


def one_line(text: str) -> str:
    """Make text from a peer safe to log: one printable line of bounded length."""
    shown = text[:_SHOWN_MAX]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in shown)
    return shown if len(text) <= _SHOWN_MAX else shown + "…"


class RateLog:
    """Writes one warning per key and span; the next one says how many were left out."""

    def __init__(self, log: logging.Logger, clock: Clock, every_s: float = 10.0) -> None:
        """Write to `log`, at most once in `every_s` seconds for each key."""
        self._log = log
        self._clock = clock
        self._every_ms = int(every_s * 1000)
        self._last: dict[Hashable, tuple[int, int]] = {}

    def warning(self, key: Hashable, text: str, *, error: BaseException | None = None) -> None:
        """Log `text` unless the same key was logged within the span."""
        self._write(logging.WARNING, key, text, error)

    def error(self, key: Hashable, text: str, *, error: BaseException | None = None) -> None:
        """Log `text` as an error unless the same key was logged within the span."""
        self._write(logging.ERROR, key, text, error)

    def _write(self, level: int, key: Hashable, text: str, error: BaseException | None) -> None:
        now_ms = self._clock.steady_ms()
        last_ms, left_out = self._last.pop(key, (now_ms - self._every_ms, 0))
        if now_ms - last_ms < self._every_ms:
            self._last[key] = (last_ms, left_out + 1)
            return
        while len(self._last) >= KEYS_MAX:
            del self._last[next(iter(self._last))]
        self._last[key] = (now_ms, 0)
        more = f" ({left_out} more like it since)" if left_out else ""
        self._log.log(level, "%s%s", one_line(text), more, exc_info=error)
