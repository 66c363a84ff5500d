"""How fast one address may connect: a bucket of connections that fills up again with time."""

from __future__ import annotations

ADDRESSES_MAX = 10_000
"""Addresses that are remembered; the one that was seen longest ago is forgotten first."""


class AcceptRate:
    """Sans-I/O: told who connects and when, it says whether that was too much."""

    def __init__(self, per_second: int, at_once: int) -> None:
        """`at_once` connections may come together, `per_second` for ever; 0 is no limit."""
        self._per_second = per_second
        self._at_once = at_once
        self._buckets: dict[str, tuple[float, int]] = {}

    def takes(self, host: str, now_ms: int) -> bool:
        """Tell whether a connection of this address is taken now; it is counted if so."""
        if not self._per_second:
            return True
        left, then_ms = self._buckets.pop(host, (float(self._at_once), now_ms))
        passed_ms = max(0, now_ms - then_ms)
        left = min(self._at_once, left + passed_ms * self._per_second / 1000)
        taken = left >= 1
        while len(self._buckets) >= ADDRESSES_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[host] = (left - taken, now_ms)
        return taken
