"""The catalog of a lake: what each part holds, as files of JSON lines that are never changed.

A part is what one micro-batch, or one compaction, put into the folder of a topic and day. A commit
is one file: its lines add parts (a line for each queue), remove parts that others replace, or
retire parts whose day is over. A part counts when a line adds it and none removes or retires it;
the file is the moment from which that holds.

A checkpoint has the lines of `CHECKPOINT_COMMITS` commits or more as Parquet, so that a reader
opens few files however many commits there are. Invariant: the lines of a lake are those of its
commits, each once. A checkpoint counts from the moment at which its note is there, which names the
commits that it covers; those stay, and all others are read from their own files. Without its
folder, or a note that can be read, the commits are read: nothing is lost with a checkpoint.

The note also has the summary of its commits (`summary.py`), so that who asks which parts count, or
where queues go on, reads notes and the commits since, and starts no job of Spark.
"""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage import summary
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.summary import Held, Part, Summary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.storage.files import Files

log = logging.getLogger(__name__)

FOLDER: Final = "_catalog"
DDL: Final = (
    "op string, part string, topic string, day string, brokerName string, queueId int,"
    " fromOffset bigint, toOffset bigint, rows bigint, crc bigint, files int"
)
NOTE: Final = ".checkpoint"
"""How the name of a checkpoint's note ends; its folder has the name without that."""
CHECKPOINTS: Final = "_checkpoints"
"""The folder of them, in that of the catalog; Spark passes over it when that is read."""
CHECKPOINT_COMMITS: Final = 100
"""Commits in no checkpoint that are worth one."""
READ_HERE: Final = 2 * CHECKPOINT_COMMITS
"""Commits that the driver reads by itself; more are a job of Spark."""
_COMMIT: Final = "split_part(input_file_name(), '/', -1) as commit"
_GONE: Final = "select distinct topic, day, part from {entries} where op {which}"
_HELD: Final = """
select topic, day, part, brokerName, queueId, fromOffset, toOffset, rows, crc
from (select * from {entries} where op = 'add') left anti join {gone} using (topic, day, part)"""
_PARTS: Final = """
select op, topic, day, part, max(coalesce(files, 0)) as files from {entries}
group by op, topic, day, part"""
_ENDS: Final = """
select topic, brokerName, queueId, max(toOffset) as toOffset from {entries}
where op = 'add' group by topic, brokerName, queueId"""
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


_SORTED: Final = ("topic", "brokerName", "queueId", "fromOffset")


class Entry(NamedTuple):
    """What a part holds of one queue. `to_offset` is the one after the last."""

    place: Part
    broker: str
    queue: int
    from_offset: int
    to_offset: int
    rows: int
    crc: int

    def json(self, op: str = "add", files: int = 0) -> str:
        """Return the line of a commit; `files` is how many the part has, if that is known."""
        found = {"op": op, **self.place._asdict(), "brokerName": self.broker}
        found |= {"queueId": self.queue, "fromOffset": self.from_offset, "toOffset": self.to_offset}
        found |= {"rows": self.rows, "crc": self.crc}
        return json.dumps({**found, "files": files} if files else found)


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


class Note(NamedTuple):
    """What is known of a checkpoint: its folder, the commits in it, and what they come to."""

    folder: str
    commits: frozenset[str]
    summary: Summary | None


