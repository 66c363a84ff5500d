"""The job `audit`: two ends compared by queue, offset, unique key and CRC32 of bodies.

The left end is what should be there, the right end what is there. Both are compared by counts and
checksums of buckets of offsets (`auditing/buckets.py`), which brokers of ours answer without
sending a message; rows are read of the buckets that differ. Differences, each with queue and
offset: `lost` (left only), `added` (right only), `duplicated` (right once more than left),
`changed` (another message or body at the offset), `reordered` (at another offset of its queue),
`damaged` (a range of a store that holds no record).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.auditing import buckets, sources
from roquet.spark.jobs.auditing.ends import End, Scope
from roquet.spark.jobs.options.kinds import presence
from roquet.spark.jobs.options.tables import AUDIT
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.shared.still_there import all_found
from roquet.spark.option_table import Given
from roquet.spark.reading.sums import BUCKET
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.auditing.buckets import Picked

KINDS: Final = ("lost", "added", "duplicated", "changed", "reordered", "damaged")
"""What a difference may be."""

_COPIES: Final = """
select *, row_number() over (partition by topic, brokerName, queueId, queueOffset, uniqKey, crc
  order by crc) as copy from {entries}"""
_ONLY: Final = """
select *, row_number() over (partition by topic, brokerName, queueId, uniqKey, crc
  order by queueOffset, copy) as nth
from {one} left anti join {other}
  using (topic, brokerName, queueId, queueOffset, uniqKey, crc, copy)"""
_MOVED: Final = """
select l.*, r.queueOffset as rightOffset, r.copy as rightCopy from {left} l join {right} r
  using (topic, brokerName, queueId, uniqKey, crc, nth)"""
_STAYED_LEFT: Final = """
select *, row_number() over (partition by topic, brokerName, queueId, queueOffset
  order by uniqKey, crc, copy) as place
from {left} left anti join {moved}
  using (topic, brokerName, queueId, queueOffset, uniqKey, crc, copy)"""
_STAYED_RIGHT: Final = """
select *, row_number() over (partition by topic, brokerName, queueId, queueOffset
  order by uniqKey, crc, copy) as place
from {right} left anti join (select topic, brokerName, queueId, uniqKey, crc,
  rightOffset as queueOffset, rightCopy as copy from {moved})
  using (topic, brokerName, queueId, queueOffset, uniqKey, crc, copy)"""
_MORE: Final = """
select * from {extra} left anti join {left}
  using (topic, brokerName, queueId, queueOffset, place)"""
_KNOWN: Final = """
select distinct topic, brokerName, queueId, uniqKey, crc, true as known
from {left} left semi join {extra} using (topic, brokerName, queueId, uniqKey, crc)"""
_DIFFERENCES: Final = """
select 'reordered' as kind, topic, brokerName, queueId, queueOffset, rightOffset, uniqKey,
  crc as leftCRC, crc as rightCRC, '' as detail from {moved}
union all
select case when l.crc is not null and r.crc is not null then 'changed'
            when r.crc is null then 'lost' when r.known then 'duplicated' else 'added' end,
  topic, brokerName, queueId, queueOffset, if(r.crc is null, null, queueOffset),
  coalesce(l.uniqKey, r.uniqKey), l.crc, r.crc,
  if(l.uniqKey <> r.uniqKey, concat('now the message ', r.uniqKey), '')
from {left} l full outer join (select e.*, k.known from {extra} e left join {known} k
  using (topic, brokerName, queueId, uniqKey, crc)) r
  using (topic, brokerName, queueId, queueOffset, place)"""
_SCHEMA: Final = (
    "kind string, topic string, brokerName string, queueId int, queueOffset bigint,"
    " rightOffset bigint, uniqKey string, leftCRC bigint, rightCRC bigint, detail string"
)
_DAMAGED: Final = """
select 'damaged' as kind, '' as topic, '' as brokerName, cast(null as int) as queueId,
  beginOffset as queueOffset, cast(null as bigint) as rightOffset, '' as uniqKey,
  cast(null as bigint) as leftCRC, cast(null as bigint) as rightCRC,
  concat(:end, ': ', file, ' from ', beginOffset, ' to ', endOffset, ': ', reason) as detail
