"""The job `stats`: how many messages, how big, how fast, and where they gather.

Tables as Parquet in `out`: `topics`, `queues`, `tags`, `producers`, `minutes`, `sizes`, `keys`; and
one HTML page. A producer is the host that a message was born on, since a broker stores no producer
group; with `traceTopic` there is also the table `groups`, by what clients say of their sends.
Latency is store time minus born time, in milliseconds, by two clocks: it is below zero where the
producer's is ahead.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.options.kinds import presence, storage
from roquet.spark.jobs.options.tables import STATS
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.page import Bars, Lines, Listing, Page, bytes_text, write
from roquet.spark.jobs.shared.queries import in_one_task, sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.shared.still_there import StillThere, all_found
from roquet.spark.jobs.tracing.senders import senders
from roquet.spark.option_table import Given
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = (
    "topic,brokerName,queueId,queueOffset,storeSize,keys,tags,bornTimestamp,storeTimestamp,bornHost"
)
POINTS: Final = 300
"""Points of a plot over time, about."""
ROWS_SHOWN: Final = 101

_MESSAGES = """
select topic, brokerName, queueId, queueOffset, storeSize, {unique} keys, tags, storeTimestamp,
  regexp_replace(bornHost, ':[0-9]*$', '') as producer,
  unix_millis(storeTimestamp) - unix_millis(bornTimestamp) as latency
from {read}"""
_QUEUES = """
select topic, brokerName, queueId, count(*) as messages, sum(storeSize) as bytes,
  min(queueOffset) as firstOffset, max(queueOffset) as lastOffset,
  min(storeTimestamp) as firstStored, max(storeTimestamp) as lastStored,
  percentile_approx(latency, 0.5) as latencyP50, percentile_approx(latency, 0.99) as latencyP99,
  count(*) / avg(count(*)) over (partition by topic) as skew
from {messages} group by topic, brokerName, queueId"""
_TOPICS = """
select topic, count(*) as messages, sum(storeSize) as bytes,
  count(distinct brokerName, queueId) as queues,
  min(storeTimestamp) as firstStored, max(storeTimestamp) as lastStored,
  avg(storeSize) as meanSize, max(storeSize) as maxSize,
  percentile_approx(latency, 0.5) as latencyP50, percentile_approx(latency, 0.99) as latencyP99,
  max(latency) as latencyMax, count_if(latency < 0) as bornLater
from {messages} group by topic"""
_TAGS = """
select topic, tags, count(*) as messages, sum(storeSize) as bytes
from {messages} group by topic, tags"""
# The port is another one for each connection.
_PRODUCERS = """
select topic, producer, count(*) as messages, sum(storeSize) as bytes,
  min(storeTimestamp) as firstStored, max(storeTimestamp) as lastStored,
  percentile_approx(latency, 0.5) as latencyP50, percentile_approx(latency, 0.99) as latencyP99
from {messages} group by topic, producer"""
_GROUPS = """
select topic, producerGroup, count(*) as messages, sum(storeSize) as bytes,
  min(storeTimestamp) as firstStored, max(storeTimestamp) as lastStored,
  percentile_approx(latency, 0.5) as latencyP50, percentile_approx(latency, 0.99) as latencyP99
from (select m.*, s.producerGroup from {messages} m left join {senders} s
      on s.uniqKey = m.uniqKey) group by topic, producerGroup"""
_MINUTES = """
select topic, brokerName, queueId, tags, producer, date_trunc('minute', storeTimestamp) as minute,
  count(*) as messages, sum(storeSize) as bytes,
  percentile_approx(latency, 0.5) as latencyP50, percentile_approx(latency, 0.99) as latencyP99
