"""The job `dlq`: dead letters, what they went through, and a list to send them again from.

Tables as Parquet in `out`: `letters`, `attempts`, `causes`, `resubmit`; and one HTML page.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.protocol import names
from roquet.protocol.properties import RESERVED, SHARDING_KEY
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.cluster.patience import Patience
from roquet.spark.jobs.archiving.rows import archived, parquet_columns
from roquet.spark.jobs.options.kinds import presence
from roquet.spark.jobs.options.watch import DLQ, out_and_report
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.page import write
from roquet.spark.jobs.shared.queries import in_one_task, sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.shared.still_there import Found, StillThere, all_found
from roquet.spark.jobs.watching import dlq_queries
from roquet.spark.jobs.watching.dlq_page import gauges, lines, page
from roquet.spark.option_table import Given
from roquet.spark.options import MetaOptions, SourceOptions
from roquet.spark.reading import planning
from roquet.spark.reading.presence import settled
from roquet.spark.schema import COLUMNS, ddl
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TABLES: Final = ("letters", "attempts", "causes", "resubmit")
POINTS: Final = 200
MARGIN_MS: Final = 600_000
"""How much earlier than it was born, by its producer's clock, an original may be stored."""
PERM_READ: Final = 4
LETTERS: Final = f"({names.DLQ_PREFIX}|{names.RETRY_PREFIX}).*"
"""Topics that a group has for what it could not consume."""
_HEADER: Final = tuple(name for name in COLUMNS if name != "body")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DlqOptions:
    """The options, checked. Of `name_servers` and `lake` at least one is set."""

    name_servers: str
    lake: str
    originals: str
    traces: str
    groups: tuple[str, ...]
    cause_property: str
    begin_ms: int | None
    end_ms: int | None
    out: str
    report: Path
    metrics: str | None
    presence: dict[str, str]
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> DlqOptions:
        """Check options. Raises UsageError."""
        given = Given(options, DLQ)
        servers, lake = given.text("nameServers") or "", given.text("lake") or ""
        if not servers and not lake:
            raise UsageError("one of nameServers and lake is needed")
        out, report = out_and_report(given)
        groups = ",".join(given.names("groups"))
        meta = MetaOptions.parse({"nameServers": servers or "127.0.0.1", "groups": groups})
        return cls(
            name_servers=servers,
            lake=lake,
            originals=given.text("originals") or "",
            traces=given.text("traces") or "",
            groups=tuple(it.removeprefix(names.DLQ_PREFIX) for it in meta.groups),
            cause_property=given.text("causeProperty") or "",
            begin_ms=given.number("startingTimestamp"),
            end_ms=given.number("endingTimestamp"),
            out=out,
            report=report,
            metrics=given.text("metricsPath") or None,
            presence=presence(given),
            dry_run=given.flag("dryRun"),
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        groups = ", ".join(self.groups) or "all groups"
        sources = " and ".join(it for it in (self.originals, self.name_servers or self.lake) if it)
        causes = f", causes from {self.traces}" if self.traces else ""
        return (
            f"read dead letters and retries of {groups} from {self.lake or self.name_servers}",
            f"look for their originals in {sources}{causes}",
            f"write the tables {', '.join(TABLES)} to {self.out} as Parquet, replacing them",
            f"write the page {self.report}",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return DlqOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Join, group, write; exit code 1 when there are dead letters. Raises UsageError, OSError."""
    wanted = DlqOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    register(spark)
    messages = _Messages(spark, wanted)
    letters = _letters(spark, wanted, messages).persist()
    try:
        groups = sorted({row.group for row in letters.select("group").distinct().collect()})
        say(f"{letters.count():,} dead letters of {len(groups)} groups")
        found = _tables(spark, wanted, letters, messages, say)
    finally:
        letters.unpersist()
    report = _finish(spark, wanted, found, messages.unreadable, say)
    kept = messages.kept()
    code = 1 if kept.is_changed else report.exit_code
    return dataclasses.replace(report, lines=(*report.lines, *kept.lines), exit_code=code)


# --- inside --------------------------------------------------------------------------------------


class _Messages:
    """Reads topics where they are: in the cluster or in the lake. What is not there is empty."""

    def __init__(self, spark: SparkSession, wanted: DlqOptions) -> None:
        self._spark = spark
        self._wanted = wanted
        self.unreadable: list[str] = []
        """Topics that exist and have no read permission."""
        self._perms: dict[str, int] = {}
        self._watched: list[StillThere] = []
        if wanted.name_servers:
            _wait_for_brokers(wanted, {"subscribePattern": LETTERS})
            self._learn()

    def _learn(self) -> None:
        """Take down which topics there are, and what may be done with them."""
        reading = {"nameServers": self._wanted.name_servers, **self._wanted.presence}
        reading.pop("brokers", None)
        meta = self._spark.read.format("roquet-meta").options(**reading)
        for row in meta.option("table", "topics").load().collect():
            self._perms[row.topic] = self._perms.get(row.topic, 0) | row.perm

    def dead(self) -> DataFrame:
        """Return all dead letters, with bodies."""
        if self._wanted.lake:
            return self._parquet(self._wanted.lake, COLUMNS)
        found = [topic for topic in self._perms if names.is_dlq(topic)]
        if self._wanted.groups:
            wanted = {names.dlq_topic(group) for group in self._wanted.groups}
            found = [topic for topic in found if topic in wanted]
        return self._live(found, COLUMNS, {})

    def retries(self, groups: list[str]) -> DataFrame:
        """Return what is in the retry topics of groups, without bodies."""
        if self._wanted.lake:
            return self._parquet(self._wanted.lake, _HEADER)
        return self._live([names.retry_topic(group) for group in groups], _HEADER, {})

    def originals(self, topics: list[str], begin_ms: int, end_ms: int) -> DataFrame:
        """Return what may be originals, without bodies: of the live topics, and of the lake."""
        if self._wanted.name_servers and topics:
            # A topic whose only broker is away is in no route, as if it were deleted.
            _wait_for_brokers(self._wanted, {"subscribe": ",".join(topics)})
            self._learn()
        stored = {"startingTimestamp": str(begin_ms), "endingTimestamp": str(end_ms)}
        made = self._live(topics, _HEADER, stored)
        for folder in dict.fromkeys((self._wanted.originals, self._wanted.lake)):
            if folder:
                made = made.union(self._parquet(folder, _HEADER))
        return made

    def kept(self) -> Found:
        """Return what became of the live topics that were read."""
        return all_found(self._watched)

    def _live(
        self, topics: list[str], columns: tuple[str, ...], scope: Mapping[str, str]
    ) -> DataFrame:
        known = [topic for topic in topics if topic in self._perms]
        readable = [topic for topic in known if self._perms[topic] & PERM_READ]
        self.unreadable += [topic for topic in known if topic not in readable]
        if not readable:
            return self._spark.createDataFrame([], ddl(columns))
        given = {
            "nameServers": self._wanted.name_servers,
            "subscribe": ",".join(readable),
            "columns": ",".join(columns),
            # What is deleted while the job reads is an original that is gone, not a failure.
            "failOnDataLoss": "false",
            **self._wanted.presence,
        }
        self._watched.append(StillThere({**given, **scope}))
        return self._spark.read.format("roquet").options(**given, **scope).load()

    def _parquet(self, folder: str, columns: tuple[str, ...]) -> DataFrame:
        return archived(self._spark, folder, columns, ddl(columns))


def _wait_for_brokers(wanted: DlqOptions, topics: Mapping[str, str]) -> None:
    """Wait for brokers of topics that are away; topics that nobody has are gone.

    Raises Unreachable naming a broker.
    """
    given = {"nameServers": wanted.name_servers, **topics, **wanted.presence}
    options = SourceOptions.parse(given, streaming=False)
    metadata = Metadata(options.wire)
    try:
        need = planning.needed(options)
        patience = Patience(options.wire.unreachable_s)
        settled(metadata, options.topics, need, patience, missing_ok=True)
    finally:
        metadata.close()


def _letters(spark: SparkSession, wanted: DlqOptions, messages: _Messages) -> DataFrame:
    arguments: dict[str, object] = {
        "groups": ",".join(wanted.groups),
        "begin": -1 if wanted.begin_ms is None else wanted.begin_ms,
        "end": -1 if wanted.end_ms is None else wanted.end_ms,
        "causeProperty": wanted.cause_property,
    }
    return sql(spark, dlq_queries.LETTERS, arguments, read=messages.dead())


def _tables(
    spark: SparkSession,
    wanted: DlqOptions,
    letters: DataFrame,
    messages: _Messages,
    say: Callable[[str], None],
) -> dict[str, DataFrame]:
    found: dict[str, DataFrame] = {}

    def store(name: str, made: DataFrame) -> DataFrame:
        folder = f"{wanted.out}/{name}"
        in_one_task(made).write.mode("overwrite").parquet(folder)
        found[name] = spark.read.parquet(folder)
        say(f"table {folder}")
        return found[name]

    groups = sorted({row.group for row in letters.select("group").distinct().collect()})
    retries = messages.retries(groups)
    attempts = store("attempts", sql(spark, dlq_queries.ATTEMPTS, read=retries, letters=letters))
    joined = sql(
        spark,
        dlq_queries.JOINED,
        letters=letters,
        originals=_originals(spark, letters, messages),
        attempts=attempts,
        causes=_causes(spark, wanted),
    )
    joined = store("letters", joined.drop("named"))
    store("causes", sql(spark, dlq_queries.GROUPED, joined=joined))
    reserved = {"reserved": ",".join(sorted(RESERVED - {SHARDING_KEY}))}
    store("resubmit", sql(spark, dlq_queries.RESUBMIT, reserved, joined=joined))
    return found


def _originals(spark: SparkSession, letters: DataFrame, messages: _Messages) -> DataFrame:
    (span,) = letters.selectExpr(
        "unix_millis(min(bornTimestamp)) as first", "unix_millis(max(storeTimestamp)) as last"
    ).collect()
    rows = letters.select("originTopic").distinct().collect()
    topics = sorted(row.originTopic for row in rows if row.originTopic)
    begin_ms = max(0, (span.first or 0) - MARGIN_MS)
    read = messages.originals(topics, begin_ms, (span.last or 0) + 1)
    return sql(spark, dlq_queries.ORIGINALS, read=read, letters=letters)


def _causes(spark: SparkSession, wanted: DlqOptions) -> DataFrame:
    if not wanted.traces:
        return sql(spark, dlq_queries.NO_CAUSES)
    folder = f"{wanted.traces}/consumptions"
    known = parquet_columns(spark, folder)
    if not {"group", "msgId", "code", "at", "success"} <= known:
        raise UsageError(f"{folder} is not what the job trace writes")
    return sql(spark, dlq_queries.CAUSES, read=spark.read.parquet(folder))


def _finish(
    spark: SparkSession,
    wanted: DlqOptions,
    found: dict[str, DataFrame],
    unreadable: list[str],
    say: Callable[[str], None],
) -> Report:
    causes = found["causes"].orderBy("letters", ascending=False).collect()
    html = write(
        page(
            wanted.lake or wanted.name_servers,
            causes=causes,
            over_time=_over_time(spark, found["letters"]),
            letters=found["letters"]
            .orderBy("storeTimestamp", ascending=False)
            .limit(101)
            .collect(),
            unreadable=unreadable,
        )
    )
    wanted.report.parent.mkdir(parents=True, exist_ok=True)
    wanted.report.write_text(html, encoding="utf-8")
    say(f"page {wanted.report}")
    if wanted.metrics is not None:
        metrics.write(wanted.metrics, "roquet_dlq.prom", gauges(causes))
    written = (*(f"{wanted.out}/{name}" for name in TABLES), str(wanted.report))
    count = found["resubmit"].count()
    said = lines(causes, unreadable, f"{count:,} messages to send again in {wanted.out}/resubmit")
    return Report(said, written, 1 if causes or unreadable else 0)


def _over_time(spark: SparkSession, joined: DataFrame) -> list[Any]:
    (span,) = joined.selectExpr(
        "unix_millis(min(storeTimestamp)) as first", "unix_millis(max(storeTimestamp)) as last"
    ).collect()
    if span.first is None:
        return []
    step = max(1000, -(-(span.last - span.first) // POINTS) // 1000 * 1000)
    return sql(spark, dlq_queries.OVER_TIME, {"step": step}, joined=joined).collect()
