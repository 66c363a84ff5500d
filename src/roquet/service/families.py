"""Numbers by names and labels, and the page of Prometheus that they make."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric


class Row(NamedTuple):
    """Numbers under one set of label values."""

    values: Sequence[str]
    counts: Sequence[float]
    """The number itself; of histograms the counts of the classes."""
    total: float
    """The sum of what was counted; of histograms alone."""


class Family(NamedTuple):
    """What is shown under one name: its rows are made as somebody goes over them."""

    name: str
    """Without the `_total` of counters."""
    text: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    labels: Sequence[str]
    bounds: Sequence[float]
    """Upper bounds of the classes, ascending; of histograms alone."""
    rows: Iterable[Row]


class _Page:
    """Families as a Prometheus registry has them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield what is asked for."""
        for family in self._families:
            yield _metric(family)


def _metric(family: Family) -> Metric:
    from prometheus_client import core  # noqa: PLC0415

    name, text, labels = family.name, family.text, family.labels
    if family.kind == "histogram":
        # As Java writes them: queries may name a class.
        names = [*map(repr, family.bounds), "+Inf"]
        classes = core.HistogramMetricFamily(name, text, labels=labels)
        for values, counts, total in family.rows:
            buckets = list(zip(names, itertools.accumulate(counts), strict=True))
            classes.add_metric(values, buckets, total)
        return classes
    kind = core.CounterMetricFamily if family.kind == "counter" else core.GaugeMetricFamily
    numbers = kind(name, text, labels=labels)
    for values, (number,), _ in family.rows:
        numbers.add_metric(values, number)
    return numbers


def page_of(families: Iterable[Family]) -> bytes:
    """Return families as Prometheus text; from any thread when their rows are lists."""
    from prometheus_client import generate_latest  # noqa: PLC0415

    return generate_latest(cast("CollectorRegistry", _Page(families)))
