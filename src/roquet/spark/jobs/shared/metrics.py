"""Figures of a job as a textfile for Prometheus' node exporter."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Gauge:
    """One metric; `values` by labels, which are pairs of name and value."""

    name: str
    doc: str
    values: Mapping[tuple[tuple[str, str], ...], float]


def text(gauges: Sequence[Gauge]) -> str:
    """Return the file's content."""
    lines: list[str] = []
    for gauge in gauges:
        lines += [f"# HELP {gauge.name} {gauge.doc}", f"# TYPE {gauge.name} gauge"]
        for labels, value in sorted(gauge.values.items()):
            shown = ",".join(f'{name}="{_escaped(of)}"' for name, of in labels)
            lines.append(
                f"{gauge.name}{{{shown}}} {value:.15g}" if shown else f"{gauge.name} {value:.15g}"
            )
    return "\n".join(lines) + "\n"


def write(folder: str, name: str, gauges: Sequence[Gauge]) -> None:
    """Replace `folder/name`. A disk that refuses is logged: figures never fail a job."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        # A scrape in between sees the old file or the new one.
        fresh = Path(folder) / f".{name}.new"
        fresh.write_text(text(gauges), encoding="utf-8")
        fresh.replace(Path(folder) / name)
    except OSError as error:
        log.warning("metrics are not written: %s", error)


def write_plain(folder: str, job: str, values: Mapping[str, tuple[float, str]]) -> None:
    """Write `JOB.prom`: a gauge `roquet_JOB_NAME` for each name, of a value and its meaning."""
    gauges = [
        Gauge(f"roquet_{job}_{name}", meaning, {(): value})
        for name, (value, meaning) in values.items()
    ]
    write(folder, f"{job}.prom", gauges)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
