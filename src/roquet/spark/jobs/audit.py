"""The job `audit`: two ends compared by queue, offset, unique key and CRC32 of bodies.

The left end is what should be there, the right end what is there. Differences, each with queue and
offset: `lost` (left only), `added` (right only), `duplicated` (right once more than left),
`changed` (another message or body at the offset), `reordered` (at another offset of its queue),
`damaged` (a range of a store that holds no record).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.options.kinds import presence
from roquet.spark.jobs.options.tables import AUDIT
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.ends import End, Scope
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.shared.report import Report
from roquet.spark.option_table import Given
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

KINDS: Final = ("lost", "added", "duplicated", "changed", "reordered", "damaged")
"""What a difference may be."""

_COPIES: Final = """
select *, row_number() over (partition by topic, brokerName, queueId, queueOffset, uniqKey, crc
  order by crc) as copy from {entries}"""
_QUEUES: Final = """
select topic, brokerName, queueId, sum(l) as leftMessages, sum(r) as rightMessages,
  min(if(l = 1, queueOffset, null)) as leftFirst, max(if(l = 1, queueOffset, null)) as leftLast,
  min(if(r = 1, queueOffset, null)) as rightFirst, max(if(r = 1, queueOffset, null)) as rightLast
from (select *, 1 as l, 0 as r from {left} union all select *, 0 as l, 1 as r from {right})
group by topic, brokerName, queueId"""
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
    sides: list[DataFrame] = []
    try:
        for end in (wanted.left, wanted.right):
            entries = end.entries(spark, wanted.scope)
            sides.append(sql(spark, _COPIES, entries=entries).persist())
            say(f"{sides[-1].count():,} messages in {end}")
        left, right = sides
        queues, found = f"{wanted.out}/queues", f"{wanted.out}/differences"
        _store(sql(spark, _QUEUES, left=left, right=right), queues)
        # What is alike is most of it and is looked at once; all further steps see the rest only.
        sides += [only.persist() for only in _only(spark, left, right)]
        made = _differences(spark, left, *sides[2:])
        for end in (wanted.left, wanted.right):
            if (damage := end.damage(spark)) is not None:
                made = made.union(sql(spark, _DAMAGED, {"end": str(end)}, damage=damage))
        _store(made, found)
    finally:
        for side in sides:
            side.unpersist()
    say(f"tables {queues}, {found}")
    return _report(spark.read.parquet(queues), spark.read.parquet(found), wanted)


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


def _only(spark: SparkSession, left: DataFrame, right: DataFrame) -> tuple[DataFrame, DataFrame]:
    return sql(spark, _ONLY, one=left, other=right), sql(spark, _ONLY, one=right, other=left)


def _differences(
    spark: SparkSession, left: DataFrame, only_left: DataFrame, only_right: DataFrame
) -> DataFrame:
    if only_left.isEmpty() and only_right.isEmpty():
        empty: DataFrame = spark.createDataFrame([], _SCHEMA)
        return empty
    moved = sql(spark, _MOVED, left=only_left, right=only_right)
    stayed = sql(spark, _STAYED_LEFT, left=only_left, moved=moved)
    extra = sql(spark, _STAYED_RIGHT, right=only_right, moved=moved)
    known = sql(spark, _KNOWN, left=left, extra=extra)
    return sql(spark, _DIFFERENCES, moved=moved, left=stayed, extra=extra, known=known)


def _store(table: DataFrame, path: str) -> None:
    table.coalesce(1).write.mode("overwrite").parquet(path)


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