from {messages}
group by topic, brokerName, queueId, tags, producer, date_trunc('minute', storeTimestamp)"""
_SIZES = """
select topic, cast(pow(2, floor(log2(storeSize))) as bigint) as sizeFrom, count(*) as messages
from {messages} group by topic, cast(pow(2, floor(log2(storeSize))) as bigint)"""
_KEYS = """
select topic, key, messages, share from (
  select topic, key, count(*) as messages,
    count(*) / sum(count(*)) over (partition by topic) as share,
    row_number() over (partition by topic order by count(*) desc, key) as place
  from (select topic, explode(split(trim(keys), ' +')) as key from {messages}
        where trim(keys) <> '') group by topic, key
) where place <= :top"""
_OVER_TIME = """
select floor(unix_millis(storeTimestamp) / :step) * :step as at, count(*) as messages,
  percentile_approx(latency, 0.5) as p50, percentile_approx(latency, 0.99) as p99
from {messages} group by floor(unix_millis(storeTimestamp) / :step) * :step order by at"""

TABLES: Final = {
    "topics": _TOPICS,
    "queues": _QUEUES,
    "tags": _TAGS,
    "producers": _PRODUCERS,
    "minutes": _MINUTES,
    "sizes": _SIZES,
    "keys": _KEYS,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StatsOptions:
    """The options, checked. `source` is the format that reads; `reading` its options."""

    source: str
    reading: dict[str, str]
    where: str
    trace_topic: str
    """The topic with the traces of sends; empty when nothing is counted by producer group."""
    out: str
    report: Path
    top: int
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StatsOptions:
        """Check options. Raises UsageError."""
        given = Given(options, STATS)
        servers, store, out = given.text("nameServers"), given.text("store"), given.text("out")
        if bool(servers) == bool(store):
            raise UsageError("one of nameServers and store is needed, and not both")
        if not out:
            raise UsageError("out is needed: the folder for tables and report")
        report = given.text("report")
        if report is None and "://" in out:
            raise UsageError("report is needed when out is no folder of this machine")
        numbers = {name: given.number(name) for name in ("startingTimestamp", "endingTimestamp")}
        top = given.number("top")
        reading = {
            name: value for name in ("subscribe", "subscribePattern") if (value := given.text(name))
        }
        if servers and len(reading) != 1:
            raise UsageError("nameServers needs subscribe or subscribePattern")
        reading |= {name: str(value) for name, value in numbers.items() if value is not None}
        trace_topic = given.text("traceTopic") or ""
        reading |= {"columns": f"{COLUMNS},uniqKey" if trace_topic else COLUMNS}
        reading |= (
            {"nameServers": servers, **presence(given)}
            if servers
            else {"path": store or "", **storage(given)}
        )
        return cls(
            source="roquet" if servers else "roquet-log",
            reading=reading,
            where=servers or store or "",
            trace_topic=trace_topic,
            out=out,
            report=Path(report or Path(out) / "report.html"),
            top=20 if top is None else top,
            metrics=given.text("metricsPath") or None,
            dry_run=given.flag("dryRun"),
        )

    @property
    def tables(self) -> dict[str, str]:
        """Return the tables that are made, and the SQL of each."""
        return {**TABLES, **({"groups": _GROUPS} if self.trace_topic else {})}

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        topics = self.reading.get("subscribe") or self.reading.get("subscribePattern")
        traced = f", and the traces of {self.trace_topic}" if self.trace_topic else ""
        return (
            f"read {topics or 'all topics'} from {self.where} ({self.source}), without bodies"
            + traced,
            f"write the tables {', '.join(self.tables)} to {self.out} as Parquet, replacing them",
            f"write the page {self.report}",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return StatsOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Count, write tables and page. `say` gets a line for each step. Raises UsageError, OSError."""
    wanted = StatsOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    register(spark)
    watched = _watched(wanted)
    read = spark.read.format(wanted.source).options(**wanted.reading).load()
    unique = "uniqKey," if wanted.trace_topic else ""
    messages = sql(spark, _MESSAGES.replace("{unique}", unique), read=read).persist()
    try:
        count = messages.count()
        say(f"{count:,} messages read from {wanted.where}")
        found = _tables(spark, messages, wanted, say)
        page = write(_page(spark, messages, found, wanted))
    finally:
        messages.unpersist()
    wanted.report.parent.mkdir(parents=True, exist_ok=True)
    wanted.report.write_text(page, encoding="utf-8")
    say(f"page {wanted.report}")
    if wanted.metrics is not None:
        metrics.write(wanted.metrics, "stats.prom", _gauges(found))
    folders = tuple(f"{wanted.out}/{name}" for name in wanted.tables)
    kept = all_found(watched)
    said = (f"{count:,} messages counted", *kept.lines)
    return Report(said, (*folders, str(wanted.report)), 1 if kept.is_changed else 0)