class Catalog:
    """Reads commits and makes new ones."""

    def __init__(self, spark: SparkSession, files: Files, root: str) -> None:
        """Take the lake's folder."""
        self._spark = spark
        self._files = files
        self.folder = f"{root}/{FOLDER}"

    def entries(self) -> DataFrame:
        """Return all lines of all commits that are there now, each with its commit's file name."""
        notes, names = self._read()
        found = self._lines(names)
        if not notes:
            return found
        return self._of(it.folder for it in notes).unionAll(found)

    def summary(self) -> Summary:
        """Return which parts count and where queues end, by all commits that are there now.

        Raises LakeError when a commit is damaged.
        """
        notes, names = self._read()
        made = Summary()
        # Checkpoints of older releases have none.
        without = [it.folder for it in notes if it.summary is None]
        for note in notes:
            if note.summary is not None:
                made.add(note.summary)
        if without:
            made.add(self._summed(self._of(without)))
        if len(names) > READ_HERE:
            made.add(self._summed(self._lines(names)))
            return made
        made.add(self.summed(names))
        return made

    def names(self) -> list[str]:
        """Return the file names of all commits."""
        return [name for name in self._files.names(self.folder) if name.endswith(".json")]

    def summed(self, names: Iterable[str]) -> Summary:
        """Return what some commits come to, by their file names. Raises LakeError for damage."""
        made = Summary()
        for name in names:
            try:
                made.add_lines(self._text(name))
            except (ValueError, TypeError, KeyError) as error:
                raise LakeError(f"{self.folder}/{name} is damaged: {error}") from error
        return made

    def checkpoint(self, at_least: int = CHECKPOINT_COMMITS) -> int:
        """Make a checkpoint of the commits that are in none; return how many, 0 below `at_least`.

        Two jobs may do so at a time: of two checkpoints with a commit in common one counts.
        """
        _, names = self._read()
        if len(names) < max(1, at_least):
            return 0
        name = f"{names[0].removesuffix('.json')}-{uuid.uuid4().hex[:8]}"
        folder = f"{self.folder}/{CHECKPOINTS}/{name}"
        lines = self._lines(names)
        lines.repartition(1).sortWithinPartitions(*_SORTED).write.parquet(folder)
        # Of what was written, so that the note and the folder say the same.
        made = self._summed(self._of([folder])).to_json()
        self._files.write_new(folder + NOTE, json.dumps({"commits": names, "summary": made}))
        return len(names)

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

    def _text(self, name: str) -> str:
        """Return the lines of a commit, which has some. Raises ValueError."""
        text = self._files.read(f"{self.folder}/{name}")
        if not text.strip():
            raise ValueError("it is empty")
        return text

    def _lines(self, names: Iterable[str]) -> DataFrame:
        # Names, not the folder: a line counts with all others of its commit, or is not seen.
        paths = [f"{self.folder}/{name}" for name in names]
        if not paths:
            return self._spark.createDataFrame([], f"{DDL}, commit string")
        reader = self._spark.read.schema(DDL).option("mode", "FAILFAST")
        return reader.json(paths).selectExpr("*", _COMMIT)

    def _of(self, folders: Iterable[str]) -> DataFrame:
        return self._spark.read.schema(f"{DDL}, commit string").parquet(*folders)

    def _summed(self, entries: DataFrame) -> Summary:
        made = Summary()
        for row in sql(self._spark, _PARTS, entries=entries).collect():
            made.add_part(row.op, Part(row.topic, row.day, row.part), int(row.files))
        for row in sql(self._spark, _ENDS, entries=entries).collect():
            made.add_end(Held(row.topic, row.brokerName, int(row.queueId)), int(row.toOffset))
        return made

    def _read(self) -> tuple[list[Note], list[str]]:
        """Return the checkpoints that count, and the commits that are in none of them."""
        root = f"{self.folder}/{CHECKPOINTS}"
        folders = self._files.names(root)
        notes, covered = list[Note](), set[str]()
        for name in folders:
            if not name.endswith(NOTE) or name.removesuffix(NOTE) not in folders:
                continue
            found = self._note(f"{root}/{name}")
            # Two that were made at once may have commits in common: one of them counts.
            if found is not None and found.commits and not found.commits & covered:
                notes.append(found)
                covered |= found.commits
        return notes, [name for name in self.names() if name not in covered]

    def _note(self, path: str) -> Note | None:
        """Return a note; None when it is damaged, and its commits are read instead."""
        try:
            found = json.loads(self._files.read(path))
            commits = frozenset(map(str, found["commits"]))
            made = summary.from_json(found["summary"]) if "summary" in found else None
        except (ValueError, TypeError, KeyError) as error:
            log.warning("%s is damaged, its commits are read instead: %s", path, error)
            return None
        return Note(path.removesuffix(NOTE), commits, made)

    def _held(self, which: str) -> DataFrame:
        entries = self.entries()
        gone = sql(self._spark, _GONE.replace("{which}", which), entries=entries)
        return sql(self._spark, _HELD, entries=entries, gone=gone)


def gone(places: Iterable[Part], op: str) -> list[str]:
    """Return the lines that remove or retire parts."""
    return [json.dumps({"op": op, **it._asdict()}) for it in sorted(set(places))]
