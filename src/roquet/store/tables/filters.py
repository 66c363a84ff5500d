"""The SQL92 filters of consumer groups: those of `consumerFilter.json` and of heartbeats.

A filter is known by topic and group. A subscription with a greater version replaces it; it is
marked dead when the group leaves and forgotten a day later, so that a group that comes back in
between finds it again (spec: broker (l), store §8).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

from roquet._native import Filter as NativeFilter
from roquet.model.subscription import ExpressionType
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.sql92.compiler import compile_sql
from roquet.protocol.tags import ExpressionError
from roquet.service.ratelog import RateLog
from roquet.store.tables.bloom import Bloom
from roquet.store.tables.key_values import Rows, TableCodec
from roquet.store.tables.room import Room, text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from roquet.base.clock import Clock
    from roquet.model.subscription import SubscriptionData
    from roquet.store.tables.key_values import TableForm

log = logging.getLogger(__name__)

Filter: TypeAlias = NativeFilter
"""A compiled filter; readers of the store take it."""

_Key: TypeAlias = tuple[str, str]
"""Group and topic."""

DEAD_KEPT_MS = 24 * 3_600_000
LOADED_DEAD_MS = 30_000
"""Filters of the file count as dead since so long before the start."""
FILTERS_MAX = 100_000
_FILTER_SIZE = 700
"""Bytes of a filter in the file beside its texts, and some more."""


@functools.lru_cache(maxsize=2_000)
def compiled(expression: str) -> Filter:
    """Return the filter for an expression. Raises ExpressionError."""
    return NativeFilter(compile_sql(expression))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFilter:
    """One group's filter for one topic (Java: ConsumerFilterData). Times are Unix milliseconds."""

    topic: str
    group: str
    expression: str
    version: int
    """Of the subscription that brought it."""
    born_ms: int
    dead_ms: int = 0
    """Since when nobody uses it; 0 while somebody does."""

    @property
    def filter(self) -> Filter:
        """The compiled expression."""
        return compiled(self.expression)


