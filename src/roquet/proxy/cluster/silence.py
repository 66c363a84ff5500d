"""Brokers that take requests and answer nothing: a call in vain is not followed by many more.

A broker whose host drops packets, or whose process stands still, costs each call its whole time. A
request of a client may stand for many calls in turn, and one timer renews what lies at all brokers.

**Invariant.** A broker counts as silent only for `SILENT_MS` after a call that has waited in vain
for all of its time while no other call to that broker was answered; the first answer ends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Unreachable

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.base.errors import OutcomeUnknown

SILENT_MS = 1000
"""Then the next call tries again."""
VAIN_MS = 1000
"""Connecting for so long was no refusal."""
_SLACK_MS = 50
_BROKERS_MAX = 4096


class Silence:
    """Knows which brokers have answered nothing lately."""

    def __init__(self, clock: Clock) -> None:
        """Believe that each of them answers."""
        self._clock = clock
        self._until_ms: dict[str, int] = {}
        self._heard_ms: dict[str, int] = {}

    def now_ms(self) -> int:
        """Return the time that calls begin and end by."""
        return self._clock.steady_ms()

    def has(self, broker: str) -> bool:
        """Tell whether a call would only wait."""
        return self.now_ms() < self._until_ms.get(broker, 0)

    def answered(self, broker: str) -> None:
        """Note an answer."""
        if len(self._heard_ms) >= _BROKERS_MAX:
            self._heard_ms.clear()
        self._heard_ms[broker] = self.now_ms()
        self._until_ms.pop(broker, None)

    def failed(
        self, broker: str, began_ms: int, timeout_s: float, error: OutcomeUnknown | Unreachable
    ) -> None:
        """Note a call that began then and has no answer; most of them were refused at once."""
        now_ms = self.now_ms()
        took_ms = now_ms - began_ms
        in_vain = took_ms >= int(timeout_s * 1000) - _SLACK_MS
        if isinstance(error, Unreachable):
            in_vain = in_vain or took_ms >= VAIN_MS
        if in_vain and self._heard_ms.get(broker, -1) < began_ms:
            if len(self._until_ms) >= _BROKERS_MAX:
                self._until_ms.clear()
            self._until_ms[broker] = now_ms + SILENT_MS
