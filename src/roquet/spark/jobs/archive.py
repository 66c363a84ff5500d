"""The job `archive`: topics into a lake, exactly once, and looking after that lake.

A stream whose micro-batches become parts of the lake. Spark's checkpoint holds the offsets of a
micro-batch before it is written, the lake's catalog its name once it is there: a killed one is
made again from the same offsets, one that the catalog has is left as it is. A lost checkpoint
costs nothing, since the catalog says where each queue goes on.

On a disk of the machines the tasks that read also write (`staging_source`); elsewhere, and where
Spark's functions are to be applied to rows, Spark writes them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.spark.jobs.archiving import staging_source
from roquet.spark.jobs.archiving import topics as lake_topics
from roquet.spark.jobs.archiving import upkeep as lake_upkeep
from roquet.spark.jobs.archiving.by_ranges import RangeArchiver
from roquet.spark.jobs.archiving.ends import Ends, begins
from roquet.spark.jobs.archiving.parts import Parts, named
from roquet.spark.jobs.archiving.quarantine import FOLDER
from roquet.spark.jobs.archiving.wanted import LISTENING, ArchiveOptions
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.lake import configuration as lake_configuration
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.connect import context
from roquet.spark.jobs.shared.patience import patiently
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.storage import checkpoints, schemas
from roquet.spark.jobs.storage.alone import alone, in_turn
from roquet.spark.jobs.storage.catalog import CHECKPOINT_COMMITS
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.offsets import QueueKey, from_json, to_json
from roquet.spark.schema import COLUMNS
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from roquet.base.clock import Clock
    from roquet.spark.jobs.storage.catalog import Entry

POLL_S: Final = 1


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return ArchiveOptions.parse(options).plan()


def configuration(options: Mapping[str, str]) -> dict[str, str]:
    """Return what the session needs. Raises UsageError."""
    wanted = ArchiveOptions.parse(options)
    return lake_configuration(wanted.kind)


def run(
    spark: SparkSession,
    options: Mapping[str, str],
    say: Callable[[str], None],
    clock: Clock | None = None,
) -> Report:
    """Archive, compact, remove and check, as wanted; exit code 1 if the check finds anything.

    Raises UsageError, LakeError and what Spark raises for a query that failed.
    """
    wanted = ArchiveOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    register(spark)
    time = clock or SystemClock()
    lake = Lake(spark, wanted.out, wanted.kind)
    lines: list[str] = []
    if wanted.reading:
        kind = RangeArchiver if context(spark) is None else Archiver
        archiver = kind(lake, wanted, say, time)
        archiver.run()
        lines.append(f"{archiver.rows:,} messages archived in {archiver.batches:,} micro-batches")
        if archiver.bad:
            lines.append(f"{archiver.bad:,} bad bodies, with what is wrong: {lake.root}/{FOLDER}")
    elif not lake.exists():
        raise UsageError(f"{wanted.out} is no lake: there is no _lake.json")
    if wanted.upkeep:
        with lake_upkeep.locked(lake, time, take_over=wanted.break_lock):
            lines += _look_after(lake, wanted, say, time)
    found = lake_upkeep.check(lake) if wanted.check else []
    lines += found
    if wanted.check:
        lines.append(f"{len(found):,} differences" if found else "no difference")
    return Report(tuple(lines), (wanted.out,), 1 if found else 0)


class Archiver:
    """The stream from topics to parts of the lake."""

    def __init__(
        self, lake: Lake, wanted: ArchiveOptions, say: Callable[[str], None], clock: Clock
    ) -> None:
        """Count from zero."""
        self._lake = lake
        self._wanted = wanted
        self._say = say
        self._clock = clock
        self._ends = Ends(lake.catalog)
        # What the source is told when tasks write; None when Spark does.
        self._staging = staging_source.options(lake) if wanted.bodies.kind == "raw" else None
        self._counts: dict[int, int] = {}
        self._parts = Parts(lake, wanted, say)
        self.rows = 0
        self.batches = 0

    @property
    def bad(self) -> int:
        """Bodies that were not as the schema says, since the job began."""
        return self._parts.bad

    def run(self) -> None:
        """Archive up to the present, or until the query is stopped. Raises UsageError, LakeError.

        One that goes on from the same checkpoint may not run.
        """
        with alone(self._lake.files, self._wanted.checkpoint):
            self._run()

    def _run(self) -> None:
        wanted = self._wanted
        checkpoints.check(self._lake.spark, wanted.checkpoint, f"{wanted.out}/_lake.json")
        if self._lake.exists():
            if count := self._lake.catalog.checkpoint():
                self._say(f"{count:,} commits of the catalog are in a checkpoint now")
            self._ends.read()
            self._not_behind()
        ends = self._ends.by_queue
        if ends and not self._lake.files.exists(self._wanted.checkpoint):
            lake_topics.check(self._lake, ends, self._wanted.reading)
        self._parts.begin()
        frame = self._frame()
        patiently(lambda: self._follow(self._start(frame)), self._say)

    def _not_behind(self) -> None:
        """Raise LakeError when a checkpoint goes on behind the end of the lake."""
        wanted, files = self._wanted, self._lake.files
        if wanted.reading.get("failOnDataLoss", "true").lower() != "true":
            # What was let go is in the checkpoint, and not in the lake.
            return
        for queue, read in sorted(checkpoints.ends(files, wanted.checkpoint).items()):
            end = self._ends.by_queue.get(queue, read)
            if end < read:
                raise LakeError(
                    f"{queue}: {wanted.checkpoint} has read up to offset {read}, and {wanted.out}"
                    f" has what is before {end}: commits of its catalog are gone, or one of both"
                    " is an older copy. Remove the folder of the checkpoint: the job goes on where"
                    " the lake ends then"
                )

    def _follow(self, query: StreamingQuery) -> None:
        told = -1
        try:
            while not query.awaitTermination(POLL_S):
                told = self._tell(query, told)
            self._tell(query, told)
        finally:
            query.stop()

    def write(self, frame: DataFrame, number: int) -> None:
        """Make one micro-batch a part. Raises LakeError."""
        query = self._lake.spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise LakeError("Spark does not say which query this micro-batch is of")
        part = self._part(f"b{query[:13]}-{number:010}")
        begin = self._clock.now_ms()
        if self._lake.catalog.has(part):
            self._same(part, frame)
            self._say(f"micro-batch {number} is in the lake already")
            return
        if self._lake.kind == "delta":
            entries = self._delta(part, frame, query, number)
        elif self._wanted.bodies.inferred:
            entries = self._grown(f"b{query[:13]}-{number:010}", frame)
        else:
            entries = self._published(part, frame)
        # A topic may be made anew while the job runs.
        self._ends.add(entries)
        if not entries:
            # A new query begins with a micro-batch, whether there is anything or not.
            return
        count = sum(it.rows for it in entries)
        self._counts = {number: count}
        self.rows += count
        self.batches += 1
        if self.batches % CHECKPOINT_COMMITS == 0:
            self._lake.catalog.checkpoint()
        took = max(1, self._clock.now_ms() - begin)
        self._say(f"micro-batch {number}: {count:,} rows, {1000 * count // took:,} rows/s")

    def _published(self, part: str, frame: DataFrame) -> list[Entry]:
        entries = self._staged(part, frame)
        with in_turn(self._lake.files, self._lake.catalog.folder):
            self._ends.refresh()
            self._ends.check(begins(entries))
            if entries:
                self._lake.move(part, entries)
            self._lake.commit(part, entries)
        return entries

    def _grown(self, name: str, frame: DataFrame) -> list[Entry]:
        # It is read twice, and from the brokers once.
        kept = frame.persist()
        try:
            rows = self._parts.grown(kept)
            # Its schema may be a new one.
            return self._published(self._part(name), rows)
        finally:
            kept.unpersist()

    def _part(self, name: str) -> str:
        """Return a part's name with its schema: that of an earlier try which is committed."""
        known = [schemas.named(name, it) for it in range(1, self._parts.version + 1)]
        for part in known[:-1]:
            if self._lake.catalog.has(part):
                return part
            self._lake.undo(part)
        return known[-1]

    def _delta(self, part: str, frame: DataFrame, query: str, number: int) -> list[Entry]:
        bad = self._parts.quarantine

        def check() -> None:
            self._ends.refresh()
            self._ends.check(self._first(frame))
            if bad is not None:
                bad.refuse(frame)

        def done(rows: DataFrame) -> None:
            if bad is not None and not rows.where(f"{schemas.VALUE} is null").isEmpty():
                self._parts.tell(bad.take(part, rows))

        with in_turn(self._lake.files, self._lake.catalog.folder):
            return self._lake.publish_delta(
                part, named(part, frame), query, number, check=check, done=done
            )

    def _staged(self, part: str, frame: DataFrame) -> list[Entry]:
        lake = self._lake
        if self._staging is None:
            return self._parts.stage(part, frame)
        return lake.gather(part, staging_source.staged(lake.spark, frame, lake.begin(part)))

    def _last(self, frame: DataFrame) -> dict[QueueKey, int]:
        """Return the last offset that a micro-batch has of each queue."""
        if self._staging is not None:
            lines = staging_source.looked(self._lake.spark, frame)
            found = [(QueueKey(it.topic, it.broker, it.queue), it.to_offset - 1) for it in lines]
        else:
            last = frame.groupBy("topic", "brokerName", "queueId").agg({"queueOffset": "max"})
            found = [(QueueKey(row[0], row[1], int(row[2])), int(row[3])) for row in last.collect()]
        # A queue has a line for each file.
        return dict(sorted(found))

    def _same(self, part: str, frame: DataFrame) -> None:
        """Raise LakeError when a part has not all that the micro-batch of its name has now."""
        held: dict[QueueKey, tuple[int, int]] = {}
        for it in self._lake.catalog.added(part):
            queue = QueueKey(it.place.topic, it.broker, it.queue)
            low, high = held.get(queue, (it.from_offset, it.to_offset))
            held[queue] = (min(low, it.from_offset), max(high, it.to_offset))
        for queue, last in self._last(frame).items():
            if last >= held.get(queue, (0, 0))[1]:
                raise LakeError(
                    f"{queue}: micro-batch {part} ended before offset {last} when it was"
                    " archived: its checkpoint is an older one; without the checkpoint folder the"
                    " job goes on where the lake ends"
                )

    def _first(self, frame: DataFrame) -> dict[QueueKey, int]:
        """Return the first offset that a micro-batch has of each queue that the lake has."""
        if not self._ends.by_queue:
            return {}
        # A read of its own: Spark says nothing of rows before they are in Delta's transaction.
        first = frame.groupBy("topic", "brokerName", "queueId").agg({"queueOffset": "min"})
        return {QueueKey(row[0], row[1], int(row[2])): int(row[3]) for row in first.collect()}

    def _frame(self) -> DataFrame:
        """Return the stream: of rows as the lake has them, or of files that its tasks make."""
        wanted = self._wanted
        starting = wanted.starting
        if self._ends.by_queue:
            # A queue that is not named begins at the earliest, which is right for a new one.
            known = dict(self._ends.by_queue)
            if starting not in LISTENING:
                known = {**from_json(starting, symbols=True), **known}
            starting = json.dumps(to_json(known)["q"])
        reading = {**wanted.reading, "startingOffsets": starting}
        if wanted.metrics:
            reading["metricsPath"] = wanted.metrics
        reader = self._lake.spark.readStream
        if self._staging is not None:
            return reader.format(staging_source.NAME).options(**reading, **self._staging).load()
        rows = reader.format("roquet").options(**reading).load().select(*COLUMNS)
        return rows if self._wanted.bodies.inferred else self._parts.rows(rows)

    def _start(self, frame: DataFrame) -> StreamingQuery:
        wanted = self._wanted
        writer = frame.writeStream.foreachBatch(self.write)
        writer = writer.option("checkpointLocation", wanted.checkpoint)
        if wanted.interval_s:
            return writer.trigger(processingTime=f"{wanted.interval_s} seconds").start()
        return writer.trigger(availableNow=True).start()

    def _tell(self, query: StreamingQuery, told: int) -> int:
        last: Any = query.lastProgress
        if last is None or last["batchId"] <= told:
            return told
        source = last["sources"][0]
        behind = backlog(source.get("endOffset"), source.get("latestOffset"))
        self._say(f"{behind:,} messages behind after micro-batch {last['batchId']}")
        if self._wanted.metrics:
            values = {
                "rows": (float(self.rows), "Messages archived since the job began."),
                "batches": (float(self.batches), "Micro-batches since the job began."),
                "bad_bodies": (float(self.bad), "Bodies not as the schema says, since it began."),
                "rows_per_second": (self._rate(last), "In the last one."),
                "behind": (float(behind), "Messages that are not archived yet."),
            }
            metrics.write_plain(self._wanted.metrics, "archive", values)
        return int(last["batchId"])

    def _rate(self, last: Any) -> float:
        # Spark counts the rows of the source, and those may be files.
        took = max(1, int(last["durationMs"].get("triggerExecution", 0)))
        return 1000 * self._counts.get(int(last["batchId"]), 0) / took


def backlog(done: str | None, latest: str | None) -> int:
    """Return how many offsets lie between two offsets of the source as its progress has them."""
    # A query that has not read yet tells of "null", as JSON has it.
    if done in {None, "", "null"} or latest in {None, "", "null"}:
        return 0
    read = from_json(done)
    return sum(max(0, end - read.get(queue, 0)) for queue, end in from_json(latest).items())


# --- inside --------------------------------------------------------------------------------------


def _look_after(
    lake: Lake, wanted: ArchiveOptions, say: Callable[[str], None], clock: Clock
) -> list[str]:
    lines: list[str] = []
    if wanted.retain_days is not None:
        lines.append(lake_upkeep.retire(lake, wanted.retain_days, wanted.grace_ms, clock))
        say(lines[-1])
    if wanted.compact:
        lines.append(lake_upkeep.compact(lake, wanted.target, wanted.grace_ms, clock, say))
    return lines
