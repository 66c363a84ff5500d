"""Figures of the sink for Prometheus: a textfile that each write of the driver adds to."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

FILE: Final = "sink.prom"
NAME: Final = "roquet_spark_sink"
HELP: Final = {
    "rows_total": "Messages that were written.",
    "requests_total": "Requests that carried them.",
    "retries_total": "Requests that were sent once more.",
    "bytes_total": "Bytes of the bodies of requests.",
    "writes_total": "Writes of a batch, or micro-batches, that were committed.",
}
_LINE = re.compile(rf"^{NAME}_(\w+) (\d+)$", re.MULTILINE)


def text(values: Mapping[str, int]) -> str:
    """Return the file's content, a counter for each name of `HELP`. Pure."""
    lines: list[str] = []
    for name, meaning in HELP.items():
        lines += [
            f"# HELP {NAME}_{name} {meaning}",
            f"# TYPE {NAME}_{name} counter",
            f"{NAME}_{name} {values.get(name, 0)}",
        ]
    return "\n".join(lines) + "\n"


def add(folder: str, more: Mapping[str, int]) -> None:
    """Add to the counters in `folder`: Spark makes a new writer for each micro-batch.

    A disk that refuses is logged: figures never fail a write.
    """
    place = Path(folder) / FILE
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        before = place.read_text() if place.exists() else ""
        known = {name: int(value) for name, value in _LINE.findall(before)}
        # A scrape in between sees the old file or the new one.
        fresh = place.with_name(f".{FILE}.new")
        fresh.write_text(text({name: known.get(name, 0) + more.get(name, 0) for name in HELP}))
        fresh.replace(place)
    except OSError as error:
        log.warning("metrics are not written: %s", error)
