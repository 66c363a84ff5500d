"""When a message is to be delivered: as a timer of 5.x brokers, or as a delay level of 4.x ones."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from typing import cast

from roquet.base.errors import UsageError
from roquet.protocol import properties, versions

DELAY_MAX_S = 10 * 366 * 86_400.0
"""The longest delay that any broker can be configured for: ten years."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DEFAULT_LEVELS = 18
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_LEVEL_OF_MS = {
    int(word[:-1]) * _UNIT_MS[word[-1]]: level
    for level, word in enumerate(properties.DELAY_LEVELS.split(), 1)
}
_ROOM = 64
"""Bytes of properties that a time takes at most."""


@dataclasses.dataclass(frozen=True, slots=True)
class Due:
    """A time of delivery, of which exactly one field is set. Milliseconds."""

    delay_ms: int | None = None
    at_ms: int | None = None
    """Unix time."""

    def properties_for(self, version: int, levels: int) -> str:
        """Return the properties that a broker of this version understands.

        `levels` is how many delay levels brokers have. Raises UsageError where a broker before
        5.0 has no level of exactly this delay.
        """
        if version >= versions.V5_0_0:
            if self.at_ms is not None:
                return properties.write({properties.TIMER_DELIVER_MS: str(self.at_ms)})
            return properties.write({properties.TIMER_DELAY_MS: str(self.delay_ms)})
        name = versions.describe(version)
        if self.at_ms is not None:
            raise UsageError(
                f"the broker ({name}) has no timers: it can delay by a level, not until a time"
            )
        if levels != _DEFAULT_LEVELS:
            raise UsageError(
                f"the broker ({name}) has no timers and {levels} delay levels of its own, whose"
                " lengths are not known here: give delay_level"
            )
        level = _LEVEL_OF_MS.get(self.delay_ms or 0)
        if level is None:
            raise UsageError(
                f"the broker ({name}) has no timers and no delay level of {self.delay_ms} ms,"
                f" only {properties.DELAY_LEVELS}"
            )
        return properties.write({properties.DELAY: str(level)})


def due_of(delay: timedelta | float | None, at: datetime | None) -> Due | None:
    """Return when a send asks for delivery; None for at once. Raises UsageError."""
    if delay is None and at is None:
        return None
    if delay is not None and at is not None:
        raise UsageError("give one of delay and at")
    if at is not None:
        return Due(at_ms=_unix_ms(at))
    delay_s = _seconds(delay)
    if not 0.0 <= delay_s <= DELAY_MAX_S:
        raise UsageError(f"a delay of {delay} is not within 0 s and ten years"[:120])
    return Due(delay_ms=math.ceil(round(delay_s * 1000.0, 3))) if delay_s else None


def check_room(text: str) -> None:
    """Check that properties leave room for a time. Raises UsageError."""
    if properties.size(text) + _ROOM > properties.SIZE_MAX:
        raise UsageError(
            f"properties of a delayed message are longer than {properties.SIZE_MAX - _ROOM} bytes"
        )


def _seconds(delay: object) -> float:
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    # Callers without type checks may give anything; True is no second.
    if (
        isinstance(delay, bool)
        or not isinstance(delay, int | float)
        or (isinstance(delay, float) and math.isnan(delay))
    ):
        raise UsageError(f"a delay is a timedelta or a number of seconds, not {delay!r:.80}")
    return float(min(max(delay, -1), 2 * DELAY_MAX_S))


def _unix_ms(at: datetime) -> int:
    if not isinstance(cast("object", at), datetime):
        raise UsageError(f"a time of delivery is a datetime, not {at!r:.80}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise UsageError(
            "a time of delivery needs a time zone, as in datetime.now(UTC) + timedelta(hours=1)"
        )
    # Up to the next millisecond, in whole numbers.
    unix_ms = -((_EPOCH - at) // timedelta(milliseconds=1))
    if unix_ms <= 0:
        raise UsageError(f"a time of delivery is after 1970, not {at}")
    return unix_ms