from {damage}"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options, checked."""

    left: End
    right: End
    scope: Scope
    out: str
    show: int
    metrics: str | None
    dry_run: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> AuditOptions:
        """Check options. Raises UsageError."""
        given = Given(options, AUDIT)
        left = End.parse("left", given.text("left"))
        right = End.parse("right", given.text("right"))
        scope = Scope(
            topics=given.names("subscribe"),
            pattern=given.text("subscribePattern") or "",
            begin_ms=given.number("startingTimestamp"),
            end_ms=given.number("endingTimestamp"),
            broker=given.text("brokerName") or "",
            presence=presence(given),
        )
        if bool(scope.topics) == bool(scope.pattern) and (
            scope.pattern or "topic" in (left.kind, right.kind)
        ):
            raise UsageError("one of subscribe and subscribePattern is needed, and not both")
        if (left.kind == "store") != (right.kind == "store") and not scope.broker:
            raise UsageError("brokerName is needed: a store does not know whose it is")
        out = given.text("out")
        if not out:
            raise UsageError("out is needed: the folder for what is found")
        show = given.number("show")
        return cls(
            left=left,
            right=right,
            scope=scope,
            out=out,
            show=1000 if show is None else show,
            metrics=given.text("metricsPath") or None,
            dry_run=given.flag("dryRun"),
        )

    def plan(self) -> tuple[str, ...]:
        """Return what will be done, in lines."""
        topics = ",".join(self.scope.topics) or self.scope.pattern or "all topics"
        return (
            f"compare {topics} of {self.left} with {self.right}, with bodies",
            f"write the tables queues and differences to {self.out} as Parquet, replacing them",
        )


