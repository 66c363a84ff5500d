"""The job `cdc`: changes of a database's table, as Debezium sends them, into a table of its rows.

Inserts, updates and deletions are merged by the key, in the order of their offsets; a micro-batch
that is repeated changes nothing (`changes/table.py`, for Delta `changes/delta.py`). Messages that
are no changes are kept, named and counted, or end the job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies.column import Bodies
from roquet.spark.jobs.changes import begun, envelope
from roquet.spark.jobs.changes.about import DELTA
from roquet.spark.jobs.changes.delta import table_at
from roquet.spark.jobs.changes.reached import Notes, Reached
from roquet.spark.jobs.changes.table import VERSIONS
from roquet.spark.jobs.lake import configuration as lake_configuration
from roquet.spark.jobs.options.state import CDC
from roquet.spark.jobs.sessions.follow import OBSERVED, Following, follow, summary
from roquet.spark.jobs.shared.connect import need_context
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.storage import checkpoints
from roquet.spark.jobs.storage.alone import alone
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.offsets import QueueKey
from roquet.spark.option_table import Given
from roquet.spark.schema import ddl
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.changes.delta import DeltaTable
    from roquet.spark.jobs.changes.table import ChangeTable
NAMED_MAX: Final = 10
"""Messages that are no changes which a micro-batch names, each in a line."""
_MANY: Final = {
    envelope.BAD: "bad",
    envelope.DELETE: "deletions",
    envelope.MESSAGE: "messages of the database",
    envelope.OTHER: "changes of other tables",
    envelope.TOMBSTONE: "tombstones",
    envelope.UPSERT: "inserts and updates",
}
_FIGURES: Final = (
    (envelope.BAD, "bad_bodies", "Messages of this run that were no changes"),
    (envelope.DELETE, "deletions", "Deletions of this run"),
    (envelope.OTHER, "other_tables", "Changes of other tables that were passed over in this run"),
    (envelope.UPSERT, "upserts", "Inserts and updates of this run"),
)
"""Kinds with the names and meanings that Prometheus has of them."""
_SAME_MS: Final = "have changes in several queues of the same millisecond: which is last is open"
_MERGED: Final = f"'{envelope.UPSERT}', '{envelope.DELETE}'"
_QUEUE: Final = "struct(topic, brokerName, queueId) as queue"
_QUERY: Final = "sql.streaming.queryId"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CdcOptions:
    """The options, checked."""

    following: Following
    bodies: Bodies
    columns: str
    keys: tuple[str, ...]
    tables: tuple[str, ...]
    out: str
    kind: str
    buckets: int
    fail_on_bad: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> CdcOptions:
        """Check options. Raises UsageError."""
        given = Given(options, CDC)
        out, kind = (given.text("out") or "").rstrip("/"), given.choice("body")
        columns, schema = given.text("columns") or "", given.text("schema")
        if not out:
            raise UsageError("out is needed: the folder of the table")
        if not given.names("key"):
            raise UsageError("key is needed: the columns of the table's key, by comma")
        if kind == "json" and (schema or not columns):
            raise UsageError("body json needs columns, as in `id bigint, name string`")
        if kind == "avro" and columns:
            raise UsageError("columns is for body json: a schema of Avro has them")
        schemas = given.text("schemas")
        if kind == "json" and schemas:
            raise UsageError("schemas is for body avro")
        return cls(
            following=Following.of(given, out),
            bodies=Bodies("json") if kind == "json" else Bodies.parse(kind, schema, None, schemas),
            columns=columns,
            keys=given.names("key"),
            tables=given.names("table"),
            out=out,
            kind=given.choice("format"),
            buckets=given.number("buckets") or 16,
            fail_on_bad=given.flag("failOnBadBodies"),
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        it = self.following
        return (
            f"read {it.topics} from {it.reading['nameServers']}, going on from {it.checkpoint}",
            f"merge envelopes of Debezium ({self.bodies.kind}) by {', '.join(self.keys)}",
            f"keep the table in {self.out} as {self.kind}, {self.buckets} buckets",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return CdcOptions.parse(options).plan()


def configuration(options: Mapping[str, str]) -> dict[str, str]:
    """Return what the session needs. Raises UsageError."""
    return lake_configuration(CdcOptions.parse(options).kind)


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Follow the topics; exit code 1 when messages were no changes.

    Raises UsageError, LakeError and what Spark raises for a query that failed.
    """
    wanted = CdcOptions.parse(options)
    if wanted.following.dry_run:
        return Report(wanted.plan())
    need_context(spark, "cdc")
    log = "_delta_log" if wanted.kind == DELTA else VERSIONS
    checkpoints.check(spark, wanted.following.checkpoint, f"{wanted.out}/{log}")
    register(spark)
    merger = Merger(table_at(spark, wanted.out, wanted.kind), wanted, say)
    merger.create()
    with contextlib.ExitStack() as locks:
        locks.enter_context(alone(merger.files, wanted.following.checkpoint))
        if wanted.kind != DELTA:
            # Delta sets the transactions of several writers in a row.
            locks.enter_context(alone(merger.files, f"{wanted.out}/{VERSIONS}"))
        rows = wanted.following.read(spark)
        merger.check()
        counted = rows.selectExpr("*").observe(OBSERVED, *_counts())
        writer = counted.writeStream.foreachBatch(merger.write)
        counts = follow("cdc", spark, writer, wanted.following, say, more=merger.figures)
    told = ", ".join(f"{count:,} {_MANY[kind]}" for kind, count in sorted(merger.kinds.items()))
    bad = merger.kinds.get(envelope.BAD, 0)
    lines = list(summary(counts, f"of them {told}" if told else "no change"))
    if bad:
        lines.append(f"{bad:,} messages were no changes: {wanted.out}/_bad")
    if merger.unclear:
        lines.append(f"{merger.unclear:,} keys {_SAME_MS}; let the key of a row choose its queue")
    return Report(tuple(lines), (wanted.out,), 1 if bad or merger.unclear else 0)


