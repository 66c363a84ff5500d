"""What a process tells about itself in numbers, for Prometheus.

The Prometheus library is imported when somebody asks for the first time: it brings an HTTP client
and server with it, which cost a start more than everything here.
"""

from __future__ import annotations

import asyncio
import bisect
import functools
import importlib
import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from roquet.service.families import Family, PageWriter, Row
from roquet.service.process.collector import long_work
from roquet.service.slices import in_turns

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Container,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from roquet.service.lanes import Lanes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Rows = Callable[[], "Iterable[tuple[Sequence[str], float]]"]
"""Returns label values, in the order of the labels, each with its number."""
ClassRows = Callable[[], "Iterable[tuple[Sequence[str], Sequence[float], float]]"]
"""Returns label values with the counts of the classes, one more than bounds, and their sum."""


ROWS_MAX = 10_000
"""Rows of one distribution; names beyond are not counted one by one."""
FAMILY_ROWS_MAX = 50_000
"""Rows that are shown of one name, unless settings say otherwise."""
_SLICE = 64
"""Rows between two looks at the time."""
_TURN_S = 0.002
"""Time after which the loop does others' work."""


class Metrics:
    """The numbers of one process. Names get the prefix `roquet_`, those of RocketMQ `rocketmq_`."""

    def __init__(
        self,
        node: Mapping[str, str] | None = None,
        more: Mapping[str, str] | None = None,
        rows_max: int = FAMILY_ROWS_MAX,
        off: Container[str] = (),
    ) -> None:
        """Begin with none.

        `node` are labels that every number of RocketMQ's carries, `more` those that every number
        does. A name has at most `rows_max` rows. Names of RocketMQ's in `off`, without their
        prefix, are not shown.
        """
        self._collectors: dict[str, Collector] = {}
        self._more = dict(more or {})
        self._node = {**dict(node or {}), **self._more}
        self._rows_max = rows_max
        self._off = off
        self._left_out: dict[str, float] = {}
        self._before: list[Callable[[], Awaitable[None]]] = []
        self._gathering = asyncio.Lock()

    def shows(self, name: str) -> bool:
        """Return whether a name of RocketMQ's, without its prefix, is shown."""
        return name not in self._off

    def before(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Have `refresh` awaited before numbers are gathered: it may take its time in slices."""
        self._before.append(refresh)

    def standard(
        self, name: str, text: str, labels: Sequence[str], read: Rows, *, counts: bool = False
    ) -> None:
        """Show numbers under a name of RocketMQ's: rows of label values and a number.

        `counts` says that they only grow: the name gets `_total`.
        """
        name = f"rocketmq_{name}"
        self._add(name, _Standard(name, text, (self._node, tuple(labels)), read, counts=counts))

    def distribution(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        labels_of: Callable[[tuple[str, ...]], Sequence[str]] = tuple,
    ) -> Distribution:
        """Count numbers by classes under a name of RocketMQ's.

        `bounds` are the classes' upper bounds, ascending. `labels_of` makes label values of a key
        when somebody asks; by default the key is the values.
        """
        name = f"rocketmq_{name}"
        found = Distribution(name, text, (self._node, tuple(labels)), bounds, labels_of)
        self._add(name, found)
        return found

    def classes(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: Sequence[float],
        read: ClassRows,
    ) -> None:
        """Show numbers counted by classes elsewhere under a name of RocketMQ's."""
        name = f"rocketmq_{name}"
        self._add(name, _Classes(name, text, (self._node, tuple(labels)), bounds, read))

    def histogram(self, name: str, text: str, buckets: Sequence[float]) -> Distribution:
        """Make a distribution without labels, seconds by convention: its only key is `()`."""
        name = f"roquet_{name}"
        found = Distribution(name, text, (self._more, ()), buckets, tuple)
        # Shown from the start, as Prometheus wants numbers without labels to be.
        found.observe((), 0.0, 0)
        self._add(name, found)
        return found

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Make a number that is read when somebody asks."""
        name = f"roquet_{name}"
        self._add(
            name, _Standard(name, text, (self._more, ()), lambda: [((), read())], counts=False)
        )

    def watch_many(
        self,
        name: str,
        text: str,
        label: str,
        read: Callable[[], Mapping[str, float]],
        *,
        counts: bool = False,
    ) -> None:
        """Make numbers by label value that are read together when somebody asks.

        `counts` says that they only grow: the name gets `_total`.
        """
        name = f"roquet_{name}"
        rows = functools.partial(_rows, read)
        self._add(name, _Standard(name, text, (self._more, (label,)), rows, counts=counts))

    def watch_lanes(self, lanes: Lanes) -> None:
        """Show each lane's queue, running jobs and refusals."""
        for name, text, read in (
            ("lane_waiting", "Requests in the lane's queue", "waiting"),
            ("lane_running", "Requests begun and not ended", "running"),
            ("lane_refused", "Requests told that it is too busy", "refused"),
        ):
            of_lane = functools.partial(_by_lane, lanes, read)
            self.watch_many(name, text, "lane", of_lane, counts=read == "refused")
        self.watch_many(
            "lane_head_age_ms",
            "Milliseconds that the oldest waiting request has waited",
            "lane",
            lambda: {lane.config.name: float(lane.head_age_ms()) for lane in lanes.all()},
        )

    async def gather(self) -> list[Family]:
        """Return the numbers of now, their rows as lists.

        The loop has others' work done at least every few milliseconds: a page may be long.
        """
        async with self._gathering:
            for refresh in self._before:
                await refresh()
            return await in_turns(self._gathered())

    async def page(self) -> bytearray:
        """Return all numbers as Prometheus text, read and written in slices."""
        async with self._gathering:
            for refresh in self._before:
                await refresh()
            page = PageWriter()
            with long_work():
                await in_turns(self._each_row(page.begin))
            return page.finish()

    def _gathered(self) -> Generator[None, None, list[Family]]:
        found: list[Family] = []

        def begin(family: Family) -> Callable[[Row], None]:
            rows: list[Row] = []
            found.append(family._replace(rows=rows))
            return rows.append

        yield from self._each_row(begin)
        return found

    def _each_row(
        self, begin_family: Callable[[Family], Callable[[Row], None]]
    ) -> Generator[None, None, None]:
        """Give each row to what `begin_family` returned for its family; yield when time is up."""
        begun = time.perf_counter()
        for family in self._families():
            take = begin_family(family)
            for at, row in enumerate(self._some(family), 1):
                take(row)
                if not at % _SLICE and time.perf_counter() - begun > _TURN_S:
                    yield
                    begun = time.perf_counter()
            if time.perf_counter() - begun > _TURN_S:
                yield
                begun = time.perf_counter()

    def _families(self) -> Iterator[Family]:
        yield from (collector.family() for collector in list(self._collectors.values()))
        # Made last: by then all others have been gone over.
        yield from self._what_is_left_out()

    def render(self) -> bytes:
        """Return all numbers as Prometheus text at once: for processes with few of them."""
        page = PageWriter()
        for _ in self._each_row(page.begin):
            pass
        return bytes(page.finish())

    def _some(self, family: Family) -> Iterator[Row]:
        """Yield as many rows of a family as are shown, and count the others."""
        rows = iter(family.rows)
        yield from itertools.islice(rows, self._rows_max)
        if left_out := sum(1 for _ in rows):
            self._left_out[family.name] = float(left_out)
        else:
            self._left_out.pop(family.name, None)

    def _what_is_left_out(self) -> Iterator[Family]:
        if self._left_out:
            text = "Rows of a metric beyond metricsOtelCardinalityLimit, not shown this time"
            rows = [
                Row((*self._more.values(), name), (count,), 0.0)
                for name, count in self._left_out.items()
            ]
            labels = [*self._more, "metric"]
            yield Family("roquet_metrics_left_out", text, "gauge", labels, (), rows)

    def _add(self, name: str, collector: Collector) -> None:
        if name in self._collectors:
            raise ValueError(f"two numbers are called {name}")
        if self.shows(name.removeprefix("rocketmq_")):
            self._collectors[name] = collector


class Collector(Protocol):
    """What has the numbers of one name."""

    def family(self) -> Family:
        """Return the numbers of now."""
        ...


class _Standard:
    """A collector for one of RocketMQ's names."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[Mapping[str, str], tuple[str, ...]],
        read: Rows,
        *,
        counts: bool,
    ) -> None:
        self._name, self._text, self._read = name, text, read
        self._node = tuple(labels[0].values())
        self._labels = [*labels[0], *labels[1]]
        self._kind = "counter" if counts else "gauge"

    def family(self) -> Family:
        """Return the numbers of now."""
        return Family(self._name, self._text, self._kind, self._labels, (), self._rows())

    def _rows(self) -> Iterator[Row]:
        for values, number in self._read():
            yield Row((*self._node, *values), (number,), 0.0)


class _Classes:
    """A collector for numbers that were counted by classes elsewhere."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[Mapping[str, str], tuple[str, ...]],
        bounds: Sequence[float],
        read: ClassRows,
    ) -> None:
        self._name, self._text, self._read = name, text, read
        self._node = tuple(labels[0].values())
        self._labels = [*labels[0], *labels[1]]
        self._bounds = tuple(map(float, bounds))

    def family(self) -> Family:
        """Return the numbers of now."""
        return Family(self._name, self._text, "histogram", self._labels, self._bounds, self._rows())

    def _rows(self) -> Iterator[Row]:
        for values, counts, total in self._read():
            assert len(counts) == len(self._bounds) + 1, "one class has no bound"
            yield Row((*self._node, *values), counts, total)