class FilterTable:
    """Topic and group -> filter, with the file."""

    def __init__(self, form: TableForm, clock: Clock) -> None:
        """Begin empty; `load` takes the durable filters."""
        self._table = form.table(TableCodec(self._decode, self._encode))
        self._clock = clock
        self._bloom = Bloom()
        self._by_group: dict[str, dict[str, ConsumerFilter]] = {}
        self._retry: dict[str, Filter] = {}
        self._room = Room("filters", FILTERS_MAX)
        self._log = RateLog(log, clock)
        self._listeners: list[Callable[[str], object]] = []

    def __len__(self) -> int:
        return self._room.entries

    def load(self) -> None:
        """Take over the durable filters as dead ones. Raises Corrupt when no copy is whole.

        A filter that cannot be used is named in the log and left out; the others stay.
        """
        self._table.load()
        for found in self._table.rows().values():
            self._take(found)

    async def persist(self) -> None:
        """Forget what has been dead for a day, and make the rest durable if anything changed."""
        self._forget_dead()
        await self._table.flush()

    def listen(self, listener: Callable[[str], object]) -> None:
        """Have `listener(group)` called after every change of a filter."""
        self._listeners.append(listener)

    # --- looking --------------------------------------------------------------------------------

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's filter for a topic."""
        return self._by_group.get(group, {}).get(topic)

    def all(self) -> Iterable[ConsumerFilter]:
        """Yield every filter."""
        for topics in self._by_group.values():
            yield from topics.values()

    def for_retries(self, group: str) -> Filter | None:
        """Return what chooses by each message's topic of origin; None when the group has none."""
        topics = self._by_group.get(group)
        if not topics:
            return None
        found = self._retry.get(group)
        if found is None:
            steps = {topic: compile_sql(entry.expression) for topic, entry in topics.items()}
            found = self._retry[group] = NativeFilter.by_origin(steps)
        return found

    # --- following the heartbeats ---------------------------------------------------------------

    def follow(self, group: str, subscriptions: Mapping[str, SubscriptionData] | None) -> None:
        """Take over what a group's members subscribe to; None when the last has gone."""
        wanted = {
            topic: subscription
            for topic, subscription in (subscriptions or {}).items()
            if subscription.expression_type == ExpressionType.SQL92 and subscription.expression
        }
        known = self._by_group.get(group)
        if not wanted and not known:
            return
        for subscription in wanted.values():
            self._register(group, subscription)
        for topic, entry in (known or {}).items():
            if topic not in wanted and not entry.dead_ms:
                self._put(dataclasses.replace(entry, dead_ms=self._clock.now_ms()))

    def _register(self, group: str, wanted: SubscriptionData) -> None:
        old = self.find(wanted.topic, group)
        if old is not None and wanted.version <= old.version:
            same = (old.version, old.expression) == (wanted.version, wanted.expression)
            if same and old.dead_ms:
                self._put(dataclasses.replace(old, dead_ms=0))
            return
        more = _size(wanted.topic, group, wanted.expression)
        more -= 0 if old is None else _size(wanted.topic, group, old.expression)
        if not self._room.fits(old is None, more):
            self._log.warning("full", f"the table of filters is full: that of {group} is not kept")
            return
        try:
            compiled(wanted.expression)
        except ExpressionError as error:
            log.warning("filter of %s for %s is refused: %s", group, wanted.topic, error)
            return
        self._put(
            ConsumerFilter(
                topic=wanted.topic,
                group=group,
                expression=wanted.expression,
                version=wanted.version,
                born_ms=self._clock.now_ms(),
            )
        )

    def _put(self, entry: ConsumerFilter) -> None:
        self._table.put((entry.group, entry.topic), entry)
        self._take(entry)

    def _take(self, entry: ConsumerFilter) -> None:
        topics = self._by_group.setdefault(entry.group, {})
        old = topics.get(entry.topic)
        before = 0 if old is None else _size(entry.topic, entry.group, old.expression)
        size = _size(entry.topic, entry.group, entry.expression)
        self._room.add(old is None, size - before)
        topics[entry.topic] = entry
        self._note_change(entry.group)

    def _note_change(self, group: str) -> None:
        self._retry.pop(group, None)
        for listener in self._listeners:
            listener(group)

    def _forget_dead(self) -> None:
        oldest_ms = self._clock.now_ms() - DEAD_KEPT_MS
        for entry in list(self.all()):
            if entry.dead_ms and entry.dead_ms < oldest_ms:
                topics = self._by_group[entry.group]
                del topics[entry.topic]
                self._table.delete((entry.group, entry.topic))
                self._room.add(-1, -_size(entry.topic, entry.group, entry.expression))
                if not topics:
                    del self._by_group[entry.group]
                self._note_change(entry.group)

    # --- the file -------------------------------------------------------------------------------

    def _encode(self, table: Rows[_Key, ConsumerFilter]) -> bytes:
        by_group: dict[str, list[ConsumerFilter]] = {}
        for entry in table.rows.values():
            by_group.setdefault(entry.group, []).append(entry)
        by_topic: dict[str, dict[str, Any]] = {}
        for entry in (entry for entries in by_group.values() for entry in entries):
            topic = by_topic.setdefault(entry.topic, {"groupFilterData": {}, "topic": entry.topic})
            topic["groupFilterData"][entry.group] = {
                "bloomFilterData": {
                    "bitNum": self._bloom.bits,
                    "bitPos": self._bloom.positions(f"{entry.group}#{entry.topic}"),
                },
                "bornTime": entry.born_ms,
                "clientVersion": entry.version,
                "consumerGroup": entry.group,
                "dead": entry.dead_ms != 0,
                "deadTime": entry.dead_ms,
                "expression": entry.expression,
                "expressionType": "SQL92",
                "topic": entry.topic,
            }
        return fastjson.pretty({"filterDataByTopic": by_topic})

    def _decode(self, data: bytes) -> Rows[_Key, ConsumerFilter]:
        now_ms = self._clock.now_ms()
        rows: dict[_Key, ConsumerFilter] = {}
        for found in _decode(data):
            try:
                compiled(found.expression)
            except ExpressionError as error:
                log.warning("filter of %s for %s is left out: %s", found.group, found.topic, error)
                continue
            dead_ms = found.dead_ms or now_ms - LOADED_DEAD_MS
            rows[found.group, found.topic] = dataclasses.replace(found, dead_ms=dead_ms)
        return Rows(rows)


def _size(topic: str, group: str, expression: str) -> int:
    """Return how many bytes a filter takes in the file, rounded up."""
    return _FILTER_SIZE + 3 * text_size(topic) + 2 * text_size(group) + text_size(expression)


def _decode(data: bytes) -> list[ConsumerFilter]:
    """Read the file; Java's has the same shape. Raises JsonError."""
    found: list[ConsumerFilter] = []
    for topic, groups in fields.obj(fastjson.read_object(data), "filterDataByTopic").items():
        entries = fields.obj(fields.as_object(groups, "a topic"), "groupFilterData")
        for group, value in entries.items():
            entry = fields.as_object(value, "a filter")
            if fields.text(entry, "expressionType") != ExpressionType.SQL92:
                continue
            found.append(
                ConsumerFilter(
                    topic=str(topic),
                    group=str(group),
                    expression=fields.text(entry, "expression"),
                    version=fields.i64(entry, "clientVersion"),
                    born_ms=fields.i64(entry, "bornTime"),
                    dead_ms=fields.i64(entry, "deadTime"),
                )
            )
    return found