def table(spark: SparkSession, out: str) -> DataFrame:
    """Return the rows that the table has now. Raises UsageError when there is none."""
    return table_at(spark, out).read()


class Merger:
    """Merges micro-batches."""

    def __init__(
        self, target: ChangeTable | DeltaTable, wanted: CdcOptions, say: Callable[[str], None]
    ) -> None:
        """Count from zero."""
        self._target = target
        self._wanted = wanted
        self._say = say
        self.kinds: dict[str, int] = {}
        self.unclear = 0
        self.files = target.files
        self._notes: Notes | None = None

    def create(self) -> None:
        """Make the table. Raises UsageError."""
        spark = self._target.spark
        rows = self._parsed(spark.createDataFrame([], ddl()))
        row: Any = rows.schema["row"].dataType
        self._target.create(row, self._wanted.keys, self._wanted.buckets, self._say)

    def check(self) -> None:
        """See that table, checkpoint and topics belong together. Raises LakeError."""
        notes, wanted = Notes(self.files, self._target.root), self._wanted.following
        has = begun.held(self._target.places())
        notes.check(wanted.checkpoint, has.ends, self._target.root)
        if checkpoints.done(self.files, wanted.checkpoint) is None:
            # A table that was set back has not all that was read.
            whole = all(has.ends.get(it, 0) >= end for it, end in notes.all.changed.items())
            read = notes.all.read if whole else {}
            begun.check(has, read, wanted.reading, self._target.root, self._say)
        self._notes = notes

    def figures(self) -> dict[str, tuple[float, str]]:
        """Return what Prometheus gets of this run besides what was read."""
        counts = {name: (float(self.kinds.get(kind, 0)), f"{doc}.") for kind, name, doc in _FIGURES}
        unclear = (float(self.unclear), "Keys of which the last of several queues is open.")
        return {**counts, "unclear_keys": unclear}

    def write(self, frame: DataFrame, number: int) -> None:
        """Merge one micro-batch. Raises LakeError."""
        context = self._target.spark.sparkContext
        query = context.getLocalProperty(_QUERY)
        if not query:
            raise LakeError("Spark does not say which query this micro-batch is of")
        part = f"b{query[:13]}-{number:010}"
        # It is read several times, and from the brokers once.
        changes = self._parsed(frame).persist()
        try:
            counted = changes.groupBy("kind").agg(*_of_kind()).collect()
            kinds = {it.kind: int(it["rows"]) for it in counted}
            if kinds.get(envelope.BAD):
                self._keep_bad(part, changes.where(f"kind = '{envelope.BAD}'"))
            changed = (it for it in counted if it.kind in (envelope.UPSERT, envelope.DELETE))
            self._one_table({str(name) for it in changed for name in it.sources})
            touched = self._target.merge(part, changes)
            self._name_unclear(changes)
            self._note(part, changes)
        finally:
            changes.unpersist()
        for kind, count in kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        if kinds:
            self._say(f"micro-batch {number}: {touched:,} buckets written")

    def _parsed(self, rows: DataFrame) -> DataFrame:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  (slow to import)

        try:
            return envelope.parsed(rows, *self._envelope)
        except AnalysisException as error:
            raise UsageError(f"columns: {str(error).strip().splitlines()[0][:300]}") from error

    @property
    def _envelope(self) -> tuple[Bodies, str, tuple[str, ...], tuple[str, ...]]:
        it = self._wanted
        return it.bodies, it.columns, it.keys, it.tables

    def _one_table(self, new: set[str]) -> None:
        """Raise LakeError for changes of another table than those before, unless both are named."""
        if self._wanted.tables:
            return
        path = f"{self._target.root}/_source.json"
        try:
            known = (
                set(json.loads(self.files.read(path))) if self.files.exists(path) else set[str]()
            )
        except (ValueError, TypeError) as error:
            raise LakeError(
                f"{path} is damaged: {error}. It has the table's name, as in"
                ' ["shop.orders"]: write it, or give the option table'
            ) from error
        if len(known | new) > 1:
            raise LakeError(
                f"there are changes of the tables {', '.join(sorted(known | new))}, and a folder"
                " has one: name it by the option table, and others are passed over; name several,"
                " by comma, if no two have a row with the same key"
            )
        if new - known:
            self.files.replace(path, json.dumps(sorted(new)))

    def _note(self, part: str, changes: DataFrame) -> None:
        from pyspark.sql.functions import expr  # noqa: PLC0415  (slow to import)

        assert self._notes is not None
        ends = (
            expr("max(queueOffset) + 1").alias("read"),
            expr(f"max(if(kind in ({_MERGED}), queueOffset + 1, null))").alias("changed"),
        )
        new = Reached({}, {})
        for it in changes.groupBy("topic", "brokerName", "queueId").agg(*ends).collect():
            queue = QueueKey(it.topic, it.brokerName, int(it.queueId))
            new.read[queue] = int(it.read)
            if it.changed is not None:
                new.changed[queue] = int(it.changed)
        self._notes.add(part, new)

    def _name_unclear(self, changes: DataFrame) -> None:
        """Name keys whose last changes are in several queues, stored in the same millisecond."""
        from pyspark.sql.functions import expr  # noqa: PLC0415  (slow to import)

        keys = ", ".join(f"row.`{it.replace('`', '``')}`" for it in self._wanted.keys)
        # Not by SQL: with the view that it makes of a frame Spark drops what is kept of the frame.
        rows = changes.where(f"kind in ({_MERGED})")
        rows = rows.selectExpr(f"struct({keys}) as k", "storeTimestamp as at", _QUEUE)
        times = rows.groupBy("k", "at").agg(expr("count(distinct queue) as queues"))
        last = times.groupBy("k").agg(expr("max_by(queues, at) as queues")).where("queues > 1")
        found = last.selectExpr("to_json(k) as name")
        (row,) = found.selectExpr("count(*) as many", "min(name) as first").collect()
        if row.many:
            self.unclear += int(row.many)
            self._say(f"{row.many:,} keys {_SAME_MS}, such as {row.first[:200]}")

    def _keep_bad(self, part: str, bad: DataFrame) -> None:
        first = bad.orderBy("topic", "brokerName", "queueId", "queueOffset").limit(NAMED_MAX)
        lines = [
            f"{it.topic} {it.brokerName} queue {it.queueId} offset {it.queueOffset} is no change:"
            f" {it.error}"
            for it in first.collect()
        ]
        if self._wanted.fail_on_bad:
            raise LakeError(
                f"{lines[0]}; failOnBadBodies is on: nothing of its micro-batch is merged"
            )
        for line in lines:
            self._say(line)
        kept = bad.select(*envelope.PLACE, "body", "error")
        kept.write.mode("overwrite").parquet(f"{self._target.root}/_bad/{part}")


def _of_kind() -> tuple[Any, ...]:
    from pyspark.sql.functions import expr  # noqa: PLC0415  (slow to import)

    sources = f"slice(collect_set(source), 1, {NAMED_MAX})"
    return expr("count(1)").alias("rows"), expr(sources).alias("sources")


def _counts() -> tuple[Any, ...]:
    from pyspark.sql.functions import expr  # noqa: PLC0415  (slow to import)

    return expr("count(1)").alias("read"), expr("count_if(keys is null)").alias("keyless")
