"""The job `dedup`: topics without the messages that came twice.

Two messages are the same when they have the same key and the second comes less than `within` after
the first, by time. The first one seen is kept. A message that is older than everything seen by
more than `within` cannot be judged: it is left out, and the exit code says so.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.functions import expr

from roquet.base.errors import UsageError
from roquet.spark.jobs.options.state import DEDUP
from roquet.spark.jobs.sessions.follow import OBSERVED, Following, extracted, field, follow, summary
from roquet.spark.jobs.sessions.written import Written
from roquet.spark.jobs.shared.connect import need_context
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.storage.alone import alone
from roquet.spark.jobs.storage.files import Files
from roquet.spark.option_table import Given
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

KEYS: Final = ("uniqKey", "keys", "tags", "bodyCRC")
SENT: Final = ("body", "keys", "tags", "properties", "uniqKey")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DedupOptions:
    """The options, checked."""

    following: Following
    key: str
    within_s: int
    out: str | None
    topic: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> DedupOptions:
        """Check options. Raises UsageError."""
        given = Given(options, DEDUP)
        out, topic = given.text("out"), given.text("topic")
        if bool(out) == bool(topic):
            raise UsageError("one of out and topic is needed, and not both")
        following = Following.of(given, out)
        if topic and topic in following.reading.get("subscribe", "").split(","):
            raise UsageError(f"topic {topic} is read: what is written to it would be read again")
        within = given.number("within")
        return cls(
            following=following,
            key=field(given, "key", KEYS, "uniqKey"),
            within_s=3600 if within is None else within,
            out=out,
            topic=topic,
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        it = self.following
        target = f"the topic {self.topic}" if self.topic else f"{self.out} as Parquet"
        return (
            f"read {it.topics} from {it.reading['nameServers']}, going on from {it.checkpoint}",
            (
                f"drop what has the {self.key} of a message less than {self.within_s} s before,"
                f" by {it.time}"
            ),
            f"write the others to {target}",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return DedupOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Follow the topics. `say` gets a line for each micro-batch. Raises UsageError."""
    wanted = DedupOptions.parse(options)
    if wanted.following.dry_run:
        return Report(wanted.plan())
    need_context(spark, "dedup")
    register(spark)
    with alone(Files(spark), wanted.following.checkpoint):
        kept = _kept(wanted.following.read(spark), wanted)
        writer = _writer(spark, kept, wanted, say)
        counts = follow("dedup", spark, writer, wanted.following, say)
    lines = summary(counts, f"{counts.repeated:,} repetitions dropped")
    return Report(lines, (wanted.out,) if wanted.out else (), 1 if counts.late else 0)


# --- inside --------------------------------------------------------------------------------------


def _kept(messages: DataFrame, wanted: DedupOptions) -> DataFrame:
    key = f"nullif({extracted(wanted.key)}, '')"
    # A message without a key has one that no other has.
    place = "concat_ws('/', topic, brokerName, queueId, queueOffset)"
    named = messages.selectExpr(
        "*",
        f"{wanted.following.at()} as at",
        f"if({key} is null, concat('p', {place}), concat('k', {key})) as dedupKey",
    )
    counted = named.observe(
        OBSERVED,
        expr("count(1)").alias("read"),
        expr("count_if(startswith(dedupKey, 'p'))").alias("keyless"),
    )
    marked = counted.withWatermark("at", f"{wanted.within_s} seconds")
    return marked.dropDuplicatesWithinWatermark(["dedupKey"]).drop("at", "dedupKey")


def _writer(
    spark: SparkSession, kept: DataFrame, wanted: DedupOptions, say: Callable[[str], None]
) -> Any:
    if wanted.out is not None:
        written = Written(spark, wanted.out, wanted.following.checkpoint)
        written.check(say)

        def each(frame: DataFrame, number: int) -> None:
            written.write(frame, number)

        return kept.writeStream.foreachBatch(each)
    given = {"nameServers": wanted.following.reading["nameServers"], "topic": wanted.topic}
    return kept.select(*SENT).writeStream.format("roquet").options(**given)
