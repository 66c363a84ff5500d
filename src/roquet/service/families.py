"""Numbers by names and labels, and the page of Prometheus that they make."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_LINES = 256
"""Lines that are encoded together."""
_NUMBERS_MAX = 4096
"""Numbers whose text is kept: most are small and often the same."""
_NO_LABEL = re.compile(r"^[0-9]|[^a-zA-Z0-9_]")
"""What a label's name cannot have; it is replaced, as the library does."""


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


class PageWriter:
    """Writes families as Prometheus text (version 0.0.4), row by row, so that others have turns.

    The library has only a function for a whole page, which takes ten times as long for rows.
    """

    def __init__(self) -> None:
        """Begin an empty page."""
        self._lines: list[str] = []
        # Grows in place: to join parts of many megabytes would keep everybody waiting.
        self._page = bytearray()

    def begin(self, family: Family) -> Callable[[Row], None]:
        """Write the head of a family, and return what writes one of its rows."""
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        text = family.text.replace("\\", r"\\").replace("\n", r"\n")
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n")
        if family.kind == "histogram":
            return self._classes(family)
        template, order = _template(name, family.labels)

        def write(row: Row) -> None:
            self._write(template, order, row.values, row.counts[0])

        return write

    def finish(self) -> bytearray:
        """Return the page."""
        self._encode()
        return self._page

    def _classes(self, family: Family) -> Callable[[Row], None]:
        # As Java writes them: queries may name a class.
        bounds = [*map(repr, family.bounds), "+Inf"]
        of_class = _template(f"{family.name}_bucket", [*family.labels, "le"])
        of_count = _template(f"{family.name}_count", family.labels)
        of_sum = _template(f"{family.name}_sum", family.labels)

        def write(row: Row) -> None:
            count = 0.0
            for bound, count in zip(bounds, itertools.accumulate(row.counts), strict=True):
                self._write(*of_class, (*row.values, bound), count)
            self._write(*of_count, row.values, count)
            self._write(*of_sum, row.values, row.total)

        return write

    def _write(
        self, template: str, order: Sequence[int], values: Sequence[str], number: float
    ) -> None:
        whole = "".join(values)
        if '"' in whole or "\\" in whole or "\n" in whole:
            values = [_escaped(value) for value in values]
        self._lines.append(template % (*[values[at] for at in order], number_text(number)))
        if len(self._lines) >= _LINES:
            self._encode()

    def _encode(self) -> None:
        self._page += "".join(self._lines).encode()
        self._lines.clear()


def _template(name: str, labels: Sequence[str]) -> tuple[str, Sequence[int]]:
    """Return a line with a place for each label value and the number, and the values' order."""
    order = sorted(range(len(labels)), key=labels.__getitem__)
    places = ",".join(f'{_NO_LABEL.sub("_", labels[at])}="%s"' for at in order)
    return (f"{name}{{{places}}} %s\n" if places else f"{name} %s\n"), order


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@functools.lru_cache(_NUMBERS_MAX)
def number_text(number: float) -> str:
    """Return a number as Prometheus has it."""
    from prometheus_client import utils  # noqa: PLC0415

    # Without types in the library.
    text: str = cast("Any", utils).floatToGoString(number)
    return text