def plan(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what `run` would do with these options. Raises UsageError."""
    return AuditOptions.parse(options).plan()


def run(spark: SparkSession, options: Mapping[str, str], say: Callable[[str], None]) -> Report:
    """Compare, print and store every difference; exit code 1 if there is any.

    Raises UsageError.
    """
    wanted = AuditOptions.parse(options)
    if wanted.dry_run:
        return Report(wanted.plan())
    register(spark)
    sources.register(spark)
    queues, found = f"{wanted.out}/queues", f"{wanted.out}/differences"
    kept: list[DataFrame] = []
    ends = wanted.left, wanted.right
    watched = [it for end in ends if (it := end.watched(wanted.scope)) is not None]
    for end in ends:
        # Not persist: a plan that reads a Python source is run again at each use of it.
        kept.append(end.sums(spark, wanted.scope).localCheckpoint())
        count = kept[-1].selectExpr("coalesce(sum(messages), 0)").collect()[0][0]
        say(f"{count:,} messages in {end}")
    _store(buckets.queues(spark, *kept), queues)
    made = _unlike(spark, wanted, buckets.unlike(spark, *kept), say)
    for end in ends:
        if (damage := end.damage(spark)) is not None:
            made = made.union(sql(spark, _DAMAGED, {"end": str(end)}, damage=damage))
    _store(made, found)
    say(f"tables {queues}, {found}")
    report = _report(spark.read.parquet(queues), spark.read.parquet(found), wanted)
    said = all_found(watched)
    return dataclasses.replace(
        report,
        lines=(*said.lines, *report.lines),
        exit_code=1 if said.is_changed else report.exit_code,
    )


def gauges(left: int, right: int, kinds: Mapping[str, int]) -> tuple[metrics.Gauge, ...]:
    """Return what Prometheus is told: every kind of difference, those without any as zero."""
    return (
        metrics.Gauge(
            "roquet_audit_messages",
            "Messages of each end.",
            {(("end", "left"),): float(left), (("end", "right"),): float(right)},
        ),
        metrics.Gauge(
            "roquet_audit_differences",
            "Differences by kind.",
            {(("kind", kind),): float(kinds.get(kind, 0)) for kind in KINDS},
        ),
    )


# --- inside --------------------------------------------------------------------------------------


def _unlike(
    spark: SparkSession,
    wanted: AuditOptions,
    picked: Picked,
    say: Callable[[str], None],
) -> DataFrame:
    """Compare the rows of the buckets that are not alike."""
    say(f"{sum(map(len, picked.ranges)) // BUCKET:,} buckets of {BUCKET:,} offsets differ")
    if not picked.ranges:
        empty: DataFrame = spark.createDataFrame([], _SCHEMA)
        return empty
    sides: list[DataFrame] = []
    for end in (wanted.left, wanted.right):
        entries = end.entries(spark, wanted.scope, picked)
        sides.append(sql(spark, _COPIES, entries=entries).localCheckpoint())
    left, right = sides
    # What is alike is most of it and is looked at once; all further steps see the rest only.
    only_left, only_right = (
        sql(spark, _ONLY, one=one, other=other).localCheckpoint()
        for one, other in ((left, right), (right, left))
    )
    moved = sql(spark, _MOVED, left=only_left, right=only_right)
    stayed = sql(spark, _STAYED_LEFT, left=only_left, moved=moved)
    extra = sql(spark, _STAYED_RIGHT, right=only_right, moved=moved)
    # What the right end has more may be a copy of any message of the left one.
    more = sql(spark, _MORE, extra=extra, left=stayed).localCheckpoint()
    all_left = left if more.isEmpty() else wanted.left.entries(spark, wanted.scope, None)
    known = sql(spark, _KNOWN, left=all_left, extra=more)
    return sql(spark, _DIFFERENCES, moved=moved, left=stayed, extra=extra, known=known)


def _store(table: DataFrame, path: str) -> None:
    # Not coalesce: it would have one task do all that makes the table.
    table.repartition(1).write.mode("overwrite").parquet(path)


def _report(queues: DataFrame, found: DataFrame, wanted: AuditOptions) -> Report:
    lines = [
        f"{_place(row)}: {row.leftMessages:,} left ({row.leftFirst} to {row.leftLast}),"
        f" {row.rightMessages:,} right ({row.rightFirst} to {row.rightLast})"
        for row in queues.orderBy("topic", "brokerName", "queueId").limit(wanted.show).collect()
    ]
    kinds = {row[0]: int(row[1]) for row in found.groupBy("kind").count().collect()}
    total = sum(kinds.values())
    ordered = found.orderBy("topic", "brokerName", "queueId", "queueOffset").limit(wanted.show)
    lines += [_line(row) for row in ordered.collect()]
    if total > wanted.show:
        lines.append(f"and {total - wanted.show:,} more in {wanted.out}/differences")
    if wanted.metrics is not None:
        (whole,) = queues.selectExpr("sum(leftMessages) as l", "sum(rightMessages) as r").collect()
        metrics.write(wanted.metrics, "audit.prom", gauges(whole.l or 0, whole.r or 0, kinds))
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    lines.append(f"{total:,} differences: {counts}" if total else "no difference")
    return Report(
        tuple(lines), (f"{wanted.out}/queues", f"{wanted.out}/differences"), 1 if total else 0
    )


def _line(row: Any) -> str:
    if row.kind == "damaged":
        return f"damaged {row.detail}"
    text = f"{row.kind} {_place(row)} offset {row.queueOffset}"
    if row.kind == "reordered":
        text += f", now at {row.rightOffset}"
    return f"{text} {row.uniqKey} {row.detail}".rstrip()


def _place(row: Any) -> str:
    return " ".join(part for part in (row.topic, row.brokerName, f"queue {row.queueId}") if part)
