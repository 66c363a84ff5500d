"""What expressions mean that pulls bring with them, learnt from the pulls that were answered.

The services parse and judge an expression once. From then on the compiled part may answer pulls
that bring it: what an expression means depends on nothing but its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.store.tables.filters import Filter

KEPT_MAX = 4_096
"""Expressions known at a time; beyond that all are forgotten, and those in use come again."""


class Choice(NamedTuple):
    """Which messages an expression wants: tag codes, a filter; None for every message."""

    codes: Sequence[int] | None = None
    filter_by: Filter | None = None

    @property
    def is_everything(self) -> bool:
        """Whether no message is left out."""
        return self.codes is None and self.filter_by is None


EVERYTHING = Choice()


class Expressions:
    """Expressions by kind (`TAG`, `SQL92`) and text."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        """Know none."""
        self._kept_max = kept_max
        self._known: set[tuple[str, str]] = set()
        self.news: list[tuple[str, str, Choice] | None] = []
        """What was learnt since somebody emptied it, in order; None: all before is forgotten."""

    def note(self, kind: str, text: str, choice: Choice) -> None:
        """Know what an expression means."""
        if (kind, text) in self._known:
            return
        if len(self._known) >= self._kept_max:
            self._known.clear()
            self.news = [None]
        self._known.add((kind, text))
        self.news.append((kind, text, choice))
