"""Archiving without a stream: ranges of offsets, one after the other, each a part of the lake.

How `archive` runs over Spark Connect, where the function of a stream's micro-batch runs in a
process of the server. The catalog alone says where each queue goes on: a part that was not
committed is no part, and its offsets are read again. So there is no checkpoint.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.archiving import topics as lake_topics
from roquet.spark.jobs.archiving.ends import Ends, begins
from roquet.spark.jobs.archiving.parts import Parts
from roquet.spark.jobs.archiving.wanted import LISTENING
from roquet.spark.jobs.storage import schemas
from roquet.spark.jobs.storage.catalog import CHECKPOINT_COMMITS
from roquet.spark.offsets import EARLIEST, LATEST, QueueKey, Range, from_json, nested, ranges
from roquet.spark.options import Position, SourceOptions
from roquet.spark.reading import planning
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from roquet.base.clock import Clock
    from roquet.spark.jobs.archiving.wanted import ArchiveOptions
    from roquet.spark.jobs.lake import Lake

KIND: Final = "k"
"""How the names of these parts begin."""
_LIMIT: Final = "maxOffsetsPerTrigger"


class RangeArchiver:
    """Archives up to the present, one range of offsets after the other."""

    def __init__(
        self, lake: Lake, wanted: ArchiveOptions, say: Callable[[str], None], clock: Clock
    ) -> None:
        """Count from zero. Raises UsageError for what needs a stream."""
        if wanted.interval_s or wanted.kind == "delta" or wanted.metrics:
            raise UsageError(
                "over Spark Connect archive has no interval, format delta or metricsPath: start it"
                " with --master local[*] or spark://HOST:PORT for these"
            )
        self._lake = lake
        self._wanted = wanted
        self._say = say
        self._clock = clock
        self._parts = Parts(lake, wanted, say)
        self._ends = Ends(lake.catalog)
        self.rows = 0
        self.batches = 0

    @property
    def bad(self) -> int:
        """Bodies that were not as the schema says, since the job began."""
        return self._parts.bad

    def run(self) -> None:
        """Archive what there is now. Raises UsageError, LakeError, DataLoss."""
        lake, limit = self._lake, int(self._wanted.reading[_LIMIT])
        if lake.exists():
            lake.catalog.checkpoint()
            self._ends.read()
            for part in lake.left_over(KIND):
                lake.undo(part)
        known = dict(self._ends.by_queue)
        if known:
            lake_topics.check(lake, known, self._wanted.reading)
        self._parts.begin()
        self._say("over Spark Connect there is no checkpoint: queues go on where the lake ends")
        begun = self._clock.now_ms()
        waves = cut(self._ranges(known), limit)
        for number, wave in enumerate(waves):
            self._archive(f"{KIND}{begun:013}-{number:06}", wave)
            self._say(f"{self.rows:,} messages archived, {len(waves) - number - 1:,} parts to go")

    def _archive(self, name: str, wave: Iterable[Range]) -> None:
        rows = self._parts.rows(self._read(list(wave)))
        # Rows may have brought a new schema.
        part = schemas.named(name, self._parts.version)
        entries = self._parts.stage(part, rows)
        if not entries:
            return
        self._ends.refresh()
        self._ends.check(begins(entries))
        self._lake.move(part, entries)
        self._lake.commit(part, entries)
        self._ends.add(entries)
        self.rows += sum(it.rows for it in entries)
        self.batches += 1
        if self.batches % CHECKPOINT_COMMITS == 0:
            self._lake.catalog.checkpoint()

    def _read(self, wave: list[Range]) -> DataFrame:
        """Return the rows of ranges: of these queues alone."""
        queues: dict[str, dict[str, list[int]]] = {}
        for it in wave:
            queues.setdefault(it.queue.topic, {}).setdefault(it.queue.broker, []).append(
                it.queue.queue_id
            )
        given = {
            "nameServers": self._wanted.reading["nameServers"],
            "failOnDataLoss": self._wanted.reading["failOnDataLoss"],
            "assign": json.dumps(queues),
            "startingOffsets": json.dumps(nested({it.queue: it.begin for it in wave})),
            "endingOffsets": json.dumps(nested({it.queue: it.end for it in wave})),
        }
        reader = self._lake.spark.read.format("roquet").options(**given)
        return reader.load().select(*COLUMNS)

    def _ranges(self, known: dict[QueueKey, int]) -> list[Range]:
        """Return what is to be archived of each queue, as the brokers have it now."""
        wanted, starting = self._wanted, self._wanted.starting
        reading = {name: it for name, it in wanted.reading.items() if name != _LIMIT}
        options = SourceOptions.parse(reading, streaming=False)
        default = LATEST if starting == "latest" and not known else EARLIEST
        given = {} if starting in LISTENING else from_json(starting, symbols=True)
        mine = {queue: end for queue, end in known.items() if options.topics.has(queue)}
        begin = Position(default=default, offsets={**given, **mine})
        start, end, view = planning.between(options, begin)
        fails = options.fail_on_data_loss
        return planning.within(ranges(start, end), view, fail_on_data_loss=fails)


def cut(whole: Iterable[Range], limit: int) -> list[list[Range]]:
    """Cut ranges into lists of at most `limit` offsets; those of a queue follow one another.

    A queue has one range in a list.
    """
    found: list[list[Range]] = []
    room = 0
    for it in whole:
        begin = it.begin
        while begin < it.end:
            if room == 0:
                found.append([])
                room = limit
            end = min(it.end, begin + room)
            found[-1].append(Range(it.queue, begin, end))
            room -= end - begin
            begin = end
    return found
