"""The job `trace`: what clients say of their sends and consumptions, from the trace topic.

Tables as Parquet in `out`: `events`, `sends`, `consumptions`, `latencies`, `failures`, `damaged`;
and one HTML page. With `key`, also the story of the messages with that key.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.protocol import names
from roquet.spark.jobs.options.kinds import presence, storage
from roquet.spark.jobs.options.watch import TRACE, out_and_report
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.page import write
from roquet.spark.jobs.shared.queries import cores, in_one_task, sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.shared.still_there import StillThere, all_found
from roquet.spark.jobs.tracing import queries as trace_queries
from roquet.spark.jobs.tracing.columns import readable, unreadable
from roquet.spark.jobs.tracing.page import gauges, lines, page
from roquet.spark.jobs.tracing.story import Sent, Story, Tried, tell
from roquet.spark.option_table import Given
from roquet.spark.options import LogOptions, SourceOptions
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TABLES: Final = ("events", "sends", "consumptions", "latencies", "failures", "damaged")
SUMMED_UP: Final = ("latencies", "failures", "damaged")
"""Tables that are one file; the others have a row for each record."""
POINTS: Final = 300
STORIES_MAX: Final = 10
"""Messages with the wanted key whose story is told, the newest."""
KEY_LENGTH_MAX: Final = 255


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """The options, checked. `source` is the format that reads; `reading` its options."""

    source: str
    reading: dict[str, str]
    where: str
    topics: tuple[str, ...]
    key: str
    out: str
    report: Path
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TraceOptions:
        """Check options. Raises UsageError."""
        given = Given(options, TRACE)
        servers, store = given.text("nameServers"), given.text("store")
        if bool(servers) == bool(store):
            raise UsageError("one of nameServers and store is needed, and not both")
        out, report = out_and_report(given)
        key = given.text("key") or ""
        if len(key) > KEY_LENGTH_MAX or " " in key:
            raise UsageError(f"key = {key[:80]!r}: one key or id, of {KEY_LENGTH_MAX} at most")
        reading = {
            "subscribe": given.text("traceTopic") or names.TRACE_TOPIC,
            "columns": trace_queries.READ,
            **{
                name: str(value)
                for name in ("startingTimestamp", "endingTimestamp")
                if (value := given.number(name)) is not None
            },
        }
        # The source's own rules, before anything starts.
        if servers:
            # Traces are deleted by age like everything: what is gone is no failure.
            reading |= {"nameServers": servers, "failOnDataLoss": "false", **presence(given)}
            SourceOptions.parse(reading, streaming=False)
        else:
            reading |= {"path": store or "", "onCorrupt": "report", **storage(given)}
            LogOptions.parse(reading)
        return cls(
            source="roquet" if servers else "roquet-log",
            reading=reading,
            where=servers or store or "",
            topics=given.names("subscribe"),
            key=key,
            out=out,
            report=report,
            metrics=given.text("metricsPath") or None,
            dry_run=given.flag("dryRun"),
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        topics = ", ".join(self.topics) or "all topics"
        key = (f"tell the story of the messages with the key {self.key}",) if self.key else ()
        return (
            f"read {self.reading['subscribe']} from {self.where} ({self.source}), about {topics}",
            *key,
            f"write the tables {', '.join(TABLES)} to {self.out} as Parquet, replacing them",
            f"write the page {self.report}",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return TraceOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Decode, join, write; exit code 1 when nothing is known of the key.

    Raises UsageError, OSError.
    """
    wanted = TraceOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    register(spark)
    watched = [StillThere(wanted.reading)] if wanted.source == "roquet" else []
    found, over_time = _tables(spark, wanted, say)
    stories = _stories(spark, wanted.key, found)
    latencies = found["latencies"].orderBy("messages", ascending=False).limit(101).collect()
    failures = found["failures"].orderBy("consumptions", ascending=False).limit(101).collect()
    counts = {name: found[name].count() for name in ("sends", "consumptions", "damaged")}
    html = write(
        page(
            wanted.where,
            counts=counts,
            over_time=over_time,
            latencies=latencies,
            failures=failures,
            damaged=found["damaged"].limit(101).collect(),
            stories=stories,
        )
    )
    wanted.report.parent.mkdir(parents=True, exist_ok=True)
    wanted.report.write_text(html, encoding="utf-8")
    say(f"page {wanted.report}")
    if wanted.metrics is not None:
        metrics.write(wanted.metrics, "roquet_trace.prom", gauges(latencies, failures))
    kept = all_found(watched)
    return Report(
        (*lines(counts, latencies, failures, stories, wanted.key), *kept.lines),
        (*(f"{wanted.out}/{name}" for name in TABLES), str(wanted.report)),
        1 if kept.is_changed or (wanted.key and not stories) else 0,
    )


