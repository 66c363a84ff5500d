"""A set of offsets kept as ranges: what is settled in a queue is mostly one long stretch."""

from __future__ import annotations

import bisect


class OffsetSet:
    """Offsets of 0 or more. Its size in memory is the number of gaps, not of offsets. Pure."""

    def __init__(self) -> None:
        """Begin empty."""
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, offset: int) -> bool:
        at = bisect.bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The stretches as (first, one after the last), in order."""
        return list(zip(self._starts, self._ends, strict=True))

    def add(self, offset: int) -> None:
        """Take an offset in; once is enough."""
        at = bisect.bisect_right(self._starts, offset)
        if at > 0 and offset < self._ends[at - 1]:
            return
        joins_left = at > 0 and self._ends[at - 1] == offset
        joins_right = at < len(self._starts) and self._starts[at] == offset + 1
        if joins_left and joins_right:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_left:
            self._ends[at - 1] = offset + 1
        elif joins_right:
            self._starts[at] = offset
        else:
            self._starts.insert(at, offset)
            self._ends.insert(at, offset + 1)

    def next_missing(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in the set."""
        at = bisect.bisect_right(self._starts, offset) - 1
        return self._ends[at] if at >= 0 and offset < self._ends[at] else offset

    def drop_below(self, offset: int) -> None:
        """Forget everything below `offset`."""
        at = bisect.bisect_right(self._starts, offset) - 1
        if at < 0:
            return
        if self._ends[at] > offset:
            self._starts[at] = offset
            at -= 1
        del self._starts[: at + 1]
        del self._ends[: at + 1]
