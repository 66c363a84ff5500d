"""The job `rebuild`: a store that a broker opens, out of nothing but commit-log files.

Tasks read parts of the log, each from its first record to its last, and leave pieces; further tasks
make each one queue file or index file of them. All of it happens in `OUT.rebuilding`, which gets
the name `OUT` when everything is durable. Pieces that an interrupted run has left are used again.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roquet.base.errors import UsageError
from roquet.broker.messages.schedule import DelayLevels
from roquet.protocol import names
from roquet.protocol.properties import DELAY_LEVELS
from roquet.spark.jobs.options.tables import REBUILD
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.connect import need_context
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.log_files import Store
from roquet.spark.option_table import Given
from roquet.spark.rebuilding.queues import placeable
from roquet.spark.rebuilding.steps import UNIT, Shape, Steps
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from roquet.spark.rebuilding.pieces import Piece
    from roquet.spark.rebuilding.queues import QueuePlan
    from roquet.spark.rebuilding.steps import Found

A = TypeVar("A")
B = TypeVar("B")

DAMAGE: Final = "file string, beginOffset bigint, endOffset bigint, bytes bigint, reason string"
QUEUES: Final = (
    "topic string, queueId int, messages bigint, minOffset bigint, maxOffset bigint, missing bigint"
)
UNPLACED: Final = "topic string, reason string, messages bigint"

_DELAYED: Final = """
select w.queueId, min(if(d.at > w.physicalOffset, null, w.queueOffset)) as waiting,
  max(w.queueOffset) as last
from {log} w left join (
  select topic, uniqKey, reconsumeTimes, max(physicalOffset) as at from {log}
  where topic <> 'SCHEDULE_TOPIC_XXXX' and properties['DELAY'] is not null
    and properties['REAL_TOPIC'] = topic and uniqKey is not null
  group by topic, uniqKey, reconsumeTimes) d
  on d.topic = w.properties['REAL_TOPIC'] and d.uniqKey = w.uniqKey
    and d.reconsumeTimes = w.reconsumeTimes