# --- inside --------------------------------------------------------------------------------------


def _tables(
    spark: SparkSession, wanted: TraceOptions, say: Callable[[str], None]
) -> tuple[dict[str, DataFrame], list[Any]]:
    """Write the tables; return them, and rows of latencies by time."""
    found: dict[str, DataFrame] = {}

    def store(name: str, made: DataFrame) -> None:
        folder = f"{wanted.out}/{name}"
        few = in_one_task(made) if name in SUMMED_UP else made
        few.write.mode("overwrite").parquet(folder)
        found[name] = spark.read.parquet(folder)
        say(f"table {folder}")

    tasks = str(trace_queries.TASKS_A_CORE * cores(spark))
    reading = {"minPartitions": tasks, **wanted.reading}
    # Messages are kept, and their records, of which there are many more, taken apart twice: what
    # the topic gets meanwhile would else be looked at for one table only.
    messages: Any = spark.read.format(wanted.source).options(**reading).load().persist()
    try:
        store("damaged", messages.mapInArrow(unreadable, trace_queries.DAMAGED))
        store("events", messages.mapInArrow(readable, trace_queries.EVENTS))
    finally:
        messages.unpersist()
    records = sum(found[name].count() for name in ("events", "damaged"))
    say(f"{records:,} records of {wanted.reading['subscribe']} read from {wanted.where}")
    topics = {"topics": ",".join(wanted.topics)}
    store("sends", sql(spark, trace_queries.SENDS, events=found["events"]))
    sends = sql(spark, trace_queries.OF_TOPICS, topics, rows=found["sends"])
    made = sql(spark, trace_queries.CONSUMPTIONS, events=found["events"], sends=found["sends"])
    store("consumptions", sql(spark, trace_queries.OF_TOPICS, topics, rows=made))
    store("failures", sql(spark, trace_queries.FAILURES, consumptions=found["consumptions"]))
    pairs = sql(spark, trace_queries.PAIRS, sends=sends, consumptions=found["consumptions"])
    # It is asked three times.
    pairs.persist()
    try:
        store("latencies", sql(spark, trace_queries.LATENCIES, pairs=pairs))
        return found, _over_time(spark, pairs)
    finally:
        pairs.unpersist()


def _over_time(spark: SparkSession, pairs: DataFrame) -> list[Any]:
    (span,) = pairs.selectExpr(
        "unix_millis(min(sentAt)) as first", "unix_millis(max(sentAt)) as last"
    ).collect()
    if span.first is None:
        return []
    step = max(1000, -(-(span.last - span.first) // POINTS) // 1000 * 1000)
    return sql(spark, trace_queries.OVER_TIME, {"step": step}, pairs=pairs).collect()


def _stories(spark: SparkSession, key: str, found: dict[str, DataFrame]) -> list[Story]:
    if not key:
        return []
    tables = {name: found[name] for name in ("sends", "consumptions")}
    arguments = {"key": key, "most": STORIES_MAX}
    ids = [row.msgId for row in sql(spark, trace_queries.FOUND, arguments, **tables).collect()]
    sends = [
        Sent(
            msg_id=row.msgId,
            group=row.group or "(unknown)",
            topic=row.topic or "",
            host=row.host or "(unknown)",
            at=row.ms,
            cost=max(0, row.costMs or 0),
            success=row.success is not False,
            message_type=row.messageType or "normal",
        )
        for row in _of(found["sends"], "sentAt", ids)
    ]
    tries = [
        Tried(
            msg_id=row.msgId,
            group=row.group or "(unknown)",
            host=row.host or "(unknown)",
            at=row.ms,
            cost=row.costMs,
            success=row.success,
            code=row.code,
            retry=row.retryTimes,
        )
        for row in _of(found["consumptions"], "at", ids)
    ]
    return [tell(msg_id, sends, tries) for msg_id in ids]


def _of(table: DataFrame, time: str, ids: list[str]) -> list[Any]:
    """Return the rows of some messages that have a time, with it in milliseconds as `ms`."""
    chosen = table.where(table["msgId"].isin(ids)).where(table[time].isNotNull())
    return chosen.selectExpr("*", f"unix_millis({time}) as ms").collect()
