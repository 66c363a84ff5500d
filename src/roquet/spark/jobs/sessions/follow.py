"""Following topics with a state: what `dedup` and `sessionize` have in common.

Counts are those of one run; offsets and state are in the checkpoint, nowhere else.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.patience import patiently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from roquet.spark.option_table import Given

    Figures = Mapping[str, tuple[float, str]]

POLL_S: Final = 1
OBSERVED: Final = "roquet"
"""The name of the counts that Spark keeps of what a micro-batch has read."""
TIMES: Final = ("bornTimestamp", "storeTimestamp")
_FIELD = re.compile(r"\$(\.[A-Za-z0-9_-]{1,100}){1,10}")
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The options that both jobs have, checked."""

    reading: dict[str, str]
    time: str
    checkpoint: str
    interval_s: int
    metrics: str | None
    dry_run: bool

    @classmethod
    def of(cls, given: Given, out: str | None) -> Following:
        """Check options. Raises UsageError."""
        names = ("nameServers", "subscribe", "subscribePattern", "startingOffsets")
        reading = {name: value for name in names if (value := given.text(name))}
        if "nameServers" not in reading:
            raise UsageError("nameServers is needed")
        if ("subscribe" in reading) == ("subscribePattern" in reading):
            raise UsageError("one of subscribe and subscribePattern is needed, and not both")
        checkpoint = given.text("checkpoint") or (out and f"{out}/_checkpoint")
        if not checkpoint:
            raise UsageError("checkpoint is needed: the folder for offsets and state")
        rows = given.number("maxOffsetsPerTrigger")
        metrics = given.text("metricsPath")
        # Spark's Python of the source may run in another folder than the driver's.
        metrics = str(Path(metrics).absolute()) if metrics else None
        reading = {"startingOffsets": "earliest", **reading}
        reading["maxOffsetsPerTrigger"] = str(200_000 if rows is None else rows)
        if metrics:
            reading["metricsPath"] = metrics
        return cls(
            reading=reading,
            time=field(given, "time", TIMES, "storeTimestamp"),
            checkpoint=checkpoint,
            interval_s=given.number("interval") or 0,
            metrics=metrics,
            dry_run=given.flag("dryRun"),
        )

    @property
    def topics(self) -> str:
        """Return what is read, as it is given."""
        return self.reading.get("subscribe") or self.reading["subscribePattern"]

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the topics as a stream."""
        return spark.readStream.format("roquet").options(**self.reading).load()

    def at(self) -> str:
        """Return the SQL expression of a message's time, as a timestamp."""
        if self.time in TIMES:
            return self.time
        text = extracted(self.time)
        number = f"timestamp_millis(try_cast({text} as bigint))"
        return f"coalesce({number}, try_cast({text} as timestamp), storeTimestamp)"


def field(given: Given, name: str, columns: tuple[str, ...], default: str) -> str:
    """Return a column's name, or `$.NAME` of a JSON body. Raises UsageError."""
    value = given.text(name) or default
    if value not in columns and not _FIELD.fullmatch(value):
        raise UsageError(
            f"{name} = {value[:80]!r}: must be {', '.join(columns)} or $.NAME of a JSON body"
        )
    return value


def extracted(name: str) -> str:
    """Return the SQL expression of a column, or of a name in a JSON body; no value is ''."""
    if name.startswith("$"):
        # Only letters, digits, `_`, `-` and `.` are in it.
        return f"get_json_object(cast(body as string), '{name}')"
    return f"cast({name} as string)"


@dataclasses.dataclass(slots=True)
class Counts:
    """What one run has done."""

    batches: int = 0
    read: int = 0
    keyless: int = 0
    late: int = 0
    repeated: int = 0
    state: int = 0
    """Keys in the state, at last."""
    more: Callable[[], Figures] = dict

    def add(self, progress: Any) -> None:
        """Add a micro-batch, as Spark tells about it."""
        observed = progress.observedMetrics.get(OBSERVED)
        self.batches += 1
        if observed is not None:
            self.read += observed.read or 0
            self.keyless += observed.keyless or 0
        for operator in progress.stateOperators:
            self.late += operator.numRowsDroppedByWatermark
            self.repeated += operator.customMetrics.get("numDroppedDuplicateRows", 0)
            self.state = operator.numRowsTotal


def follow(
    name: str,
    spark: SparkSession,
    writer: DataStreamWriter,
    wanted: Following,
    say: Callable[[str], None],
    *,
    more: Callable[[], Figures] = dict,
) -> Counts:
    """Run the query until it ends, saying what each micro-batch did; an interrupt ends it too.

    `more` are figures of the job's own for Prometheus.
    """
    counts = Counts(more=more)
    writer = writer.option("checkpointLocation", wanted.checkpoint)
    patiently(lambda: _watch(name, _start(spark, writer, wanted), wanted, counts, say), say)
    return counts


def summary(counts: Counts, made: str) -> tuple[str, ...]:
    """Return the lines that sum a run up."""
    lines = [f"{counts.read:,} messages read, {made}"]
    if counts.late:
        lines.append(f"{counts.late:,} messages came too late and are left out")
    return tuple(lines)


def _start(spark: SparkSession, writer: DataStreamWriter, wanted: Following) -> StreamingQuery:
    before = spark.conf.get(_PROVIDER, None)
    spark.conf.set(_PROVIDER, _ROCKSDB)
    try:
        if wanted.interval_s:
            return writer.trigger(processingTime=f"{wanted.interval_s} seconds").start()
        return writer.trigger(availableNow=True).start()
    finally:
        # The query has a copy of the settings it began with.
        if before is None:
            spark.conf.unset(_PROVIDER)
        else:
            spark.conf.set(_PROVIDER, before)


def _watch(
    name: str,
    query: StreamingQuery,
    wanted: Following,
    counts: Counts,
    say: Callable[[str], None],
) -> None:
    seen = -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(POLL_S))
            for progress in _fresh(query, seen):
                seen = progress.batchId
                counts.add(progress)
                say(_line(progress, counts))
                _tell(name, wanted, counts)
    except KeyboardInterrupt:
        say("interrupted: the next run goes on from here")
    finally:
        query.stop()


def _fresh(query: StreamingQuery, seen: int) -> Iterator[Any]:
    for progress in query.recentProgress:
        # Spark repeats itself while nothing comes.
        if progress.batchId > seen and "addBatch" in progress.durationMs:
            yield progress


def _line(progress: Any, counts: Counts) -> str:
    watermark = progress.eventTime.get("watermark", "none")
    return (
        f"micro-batch {progress.batchId}: {progress.numInputRows:,} rows,"
        f" {progress.processedRowsPerSecond or 0:,.0f} rows/s, watermark {watermark},"
        f" {counts.state:,} rows of state, {counts.late:,} late"
    )


def _tell(name: str, wanted: Following, counts: Counts) -> None:
    if wanted.metrics is None:
        return
    metrics.write_plain(
        wanted.metrics,
        name,
        {
            "batches": (counts.batches, "Micro-batches of this run."),
            "messages_read": (counts.read, "Messages of this run."),
            "messages_late": (counts.late, "Messages that came too late and are left out."),
            "messages_without_key": (counts.keyless, "Messages without a key."),
            "messages_repeated": (counts.repeated, "Repetitions that were dropped."),
            "state_rows": (counts.state, "Rows of state."),
            **counts.more(),
        },
    )
