"""Writes metrics to the log, a line a number."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.service.exporting.deltas import Deltas
from roquet.service.lifecycle import Timer
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.service.exporting.config import ExporterConfig
    from roquet.service.families import Family, Row
    from roquet.service.metrics import Metrics

log = logging.getLogger("roquet.metrics")

LINES_MAX = 10_000
"""Lines that are written at a time; one more says how many there would be."""


class MetricsLog:
    """Writes from `start` to `stop`. A service."""

    def __init__(self, metrics: Metrics, rules: ExporterConfig) -> None:
        """Write nothing yet."""
        self._metrics = metrics
        self._rules = rules
        self._deltas = Deltas()

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Writing."""
        every_s = self._rules.log_every_ms / 1000
        return (Timer("log metrics", self.write, every_s, every_s),)

    async def start(self) -> None:
        """Need nothing."""

    async def stop(self) -> None:
        """Have nothing to give back."""

    async def write(self) -> None:
        """Write all numbers once."""
        families = await self._metrics.gather()
        written = left_out = 0
        async for line in in_slices(self._lines(families), 100):
            if written < LINES_MAX:
                log.info("%s", line)
                written += 1
            else:
                left_out += 1
        if left_out:
            log.warning("%d lines of metrics are left out: at most %d", left_out, LINES_MAX)
        if self._rules.in_delta:
            self._deltas.keep(families)

    def _lines(self, families: Sequence[Family]) -> Iterator[str]:
        for family in families:
            for row in family.rows:
                if not self._rules.in_delta:
                    yield _line(family, row)
                    continue
                yield _line(family, self._deltas.since(family, row))
                self._deltas.take(family, row)


def _line(family: Family, row: Row) -> str:
    pairs = zip(family.labels, row.values, strict=True)
    labels = ",".join(f"{name}={value}" for name, value in pairs)
    if family.kind == "histogram":
        return f"{family.name}{{{labels}}} count={sum(row.counts):.0f} sum={row.total:g}"
    return f"{family.name}{{{labels}}} {row.counts[0]:.15g}"
