"""What counters and histograms grew by since the last time that somebody took them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.service.families import Family, Row

Key = tuple[str, tuple[str, ...]]
"""Name of a family, values of its labels."""
Counted = tuple[tuple[float, ...], float]
"""Counts and sum of a row."""


class Deltas:
    """Remembers the numbers that were taken. A row that shrank has begun anew."""

    def __init__(self) -> None:
        """Begin with 0 everywhere, as the process did."""
        self._taken: dict[Key, Counted] = {}

    def since(self, family: Family, row: Row) -> Row:
        """Return a row less what was taken; a gauge as it stands."""
        before = self._taken.get(_key(family, row))
        if before is None or family.kind == "gauge":
            return row
        counts, total = before
        grown = [now - then for now, then in zip(row.counts, counts, strict=True)]
        return row if min(grown) < 0 else row._replace(counts=grown, total=row.total - total)

    def take(self, family: Family, row: Row) -> None:
        """Note that a row, as it was before `since`, has reached whom it was for."""
        if family.kind != "gauge":
            self._taken[_key(family, row)] = (tuple(row.counts), row.total)

    def keep(self, families: Sequence[Family]) -> None:
        """Forget the rows that are no longer shown."""
        shown = {_key(family, row) for family in families for row in family.rows}
        self._taken = {key: row for key, row in self._taken.items() if key in shown}


def _key(family: Family, row: Row) -> Key:
    return family.name, tuple(row.values)
