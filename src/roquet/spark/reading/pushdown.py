"""Filters that Spark offers, as a narrower scope of what is read. Pure.

Spark evaluates every filter again: a scope may be too wide, never too narrow. Store times are not
used, since a queue whose broker's clock went back is not in their order; `startingTimestamp` is
there for those who know.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from roquet.spark.offsets import OFFSET_MAX, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql.datasource import Filter

    from roquet.spark.offsets import QueueKey

TAGS_MAX: Final = 64
"""More tags than these are left to Spark."""
_SETS = {"topic": "topics", "brokerName": "brokers", "queueId": "queue_ids", "tags": "tags"}


@dataclasses.dataclass(frozen=True, slots=True)
class Scope:
    """What may match; None stands for everything."""

    topics: frozenset[Any] | None = None
    brokers: frozenset[Any] | None = None
    queue_ids: frozenset[Any] | None = None
    tags: frozenset[Any] | None = None
    low: int = 0
    """First queue offset."""
    high: int = OFFSET_MAX
    """The offset behind the last."""

    @classmethod
    def of(cls, filters: Iterable[Filter]) -> Self:
        """Return the scope that all filters together leave."""
        scope = cls()
        for found in filters:
            scope = scope._narrowed(found)
        return scope

    def has(self, queue: QueueKey) -> bool:
        """Whether rows of a queue may match."""
        return (
            (self.topics is None or queue.topic in self.topics)
            and (self.brokers is None or queue.broker in self.brokers)
            and (self.queue_ids is None or queue.queue_id in self.queue_ids)
        )

    def cut(self, whole: Range) -> Range:
        """Return the part of a range that may match; it may be empty."""
        begin = min(max(whole.begin, self.low), whole.end)
        return Range(whole.queue, begin, max(begin, min(whole.end, self.high)))

    def tag_expression(self) -> str | None:
        """Return the tags as brokers take them; None when they cannot narrow anything."""
        tags = self.tags
        plain = tags is not None and all(_is_plain(tag) for tag in tags)
        if tags is None or not plain or not 0 < len(tags) <= TAGS_MAX:
            return None
        return " || ".join(sorted(tags))

    def _narrowed(self, found: Filter) -> Self:
        attribute: tuple[str, ...] = getattr(found, "attribute", ())
        name = attribute[0] if len(attribute) == 1 else ""
        values = _values(found)
        if name in _SETS and values is not None:
            known = getattr(self, _SETS[name])
            both = values if known is None else known & values
            changes: dict[str, Any] = {_SETS[name]: both}
            return dataclasses.replace(self, **changes)
        if name == "queueOffset":
            low, high = _bounds(found, values)
            return dataclasses.replace(self, low=max(self.low, low), high=min(self.high, high))
        return self


def _values(found: Filter) -> frozenset[Any] | None:
    if isinstance(found, EqualTo | EqualNullSafe):
        return frozenset((found.value,))
    return frozenset(found.value) if isinstance(found, In) else None


def _bounds(found: Filter, values: frozenset[Any] | None) -> tuple[int, int]:
    """Return the offsets that a filter leaves, the end not included."""
    if values is not None:
        numbers = [value for value in values if isinstance(value, int)]
        return (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    bounds: dict[type[Filter], Callable[[int], tuple[int, int]]] = {
        GreaterThan: lambda value: (value + 1, OFFSET_MAX),
        GreaterThanOrEqual: lambda value: (value, OFFSET_MAX),
        LessThan: lambda value: (0, value),
        LessThanOrEqual: lambda value: (0, value + 1),
    }
    value = getattr(found, "value", None)
    if type(found) not in bounds or not isinstance(value, int):
        return 0, OFFSET_MAX
    return bounds[type(found)](value)


def _is_plain(tag: object) -> bool:
    """Whether an expression can name this tag."""
    if not isinstance(tag, str):
        return False
    return bool(tag) and tag == tag.strip() and "|" not in tag and tag != "*"
