"""How far a stream is, for people and for Prometheus: Python sources report no metrics to Spark.

`progress.jsonl` gets a line for each micro-batch (read it with `spark.read.json`); `lag.prom` is
a textfile for Prometheus' node exporter, by topic and broker. Both are conveniences of the driver:
nothing reads them back.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock
    from roquet.spark.offsets import Bounds, QueueKey

log = logging.getLogger(__name__)

NAME: Final = "roquet_spark_source"
NAMED_MAX: Final = 20
"""Queues that a line of progress names."""


class Progress:
    """Writes into one folder; a disk that refuses is logged and nothing else."""

    def __init__(self, folder: str, clock: Clock) -> None:
        """Make the folder when the first line is written."""
        self._folder = Path(folder)
        self._clock = clock
        self._rows = 0
        self._lost = 0
        self._anew = 0

    def planned(
        self, start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], lost: int
    ) -> None:
        """Note a micro-batch that begins: how many offsets it has, how many are lost."""
        offsets = sum(max(0, end[queue] - start[queue]) for queue in end if queue in start)
        self._rows += offsets
        self._lost += lost
        self._note({"offsets": offsets, "lost": lost, "queues": len(end)})

    def begun_anew(self, queues: Mapping[QueueKey, str]) -> None:
        """Note queues that are read from their beginning, since they were made anew."""
        self._anew += len(queues)
        named = {str(queue): why for queue, why in sorted(queues.items())[:NAMED_MAX]}
        self._note({"offsets": 0, "lost": 0, "begunAnew": len(queues), "why": json.dumps(named)})

    def waiting(self, what: str) -> None:
        """Say that a plan waits for something that is away, to the log too."""
        log.warning("%s", what)
        self._note({"offsets": 0, "lost": 0, "waiting": what})

    def lag(self, done: Mapping[QueueKey, int], held: Mapping[QueueKey, Bounds]) -> None:
        """Note what is not read yet when everything before `done` is."""
        behind: dict[tuple[str, str], int] = {}
        for queue, bounds in held.items():
            key = (queue.topic, queue.broker)
            left = max(0, bounds.high - done.get(queue, bounds.low))
            behind[key] = behind.get(key, 0) + left
        lines = [
            f"# HELP {NAME}_lag_messages Messages that are not read yet.",
            f"# TYPE {NAME}_lag_messages gauge",
        ]
        for (topic, broker), count in sorted(behind.items()):
            lines.append(f'{NAME}_lag_messages{{topic="{topic}",broker="{broker}"}} {count}')
        for name, value, text in (
            ("offsets_total", self._rows, "Offsets of micro-batches since the query began."),
            ("lost_total", self._lost, "Offsets that were gone before they were read."),
            ("begun_anew_total", self._anew, "Queues read from their beginning, as made anew."),
        ):
            lines += [
                f"# HELP {NAME}_{name} {text}",
                f"# TYPE {NAME}_{name} counter",
                f"{NAME}_{name} {value}",
            ]
        self._write("lag.prom", "\n".join(lines) + "\n", "w")

    def _note(self, line: Mapping[str, object]) -> None:
        text = json.dumps({"timeMs": self._clock.now_ms(), **line})
        self._write("progress.jsonl", text + "\n", "a")

    def _write(self, name: str, text: str, mode: str) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if mode == "a":
                with (self._folder / name).open("a") as file:
                    file.write(text)
                return
            # A scrape in between sees the old file or the new one.
            fresh = self._folder / f".{name}.new"
            fresh.write_text(text)
            fresh.replace(self._folder / name)
        except OSError as error:
            log.warning("progress is not written: %s", error)