where w.topic = 'SCHEDULE_TOPIC_XXXX' group by w.queueId"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOptions:
    """The options, checked."""

    shape: Shape
    report: str
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> RebuildOptions:
        """Check options. Raises UsageError."""
        given = Given(options, REBUILD)
        store, out = given.text("store"), given.text("out")
        if not store or not out:
            raise UsageError("store and out are needed: the dead broker's folder, and a new one")
        if "://" in out:
            raise UsageError("out must be a folder that all machines see by one path")
        slots, entries = given.number("maxHashSlotNum"), given.number("maxIndexNum")
        size = given.number("mappedFileSizeConsumeQueue") or 6_000_000
        levels = DelayLevels(given.text("messageDelayLevel") or DELAY_LEVELS)
        folder = Path(os.path.abspath(out))  # noqa: PTH100  (links stay as they are given)
        index = (
            None if given.choice("index") == "none" else (slots or 5_000_000, entries or 20_000_000)
        )
        return cls(
            shape=Shape(
                store=store,
                out=folder,
                link=given.choice("log") == "link",
                queue_units=-(-size // UNIT),
                index=None if given.choice("index") == "none" else index,
                delays=tuple(levels.delay_ms(level + 1) for level in range(levels.highest)),
            ),
            report=given.text("report") or f"{folder}.report",
            metrics=given.text("metricsPath") or None,
            dry_run=given.flag("dryRun"),
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines. Raises UsageError; OSError."""
        shape = self.shape
        files = Store.find(shape.store).files
        size = sum(file.end - file.base for file in files)
        how = "a second name each (hard link)" if shape.link else "copied"
        index = "no index" if shape.index is None else "index"
        return (
            f"read {len(files)} commit-log files of {shape.store}: {size:,} bytes",
            f"write {shape.out}/commitlog: {len(files)} files, {how}",
            f"write {shape.out}/consumequeue: files of {shape.queue_units * UNIT:,} bytes",
            f"write {shape.out}: {index}, config/topics.json, config/delayOffset.json, checkpoint",
            f"write the tables damage, queues, unplaced to {self.report} as Parquet",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return RebuildOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Rebuild; exit code 1 when something of the log could not be read or placed.

    Raises UsageError; Corrupt for damage that cannot be filled; OSError.
    """
    wanted = RebuildOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    need_context(spark, "rebuild")
    return _Rebuild(spark, wanted, say).run()


class _Rebuild:
    """One run: its steps, and what needs Spark."""

    def __init__(
        self, spark: SparkSession, wanted: RebuildOptions, say: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._wanted = wanted
        self._steps = Steps(wanted.shape, self._each, say)

    def run(self) -> Report:
        """Do all steps, or say what an earlier run has said."""
        known = self._steps.known()
        if known is not None:
            return Report(tuple(known["lines"]), tuple(known["written"]), known["exitCode"])
        found = self._steps.rebuild()
        self._steps.tables(found, self._delays(found.queues))
        report = self._report(found)
        self._steps.commit(
            {"lines": report.lines, "written": report.written, "exitCode": report.exit_code}
        )
        return report

    def _delays(self, queues: Iterable[QueuePlan]) -> dict[int, int]:
        """Return how far each delay level was delivered, as the log itself tells."""
        if all(queue.topic != names.SCHEDULE_TOPIC for queue in queues):
            return {}
        register(self._spark)
        columns = "topic,queueId,queueOffset,physicalOffset,uniqKey,reconsumeTimes,properties"
        reader = self._spark.read.format("roquet-log").option("onCorrupt", "report")
        log = reader.option("columns", columns).load(self._wanted.shape.store)
        rows = sql(self._spark, _DELAYED, log=log).collect()
        return {
            row.queueId + 1: row.last + 1 if row.waiting is None else row.waiting for row in rows
        }

    def _report(self, found: Found) -> Report:
        lost = [(file, low, high, high - low, why) for file, low, high, why in found.damage]
        rows = [
            (it.topic, it.queue_id, it.messages, it.first, it.end, it.missing)
            for it in found.queues
        ]
        unplaced = unplaced_of(found.pieces, found.queues)
        tables: Mapping[str, tuple[list[Any], str]] = {
            "damage": (lost, DAMAGE),
            "queues": (rows, QUEUES),
            "unplaced": (list(unplaced), UNPLACED),
        }
        where = self._wanted.report
        for name, (content, schema) in tables.items():
            frame = self._spark.createDataFrame(content, schema)
            frame.coalesce(1).write.mode("overwrite").parquet(f"{where}/{name}")
        if self._wanted.metrics is not None:
            metrics.write_plain(self._wanted.metrics, "rebuild", figures_of(found))
        code = 1 if lost or unplaced else 0
        return Report(lines_of(found), (str(self._wanted.shape.out), where), code)

    def _each(self, work: Callable[[A], B], tasks: Sequence[A]) -> list[B]:
        """Do work in Spark's tasks, one each; results in order."""
        if not tasks:
            return []
        context: Any = self._spark.sparkContext
        found: list[B] = context.parallelize(tasks, len(tasks)).map(work).collect()
        return found


# --- inside --------------------------------------------------------------------------------------


def lines_of(found: Found) -> tuple[str, ...]:
    """Return what people are told, in lines."""
    unplaced = unplaced_of(found.pieces, found.queues)
    records = sum(it.records for it in found.pieces)
    messages = sum(it.messages for it in found.queues)
    topics = len({it.topic for it in found.queues})
    lines = [f"{records:,} records, {messages:,} messages in {len(found.queues):,} queues"]
    lines[0] += f" of {topics:,} topics"
    lines += [
        f"damaged: {file} from {low} to {high}: {why}" for file, low, high, why in found.damage
    ]
    lines += [
        f"missing: {it.topic} queue {it.queue_id}: {it.missing} messages"
        for it in found.queues
        if it.missing
    ]
    lines += [f"without a queue: {count} of {topic}: {why}" for topic, why, count in unplaced]
    whole = not found.damage and not unplaced
    return (*lines, "everything was readable" if whole else "the rest is rebuilt")


def figures_of(found: Found) -> dict[str, tuple[float, str]]:
    """Return what Prometheus is told: values and their meanings."""
    unplaced = sum(count for _, _, count in unplaced_of(found.pieces, found.queues))
    damaged = sum(high - low for _, low, high, _ in found.damage)
    return {
        "records": (float(sum(it.records for it in found.pieces)), "Records of the log."),
        "messages": (float(sum(it.messages for it in found.queues)), "Messages in queues."),
        "queues": (float(len(found.queues)), "Queues that were made."),
        "missing": (float(sum(it.missing for it in found.queues)), "Offsets without a message."),
        "damaged_bytes": (float(damaged), "Bytes of the log that hold no record."),
        "unplaced": (float(unplaced), "Records that no queue has."),
    }


def unplaced_of(pieces: Iterable[Piece], queues: Iterable[QueuePlan]) -> list[tuple[str, str, int]]:
    """Return topic, reason, count of records that no queue has."""
    found: dict[tuple[str, str], int] = {}

    def add(topic: str, why: str, count: int) -> None:
        found[topic, why] = found.get((topic, why), 0) + count

    for piece in pieces:
        for topic, why, count in piece.unplaced:
            add(topic, why, count)
        for run in piece.runs:
            if not placeable(run):
                add(run.topic, "no broker has such a topic or queue", run.count)
    for queue in queues:
        if queue.unplaced:
            add(queue.topic, "another record has its offset, or it is far too high", queue.unplaced)
    return [(topic, why, count) for (topic, why), count in sorted(found.items())]