class Distribution:
    """Numbers counted by classes, under one of RocketMQ's names."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[Mapping[str, str], tuple[str, ...]],
        bounds: Sequence[float],
        labels_of: Callable[[tuple[str, ...]], Sequence[str]],
    ) -> None:
        self._name, self._text, self._labels_of = name, text, labels_of
        self._node = list(labels[0].values())
        self._labels = [*labels[0], *labels[1]]
        self._bounds = tuple(map(float, bounds))
        self._rows: dict[tuple[str, ...], list[float]] = {}

    def observe(self, key: tuple[str, ...], number: float, count: int = 1) -> None:
        """Count a number, or `count` of them; beyond so many keys nothing new is counted."""
        row = self._rows.get(key) or self._row(key)
        if row is None:
            return
        row[bisect.bisect_left(self._bounds, number)] += count
        row[-1] += number * count

    def add(self, key: tuple[str, ...], counts: Sequence[int], total: float) -> None:
        """Count numbers that were counted by the same classes elsewhere; `total` is their sum.

        `counts` has one more for those above the last bound. Raises ValueError if it has not.
        """
        row = self._row(key)
        if row is not None:
            for place, (count, _) in enumerate(zip(counts, row[:-1], strict=True)):
                row[place] += count
            row[-1] += total

    def _row(self, key: tuple[str, ...]) -> list[float] | None:
        row = self._rows.get(key)
        if row is None and len(self._rows) < ROWS_MAX:
            # The classes, the one without a bound, the sum.
            row = self._rows[key] = [0.0] * (len(self._bounds) + 2)
        return row

    def forget(self, key: tuple[str, ...]) -> None:
        """Drop what was counted under a key."""
        self._rows.pop(key, None)

    def family(self) -> Family:
        """Return the numbers of now."""
        rows = (
            Row((*self._node, *self._labels_of(key)), row[:-1], row[-1])
            for key, row in list(self._rows.items())
        )
        return Family(self._name, self._text, "histogram", self._labels, self._bounds, rows)


def prepare() -> None:
    """Import what rendering needs; from any thread."""
    importlib.import_module("prometheus_client")


def _rows(read: Callable[[], Mapping[str, float]]) -> Iterable[tuple[Sequence[str], float]]:
    return (((value,), number) for value, number in read().items())


def _by_lane(lanes: Lanes, what: str) -> dict[str, float]:
    return {lane.config.name: float(getattr(lane, what)) for lane in lanes.all()}