# --- inside --------------------------------------------------------------------------------------


def _watched(wanted: StatsOptions) -> list[StillThere]:
    """Take down what the live topics hold that are read; a store changes under nobody."""
    if wanted.source != "roquet":
        return []
    traces = {**wanted.reading, "subscribe": wanted.trace_topic}
    traces.pop("subscribePattern", None)
    return [StillThere(it) for it in (wanted.reading, traces) if it.get("subscribe") != ""]


def _tables(
    spark: SparkSession, messages: DataFrame, wanted: StatsOptions, say: Callable[[str], None]
) -> dict[str, DataFrame]:
    found: dict[str, DataFrame] = {}
    for name, text in wanted.tables.items():
        path = f"{wanted.out}/{name}"
        arguments = {"top": wanted.top} if ":top" in text else None
        read = {"messages": messages}
        if name == "groups":
            read["senders"] = _senders(spark, wanted)
        made = sql(spark, text, args=arguments, **read)
        in_one_task(made).write.mode("overwrite").parquet(path)
        # What was written is what the page shows.
        found[name] = spark.read.parquet(path)
        say(f"table {path}")
    return found


def _senders(spark: SparkSession, wanted: StatsOptions) -> DataFrame:
    kept = ("nameServers", "path", "brokers", "unreachableTimeoutMs")
    reading = {name: value for name, value in wanted.reading.items() if name in kept}
    if wanted.source == "roquet":
        # Traces are deleted by age like everything: a message without one has no group.
        reading["failOnDataLoss"] = "false"
    else:
        reading["onCorrupt"] = "report"
    since = wanted.reading.get("startingTimestamp")
    since_ms = None if since is None else int(since)
    return senders(spark, wanted.source, wanted.trace_topic, reading, since_ms)


