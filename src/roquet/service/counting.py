"""Counts by label values, bounded: what names clients choose must not take memory for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROWS_MAX = 10_000
"""Sets of label values that are counted; those beyond are not."""


class LabelCounts:
    """Counts that only grow, by tuples of label values."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, values: tuple[str, ...], number: int = 1) -> None:
        """Count `number` under label values; of new ones only as long as there is room."""
        known = self._counts.get(values)
        if known is not None or len(self._counts) < ROWS_MAX:
            self._counts[values] = (known or 0) + number

    def rows(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """Return the label values, each with its count."""
        return [(values, float(count)) for values, count in self._counts.items()]
