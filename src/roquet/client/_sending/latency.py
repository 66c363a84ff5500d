"""Which brokers to spare for a while, by how long their last answers took (client.md). Pure."""

from __future__ import annotations

_PAUSES_MS = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000))
"""Latency from which on a broker is spared, and for how long; the first that fits counts."""
FAILED_MS = 10_000
"""What a try that failed counts as."""


class LatencyBook:
    """Remembers until when each broker is spared. Times in steady milliseconds."""

    def __init__(self) -> None:
        """Begin with no bad experience."""
        self._until_ms: dict[str, int] = {}

    def note(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """Take note of one try that ended now; a quick answer ends the pause of a slow one."""
        for limit_ms, pause_ms in _PAUSES_MS:
            if latency_ms >= limit_ms:
                self._until_ms[broker_name] = now_ms + pause_ms
                return
        self._until_ms.pop(broker_name, None)

    def is_spared(self, broker_name: str, now_ms: int) -> bool:
        """Tell whether another broker is better now."""
        until_ms = self._until_ms.get(broker_name)
        return until_ms is not None and now_ms < until_ms