def _page(
    spark: SparkSession, messages: DataFrame, found: dict[str, DataFrame], wanted: StatsOptions
) -> Page:
    (whole,) = sql(
        spark,
        "select count(*) as topics, sum(messages) as messages, sum(bytes) as bytes,"
        " unix_millis(min(firstStored)) as first, unix_millis(max(lastStored)) as last,"
        " sum(queues) as queues, sum(bornLater) as bornLater from {topics}",
        topics=found["topics"],
    ).collect()
    if not whole.messages:
        return Page(
            title="Messages", about=f"{wanted.where}: no messages", cards=(), charts=(), listings=()
        )
    step = max(1000, -(-(whole.last - whole.first) // POINTS) // 1000 * 1000)
    points = sql(spark, _OVER_TIME, args={"step": step}, messages=messages).collect()
    by_time = {int(point.at): point for point in points}
    # A step without messages has none, and no latency: no line may run across it.
    steps = range(min(by_time), max(by_time) + 1, step)
    shown = [by_time.get(at) for at in steps]
    times = [datetime.fromtimestamp(at / 1000, UTC) for at in steps]
    return Page(
        title="Messages",
        about=f"{wanted.where} · {_moment(whole.first)} to {_moment(whole.last)} UTC",
        cards=_cards(whole, found),
        charts=(
            Lines(
                title="Messages over time",
                unit=f"messages in {step / 1000:,.0f} s",
                times=times,
                values={"messages": [point.messages if point else 0 for point in shown]},
                filled=True,
            ),
            Lines(
                title="Latency, born to stored",
                unit="ms",
                times=times,
                values={
                    "median": [point.p50 if point else None for point in shown],
                    "99 %": [point.p99 if point else None for point in shown],
                },
            ),
            *_bars(found),
        ),
        listings=_listings(found),
    )


def _gauges(found: dict[str, DataFrame]) -> list[metrics.Gauge]:
    rows = found["topics"].orderBy("topic").collect()
    named = (
        ("messages", "messages", "Messages counted."),
        ("bytes", "bytes", "Bytes of their records in the log."),
        ("latency_p50_milliseconds", "latencyP50", "Born to stored, median."),
        ("latency_p99_milliseconds", "latencyP99", "Born to stored, 99 per cent."),
    )
    return [
        metrics.Gauge(
            f"roquet_stats_{name}", doc, {(("topic", row.topic),): float(row[of]) for row in rows}
        )
        for name, of, doc in named
    ]


def _cards(whole: Any, found: dict[str, DataFrame]) -> list[tuple[str, str]]:
    skew = found["queues"].selectExpr("max(skew) as most").collect()[0].most
    cards = [
        (f"{whole.messages:,}", "messages"),
        (bytes_text(whole.bytes), "in the log"),
        (bytes_text(whole.bytes / whole.messages), "mean size"),
        (f"{whole.topics:,}", "topics"),
        (f"{whole.queues:,}", "queues with messages"),
        (f"{skew:.2f}", "skew: fullest queue by mean"),
    ]
    if whole.bornLater:
        cards.append((f"{whole.bornLater:,}", "born after they were stored: clocks differ"))
    return cards


def _bars(found: dict[str, DataFrame]) -> list[Bars]:
    sizes = (
        found["sizes"]
        .groupBy("sizeFrom")
        .sum("messages")
        .toDF("sizeFrom", "messages")
        .orderBy("sizeFrom")
        .collect()
    )
    made = [
        Bars(
            title="Sizes in the log, from … up",
            names=[bytes_text(row.sizeFrom) for row in sizes],
            counts=[row.messages for row in sizes],
            upright=True,
        )
    ]
    for title, table, name in (
        ("Fullest queues", "queues", "concat(topic, ' ', brokerName, ' ', queueId)"),
        ("Tags", "tags", "concat(topic, ' ', coalesce(nullif(tags, ''), '(none)'))"),
        ("Producers, by host", "producers", "concat(topic, ' ', producer)"),
        ("Producer groups", "groups", "concat(topic, ' ', coalesce(producerGroup, '(no trace)'))"),
        ("Hot keys", "keys", "concat(topic, ' ', key)"),
    ):
        made_of = found.get(table)
        if made_of is None:
            continue
        rows = _most(made_of).selectExpr(f"{name} as name", "messages").collect()
        if rows:
            names = [row.name for row in rows]
            made.append(Bars(title=title, names=names, counts=[row.messages for row in rows]))
    return made


def _listings(found: dict[str, DataFrame]) -> list[Listing]:
    wanted = (
        ("Topics", "topics", "topic messages bytes queues meanSize maxSize latencyP50 latencyP99"),
        ("Queues", "queues", "topic brokerName queueId messages bytes firstOffset lastOffset skew"),
        ("Tags", "tags", "topic tags messages bytes"),
        ("Producers", "producers", "topic producer messages bytes latencyP50 latencyP99"),
        ("Producer groups", "groups", "topic producerGroup messages bytes latencyP50 latencyP99"),
        ("Hot keys", "keys", "topic key messages share"),
    )
    notes = {
        "topics": "Sizes are those in the log; latencies are milliseconds from born to stored.",
        "queues": "skew: messages of the queue by the mean of its topic's queues; 1 is even.",
        "producers": "Hosts that messages were born on: a broker stores no producer group.",
        "groups": "By the trace topic; messages without a trace have no group.",
        "keys": "share: of all keys of the topic.",
    }
    return [
        Listing(
            title=title,
            heads=names.split(),
            rows=[
                tuple[object, ...](row)
                for row in _most(found[table]).select(*names.split()).collect()
            ],
            note=notes.get(table, ""),
        )
        for title, table, names in wanted
        if table in found
    ]


def _most(table: DataFrame) -> DataFrame:
    return table.orderBy("messages", ascending=False).limit(ROWS_SHOWN)


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
