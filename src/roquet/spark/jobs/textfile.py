"""What a job has done, as a textfile for Prometheus' node exporter."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)


def write(folder: str, job: str, values: Mapping[str, tuple[float, str]]) -> None:
    """Write `JOB.prom`: a gauge `roquet_JOB_NAME` for each name, of a value and its meaning.

    A disk that refuses is logged and nothing else: no job fails for its metrics.
    """
    lines: list[str] = []
    for name, (value, meaning) in values.items():
        whole = f"roquet_{job}_{name}"
        lines += [f"# HELP {whole} {meaning}", f"# TYPE {whole} gauge", f"{whole} {value:g}"]
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        # A scrape in between sees the old file or the new one.
        fresh = target / f".{job}.prom.new"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(target / f"{job}.prom")
    except OSError as error:
        log.warning("metrics are not written: %s", error)
