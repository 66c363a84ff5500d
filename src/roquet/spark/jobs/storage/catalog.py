"""The catalog of a lake: what each part holds, as files of JSON lines that are never changed.

A part is what one micro-batch, or one compaction, put into the folder of a topic and day. A commit
is one file: its lines add parts (a line for each queue), remove parts that others replace, or
retire parts whose day is over. A part counts when a line adds it and none removes or retires it;
the file is the moment from which that holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roquet.spark.jobs.shared.queries import sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.storage.files import Files

FOLDER: Final = "_catalog"
DDL: Final = (
    "op string, part string, topic string, day string, brokerName string, queueId int,"
    " fromOffset bigint, toOffset bigint, rows bigint, crc bigint"
)
_GONE: Final = "select distinct topic, day, part from {entries} where op {which}"
_HELD: Final = """
select topic, day, part, brokerName, queueId, fromOffset, toOffset, rows, crc
from (select * from {entries} where op = 'add') left anti join {gone} using (topic, day, part)"""
RANGES: Final = """
select topic, cast(day as string) as day, part, brokerName, queueId,
  min(queueOffset) as fromOffset, max(queueOffset) + 1 as toOffset, count(*) as rows,
  sum({crc}) as crc
from {rows} group by topic, day, part, brokerName, queueId"""
CRC: Final = (
    "crc32(concat(cast(concat(queueOffset, ' ', coalesce(uniqKey, ''), ' ') as binary),"
    " coalesce(body, cast('' as binary))))"
)
"""Checksum of a row: offset, unique key and body. A range has the sum, whatever the order."""


class Part(NamedTuple):
    """A part's place."""

    topic: str
    day: str
    part: str


class Entry(NamedTuple):
    """What a part holds of one queue. `to_offset` is the one after the last."""

    place: Part
    broker: str
    queue: int
    from_offset: int
    to_offset: int
    rows: int
    crc: int

    def json(self, op: str = "add") -> str:
        """Return the line of a commit."""
        found = {"op": op, **self.place._asdict(), "brokerName": self.broker}
        found |= {"queueId": self.queue, "fromOffset": self.from_offset, "toOffset": self.to_offset}
        return json.dumps({**found, "rows": self.rows, "crc": self.crc})


def entry(row: Any) -> Entry:
    """Read an entry from a row of `RANGES` or `live`."""
    place = Part(row.topic, row.day, row.part)
    bounds = (int(row.fromOffset), int(row.toOffset))
    return Entry(place, row.brokerName, int(row.queueId), *bounds, int(row["rows"]), int(row.crc))


def merged(entries: Iterable[Entry], part: str) -> list[Entry]:
    """Return what a part holds that replaces the parts of these entries, of one topic and day."""
    found: dict[tuple[str, str, str, int], Entry] = {}
    for it in entries:
        key = (it.place.topic, it.place.day, it.broker, it.queue)
        old = found.get(key)
        if old is None:
            found[key] = it._replace(place=it.place._replace(part=part))
            continue
        found[key] = old._replace(
            from_offset=min(old.from_offset, it.from_offset),
            to_offset=max(old.to_offset, it.to_offset),
            rows=old.rows + it.rows,
            crc=old.crc + it.crc,
        )
    return sorted(found.values())


class Catalog:
    """Reads commits and makes new ones."""

    def __init__(self, spark: SparkSession, files: Files, root: str) -> None:
        """Take the lake's folder."""
        self._spark = spark
        self._files = files
        self.folder = f"{root}/{FOLDER}"

    def entries(self) -> DataFrame:
        """Return all lines of all commits that are there now."""
        names = [name for name in self._files.names(self.folder) if name.endswith(".json")]
        reader = self._spark.read.schema(DDL)
        if not names:
            return self._spark.createDataFrame([], DDL)
        # Names, not the folder: a line counts with all others of its commit, or is not seen.
        return reader.json([f"{self.folder}/{name}" for name in names])

    def live(self) -> DataFrame:
        """Return the entries of parts that count, one a part and queue."""
        return self._held("in ('remove', 'retire')")

    def ever(self) -> DataFrame:
        """Return the entries of parts that count or are retired: all that was archived."""
        return self._held("= 'remove'")

    def has(self, commit: str) -> bool:
        """Return whether a commit of this name is there."""
        return self._files.exists(f"{self.folder}/{commit}.json")

    def added(self, commit: str) -> list[Entry]:
        """Return what a commit has added, also when it counts no longer."""
        lines = map(json.loads, self._files.read(f"{self.folder}/{commit}.json").splitlines())
        return [
            Entry(
                Part(it["topic"], it["day"], it["part"]),
                it["brokerName"],
                it["queueId"],
                it["fromOffset"],
                it["toOffset"],
                it["rows"],
                it["crc"],
            )
            for it in lines
            if it["op"] == "add"
        ]

    def commit(self, name: str, lines: Iterable[str]) -> None:
        """Make a commit. Raises LakeError when one of this name is there."""
        self._files.write_new(f"{self.folder}/{name}.json", "".join(f"{it}\n" for it in lines))

    def _held(self, which: str) -> DataFrame:
        entries = self.entries()
        gone = sql(self._spark, _GONE.replace("{which}", which), entries=entries)
        return sql(self._spark, _HELD, entries=entries, gone=gone)


def gone(places: Iterable[Part], op: str) -> list[str]:
    """Return the lines that remove or retire parts."""
    return [json.dumps({"op": op, **it._asdict()}) for it in sorted(set(places))]
