"""The two ends that `audit` compares: `store:FOLDER`, `topic:NAMESERVERS`, `lake:FOLDER`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.spark.jobs.archiving.rows import archived
from roquet.spark.jobs.auditing import buckets, sources
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.shared.still_there import StillThere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.auditing.buckets import Picked

KINDS: Final = ("store", "topic", "lake")
COLUMNS: Final = "topic,brokerName,queueId,queueOffset,uniqKey,storeTimestamp,body"
_LAKE: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, uniqKey string,"
    " storeTimestamp timestamp, body binary"
)
_ENTRIES: Final = """
select topic, brokerName, queueId, queueOffset, coalesce(uniqKey, '') as uniqKey,
  coalesce(crc32(body), -1) as crc
from {read}"""
_SCOPE: Final = """
select * from {read}
where (brokerName = :broker or :broker = '')
  and (:pattern = '' or regexp_like(topic, concat('^(?:', :pattern, ')$')))
  and (:topics = '' or array_contains(split(:topics, ','), topic))
  and (:begin < 0 or unix_millis(storeTimestamp) >= :begin)
  and (:end < 0 or unix_millis(storeTimestamp) < :end)"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which messages are compared. Times are Unix milliseconds by store time."""

    topics: tuple[str, ...]
    pattern: str
    begin_ms: int | None
    end_ms: int | None
    broker: str
    presence: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    """Options of live topics about brokers that are away."""

    def reading(self) -> dict[str, str]:
        """Return the options that narrow a source of ours down."""
        found = {
            "subscribe": ",".join(self.topics),
            "subscribePattern": self.pattern,
            "startingTimestamp": "" if self.begin_ms is None else str(self.begin_ms),
            "endingTimestamp": "" if self.end_ms is None else str(self.end_ms),
        }
        return {name: value for name, value in found.items() if value}


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """One end: its kind and where it is."""

    kind: str
    where: str

    @classmethod
    def parse(cls, name: str, text: str | None) -> End:
        """Read `kind:where`. Raises UsageError."""
        kind, _, where = (text or "").partition(":")
        if kind not in KINDS or not where:
            raise UsageError(
                f"{name} = {(text or '')[:200]!r}: must be store:FOLDER, topic:NAMESERVERS or"
                " lake:FOLDER"
            )
        return cls(kind, where)

    @override
    def __str__(self) -> str:
        """Return it as it is given."""
        return f"{self.kind}:{self.where}"

    def watched(self, scope: Scope) -> StillThere | None:
        """Take down what live topics hold now; None for what changes under nobody."""
        return StillThere(self._topic(scope)) if self.kind == "topic" else None

    def sums(self, spark: SparkSession, scope: Scope) -> DataFrame:
        """Return a row for each bucket of offsets of a queue: count, checksum, first and last."""
        if self.kind == "topic":
            parts = spark.read.format(sources.SUMS).options(**self._topic(scope)).load()
            parts = parts.where(parts.brokerName == scope.broker) if scope.broker else parts
        else:
            parts = buckets.of_rows(spark, self._scoped(spark, scope, None))
        return buckets.whole(spark, parts)

    def entries(self, spark: SparkSession, scope: Scope, picked: Picked | None) -> DataFrame:
        """Return a row for each message: its place, unique key, CRC32 of the unpacked body.

        With `picked` only those that lie in its buckets; a topic is asked for no others.
        """
        found = sql(spark, _ENTRIES, read=self._scoped(spark, scope, picked))
        return found if picked is None else picked.of(spark, found)

    def _scoped(self, spark: SparkSession, scope: Scope, picked: Picked | None) -> DataFrame:
        arguments: Mapping[str, object] = {
            "broker": scope.broker,
            "pattern": scope.pattern,
            "topics": ",".join(scope.topics),
            "begin": -1 if scope.begin_ms is None else scope.begin_ms,
            "end": -1 if scope.end_ms is None else scope.end_ms,
        }
        return sql(spark, _SCOPE, arguments, read=self._read(spark, scope, picked))

    def damage(self, spark: SparkSession) -> DataFrame | None:
        """Return the ranges of a store that hold no record; None for what is no store."""
        if self.kind != "store":
            return None
        return spark.read.format("roquet-log").option("table", "damage").load(self.where)

    def _topic(self, scope: Scope) -> dict[str, str]:
        given = {**scope.reading(), "nameServers": self.where, **scope.presence}
        # What is gone is a difference to be shown, not the end of the comparison.
        return {**given, "failOnDataLoss": "false"}

    def _read(self, spark: SparkSession, scope: Scope, picked: Picked | None) -> DataFrame:
        reader = spark.read
        if self.kind == "lake":
            return archived(spark, self.where, COLUMNS.split(","), _LAKE)
        if self.kind == "topic":
            given = {**self._topic(scope), "columns": COLUMNS}
            if picked is None or not picked.narrows:
                return reader.format("roquet").options(**given).load()
            ranges = {sources.RANGES: sources.written(picked.ranges)}
            return reader.format(sources.ROWS).options(**given, **ranges).load()
        given = {**scope.reading(), "columns": COLUMNS}
        given |= {"onCorrupt": "report", "brokerName": scope.broker}
        return reader.format("roquet-log").options(**given).load(self.where)
