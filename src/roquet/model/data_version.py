"""The version of a table that brokers compare to see whether it changed."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion:
    """Equal versions mean equal tables (Java: DataVersion). `timestamp` is Unix milliseconds."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int | None = None) -> DataVersion:
        """Return the version after a change made now."""
        return DataVersion(
            state_version=self.state_version if state_version is None else state_version,
            timestamp=now_ms,
            counter=self.counter + 1,
        )
