"""The job `lag`: how far consumer groups are behind, how fast they are, and who holds them up.

Snapshots of committed offsets, one row for each group and queue with the member that holds it, are
appended to a table; everything else is computed from that table. Tables as Parquet in `out`:
`history`, `groups`, `queues`, `members`, `alerts`; and one HTML page.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from roquet.base.clock import SystemClock, pause
from roquet.base.errors import UsageError
from roquet.spark.jobs.options.watch import LAG, number, out_and_report
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.page import write
from roquet.spark.jobs.shared.queries import in_one_task, sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.watching import lag_queries
from roquet.spark.jobs.watching.lag_page import gauges, lines, page
from roquet.spark.jobs.watching.same_queues import SameQueues
from roquet.spark.option_table import Given
from roquet.spark.options import MetaOptions
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from roquet.base.clock import Clock

TABLES: Final = ("history", "groups", "queues", "members", "alerts")
POINTS: Final = 300
"""Snapshots of a plot, about."""
_NEEDED: Final = ("at", "group", "topic", "brokerName", "queueId", "offset", "maxOffset", "lag")
_SNAPSHOTS: Final = (
    "at timestamp, `group` string, topic string, brokerName string, queueId int, offset bigint,"
    " minOffset bigint, maxOffset bigint, `lag` bigint, clientId string, address string,"
    " lastPullTimestamp timestamp, lastStoreTimestamp timestamp, anew boolean"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """When something is an alert. Times in seconds."""

    lag_max: int
    catch_up_max: int
    stopped_after: int
    slow_below: int
    """Per cent of the mean of the group's members."""
    ignore_lag: int
    window: int

    def arguments(self) -> dict[str, object]:
        """Return the values that queries name."""
        return {
            "maxLag": self.lag_max,
            "maxCatchUp": self.catch_up_max,
            "stopped": self.stopped_after,
            "slow": self.slow_below,
            "ignore": self.ignore_lag,
            "window": self.window,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """The options, checked. `reading` is empty when no snapshots are taken."""

    reading: dict[str, str]
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str
    samples: int
    interval: int
    snapshots: str
    begin_ms: int | None
    end_ms: int | None
    thresholds: Thresholds
    out: str
    report: Path
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LagOptions:
        """Check options. Raises UsageError."""
        given = Given(options, LAG)
        servers, snapshots = given.text("nameServers"), given.text("snapshots")
        if not servers and not snapshots:
            raise UsageError("one of nameServers and snapshots is needed")
        out, report = out_and_report(given)
        checked = {
            name: value
            for name in ("nameServers", "groups", "subscribe", "subscribePattern")
            if (value := given.text(name))
        }
        # The source's own rules, before anything starts; names are checked without a cluster too.
        meta = MetaOptions.parse({"nameServers": "127.0.0.1:9876", **checked})
        return cls(
            reading=checked if servers else {},
            groups=meta.groups,
            topics=meta.topics.names,
            pattern=meta.topics.pattern or "",
            samples=number(given, LAG, "samples"),
            interval=number(given, LAG, "interval"),
            snapshots=snapshots or f"{out}/snapshots",
            begin_ms=given.number("startingTimestamp"),
            end_ms=given.number("endingTimestamp"),
            thresholds=Thresholds(
                lag_max=number(given, LAG, "maxLag"),
                catch_up_max=number(given, LAG, "maxCatchUp"),
                stopped_after=number(given, LAG, "stoppedAfter"),
                slow_below=number(given, LAG, "slowBelow"),
                ignore_lag=number(given, LAG, "ignoreLag"),
                window=number(given, LAG, "window"),
            ),
            out=out,
            report=report,
            metrics=given.text("metricsPath") or None,
            dry_run=given.flag("dryRun"),
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        groups = ", ".join(self.groups) or "all groups"
        take = (
            f"take {self.samples} snapshots of {groups} of {self.reading.get('nameServers')},"
            f" one every {self.interval} s, and append them to {self.snapshots}"
        )
        return (
            *((take,) if self.reading else ()),
            f"look at the snapshots of {groups} in {self.snapshots}",
            f"write the tables {', '.join(TABLES)} to {self.out} as Parquet, replacing them",
            f"write the page {self.report}",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return LagOptions.parse(options).plan()


def run(
    spark: SparkSession,
    options: Mapping[str, str],
    say: Callable[[str], None],
    *,
    clock: Clock | None = None,
    wait: Callable[[float], None] = pause,
) -> Report:
    """Take snapshots, look at all there are, write; exit code 1 when there is an alert.

    `wait` blocks for seconds between two snapshots. Raises UsageError, OSError.
    """
    wanted = LagOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    register(spark)
    if wanted.reading:
        _take(spark, wanted, say, clock or SystemClock(), wait)
    chosen = _chosen(spark, wanted).persist()
    try:
        found = _tables(spark, chosen, wanted, say)
    finally:
        chosen.unpersist()
    return _finish(spark, found, wanted, say)


# --- inside --------------------------------------------------------------------------------------


def _take(
    spark: SparkSession,
    wanted: LagOptions,
    say: Callable[[str], None],
    clock: Clock,
    wait: Callable[[float], None],
) -> None:
    due = clock.now_ms()
    same = SameQueues(MetaOptions.parse(wanted.reading), say)
    same.begin(spark, wanted.snapshots, _SNAPSHOTS)
    for taking in range(1, wanted.samples + 1):
        wait(max(0.0, (due - clock.now_ms()) / 1000))
        at = clock.now_ms()
        # A sample belongs to its moment: it is not put off until a broker is back.
        now = {**wanted.reading, "unreachableTimeoutMs": "0"}
        meta = spark.read.format("roquet-meta").options(**now)
        frames = {name: meta.option("table", name).load() for name in ("groups", "members")}
        taken = sql(spark, lag_queries.SNAPSHOT, {"at": at}, **frames).persist()
        try:
            in_one_task(same.marked(taken)).write.mode("append").parquet(wanted.snapshots)
            (row,) = taken.selectExpr(
                "count(distinct `group`) as groups",
                "count(queueId) as queues",
                "sum(`lag`) as left",
            ).collect()
        finally:
            taken.unpersist()
        say(
            f"snapshot {taking} of {wanted.samples}: {row.groups:,} groups, {row.queues:,} queues,"
            f" {row.left or 0:,} messages left"
        )
        # Snapshots that take longer than the interval follow one another without a pause.
        due = max(due + wanted.interval * 1000, at)


def _chosen(spark: SparkSession, wanted: LagOptions) -> DataFrame:
    try:
        known = set(spark.read.parquet(wanted.snapshots).columns)
    except AnalysisException as error:
        raise UsageError(f"snapshots = {wanted.snapshots!r}: there is no such table") from error
    if lacking := [name for name in _NEEDED if name not in known]:
        raise UsageError(f"{wanted.snapshots}: there is no column {', '.join(lacking)}")
    arguments: dict[str, object] = {
        "groups": ",".join(wanted.groups),
        "topics": ",".join(wanted.topics),
        "pattern": wanted.pattern,
        "begin": -1 if wanted.begin_ms is None else wanted.begin_ms,
        "end": -1 if wanted.end_ms is None else wanted.end_ms,
    }
    stored = spark.read.schema(_SNAPSHOTS).parquet(wanted.snapshots)
    return sql(spark, lag_queries.CHOSEN, arguments, all=stored)


def _tables(
    spark: SparkSession, chosen: DataFrame, wanted: LagOptions, say: Callable[[str], None]
) -> dict[str, DataFrame]:
    found: dict[str, DataFrame] = {"chosen": chosen}

    def made(name: str, text: str) -> DataFrame:
        used = {key: frame for key, frame in found.items() if f"{{{key}}}" in text}
        every = wanted.thresholds.arguments()
        arguments = {key: value for key, value in every.items() if f":{key}" in text}
        found[name] = sql(spark, text, arguments or None, **used)
        return found[name]

    made("steps", lag_queries.STEPS).persist()
    try:
        for name, text in (
            ("history", lag_queries.HISTORY),
            ("queues", lag_queries.QUEUES),
            ("members", lag_queries.MEMBERS),
            ("now", lag_queries.NOW),
            ("alerts", lag_queries.ALERTS),
        ):
            folder = f"{wanted.out}/{'groups' if name == 'now' else name}"
            table = made(name, text)
            if name == "alerts":
                table = table.union(_unknown(spark, chosen, wanted.groups))
            in_one_task(table).write.mode("overwrite").parquet(folder)
            # What was written is what the next one and the page are made from.
            found[name] = spark.read.parquet(folder)
            say(f"table {folder}")
    finally:
        found["steps"].unpersist()
    return found


def _unknown(spark: SparkSession, chosen: DataFrame, groups: tuple[str, ...]) -> DataFrame:
    """Return an alert for each group that was asked for and is nowhere."""
    known = {row[0] for row in chosen.select("group").distinct().collect()}
    rows = [
        ("no offsets", group, "no snapshot has it: it never committed, and no member is on")
        for group in groups
        if group not in known
    ]
    made = spark.createDataFrame(rows, "kind string, `group` string, detail string")
    return made.selectExpr(
        "kind",
        "`group`",
        "cast(null as string) as topic",
        "cast(null as string) as brokerName",
        "cast(null as int) as queueId",
        "cast(null as string) as clientId",
        "cast(null as double) as value",
        "cast(null as double) as threshold",
        "detail",
    )


def _points(spark: SparkSession, history: DataFrame) -> list[Any]:
    """Return the history at so many moments as a plot can show, the last one among them."""
    return sql(
        spark,
        "select * from (select *, dense_rank() over (order by at desc) as back,"
        " (select count(distinct at) from {history}) as moments from {history})"
        " where (back - 1) % ceil(moments / :points) = 0 order by at",
        {"points": POINTS},
        history=history,
    ).collect()


def _finish(
    spark: SparkSession,
    found: dict[str, DataFrame],
    wanted: LagOptions,
    say: Callable[[str], None],
) -> Report:
    alerts = found["alerts"].orderBy("kind", "group", "topic", "brokerName", "queueId").collect()
    groups = found["now"].orderBy("messagesLeft", ascending=False).collect()
    html = write(
        page(
            wanted.snapshots,
            history=_points(spark, found["history"]),
            groups=groups,
            queues=found["queues"].orderBy("messagesLeft", ascending=False).limit(101).collect(),
            members=found["members"].orderBy("messagesLeft", ascending=False).limit(101).collect(),
            alerts=alerts,
        )
    )
    wanted.report.parent.mkdir(parents=True, exist_ok=True)
    wanted.report.write_text(html, encoding="utf-8")
    say(f"page {wanted.report}")
    if wanted.metrics is not None:
        metrics.write(wanted.metrics, "roquet_lag.prom", gauges(groups, alerts))
    return Report(
        lines(groups, alerts),
        (*(f"{wanted.out}/{name}" for name in TABLES), str(wanted.report)),
        1 if alerts else 0,
    )
