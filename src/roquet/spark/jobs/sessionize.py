"""The job `sessionize`: messages of a key that follow one another, as rows.

A session is written when nothing can join it any more: when the latest time seen is later than its
last message by `gap` and `late`. Until then it is in the state. A message older than the latest
time seen by more than `late` is left out, and the exit code says so.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.functions import expr
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.spark.jobs.options.state import SESSIONIZE
from roquet.spark.jobs.sessions.follow import OBSERVED, Following, extracted, field, follow, summary
from roquet.spark.jobs.sessions.rules import Event, Rules, from_text, to_text
from roquet.spark.jobs.sessions.written import Written
from roquet.spark.jobs.shared.connect import need_context
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.storage.alone import alone
from roquet.spark.jobs.storage.files import Files
from roquet.spark.option_table import Given
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

    from roquet.spark.jobs.sessions.rules import Session

KEYS: Final = ("keys", "tags")
MADE: Final = (
    "key string, beginMs bigint, endMs bigint, messages bigint, bytes bigint, values array<string>"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionizeOptions:
    """The options, checked."""

    following: Following
    key: str
    rules: Rules
    late_s: int
    collect: str | None
    out: str

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SessionizeOptions:
        """Check options. Raises UsageError."""
        given = Given(options, SESSIONIZE)
        out = given.text("out")
        if not out:
            raise UsageError("out is needed: the folder for the sessions")
        gap, late, most = given.number("gap"), given.number("late"), given.number("collectMax")
        return cls(
            following=Following.of(given, out),
            key=field(given, "key", KEYS, "keys"),
            rules=Rules((1800 if gap is None else gap) * 1000, 1000 if most is None else most),
            late_s=3600 if late is None else late,
            collect=field(given, "collect", (), "") if given.text("collect") else None,
            out=out,
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        it = self.following
        return (
            f"read {it.topics} from {it.reading['nameServers']}, going on from {it.checkpoint}",
            (
                f"sessions by {self.key}, ended by {self.rules.gap_ms // 1000} s without a message,"
                f" by {it.time}, {self.late_s} s late at most"
            ),
            f"write them to {self.out} as Parquet",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return SessionizeOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Follow the topics. `say` gets a line for each micro-batch. Raises UsageError."""
    wanted = SessionizeOptions.parse(options)
    if wanted.following.dry_run:
        return Report(wanted.plan())
    need_context(spark, "sessionize")
    register(spark)
    made = 0
    written = Written(spark, wanted.out, wanted.following.checkpoint)

    def each(frame: DataFrame, number: int) -> None:
        nonlocal made
        path = written.write(frame, number)
        made += frame.sparkSession.read.schema(frame.schema).parquet(path).count()

    with alone(Files(spark), wanted.following.checkpoint):
        written.check(say)
        writer = _sessions(wanted.following.read(spark), wanted).writeStream.foreachBatch(each)
        counts = follow("sessionize", spark, writer, wanted.following, say)
    lines = summary(counts, f"{counts.keyless:,} without a key, {made:,} sessions written")
    return Report(lines, (wanted.out,), 1 if counts.late else 0)


# --- inside --------------------------------------------------------------------------------------


def _sessions(messages: DataFrame, wanted: SessionizeOptions) -> DataFrame:
    key = f"nullif(trim({extracted(wanted.key)}), '')"
    value = "cast(null as string)" if wanted.collect is None else extracted(wanted.collect)
    named = messages.selectExpr(
        f"{wanted.following.at()} as at",
        f"split({key}, ' +') as every" if wanted.key == "keys" else f"array({key}) as every",
        "cast(storeSize as bigint) as size",
        f"{value} as value",
    )
    counted = named.observe(
        OBSERVED,
        expr("count(1)").alias("read"),
        expr("count_if(every is null or every[0] is null)").alias("keyless"),
    )
    events = counted.withWatermark("at", f"{wanted.late_s} seconds").selectExpr(
        "explode(every) as key", "at", "unix_millis(at) as atMs", "size", "value"
    )
    grouped: Any = events.where("key is not null").groupBy("key")
    made = grouped.transformWithState(
        statefulProcessor=Processor(wanted.rules),
        outputStructType=MADE,
        outputMode="Append",
        timeMode="EventTime",
    )
    found: DataFrame = made.selectExpr(
        "key",
        "timestamp_millis(beginMs) as begin",
        "timestamp_millis(endMs) as end",
        "messages",
        "bytes",
        "values",
    )
    return found


class Processor(StatefulProcessor):
    """Keeps the open sessions of each key and a timer for the one that ends first."""

    def __init__(self, rules: Rules) -> None:
        """Keep the rules; tasks get a copy."""
        self._rules = rules

    @override
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open: Any = handle.getValueState("open", "sessions string")

    @override
    def handleInputRows(
        self, key: Any, rows: Iterator[Any], timerValues: TimerValues
    ) -> Iterator[Row]:
        events = [Event(row.atMs, row.size, row.value) for row in rows]
        self._keep(self._rules.grown(self._held(), events))
        return iter(())

    @override
    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        done, still = self._rules.split(self._held(), timerValues.getCurrentWatermarkInMs())
        # Spark itself removes the timer that has expired.
        self._keep(still, expiredTimerInfo.getExpiryTimeInMs())
        for it in done:
            yield Row(
                key=key[0],
                beginMs=it.begin_ms,
                endMs=it.end_ms,
                messages=it.messages,
                bytes=it.size,
                values=[value for _, value in it.values],
            )

    @override
    def close(self) -> None:
        """Leave everything to Spark."""

    def _held(self) -> list[Session]:
        state = self._open.get()
        return [] if state is None else from_text(state[0])

    def _keep(self, sessions: list[Session], expired_ms: int | None = None) -> None:
        for at_ms in list(self._handle.listTimers()):
            if at_ms != expired_ms:
                self._handle.deleteTimer(at_ms)
        if not sessions:
            self._open.clear()
            return
        self._open.update((to_text(sessions),))
        self._handle.registerTimer(min(self._rules.ends_ms(it) for it in sessions))
