"""Looking after a lake: compaction of small files, removal of old days, the check of the catalog.

One at a time: a lock file in the catalog's folder says so. A compaction of Parquet makes a part of
parts, which counts instead of them from its commit on; a kill at any moment leaves the old parts or
the new one. Delta compacts by itself (OPTIMIZE), which changes no row.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.archiving import quarantine
from roquet.spark.jobs.shared.queries import cores, sql
from roquet.spark.jobs.storage import schemas
from roquet.spark.jobs.storage.catalog import CRC, Entry, entry, gone, merged
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.summary import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from pyspark.sql import SparkSession

    from roquet.base.clock import Clock
    from roquet.spark.jobs.lake import Lake

LOCK: Final = "upkeep.lock"
SHOWN: Final = 1000
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_TASKS_A_CORE: Final = 4
_CORRUPT: Final = "spark.sql.files.ignoreCorruptFiles"
_UNREADABLE: Final = re.compile(r"\[FAILED_READ_FILE[.\w]*\] [^\n]*?file ([^\n]+?)\. ")

_COMPARED: Final = """
select topic, day, part, brokerName, queueId,
  c.rows as wanted, r.rows as found, c.crc as wantedCRC, r.crc as foundCRC
from {catalog} c full outer join {ranges} r using (topic, day, part, brokerName, queueId)
where not (c.rows <=> r.rows and c.crc <=> r.crc)
order by topic, brokerName, queueId, day, part"""
_FOUND: Final = """
select topic, cast(day as string) as day, part, brokerName, queueId, count(*) as rows,
  sum({crc}) as crc
from {rows} group by topic, day, part, brokerName, queueId"""
_TWICE: Final = """
select topic, brokerName, queueId, queueOffset, count(*) as copies from {rows}
group by topic, brokerName, queueId, queueOffset having count(*) > 1
order by topic, brokerName, queueId, queueOffset"""
_QUEUES: Final = """
select topic, brokerName, queueId, min(fromOffset) as fromOffset, max(toOffset) as toOffset,
  sum(rows) as rows
from {ever} group by topic, brokerName, queueId
having sum(rows) <> max(toOffset) - min(fromOffset) order by topic, brokerName, queueId"""


@contextlib.contextmanager
def locked(lake: Lake, clock: Clock, *, take_over: bool) -> Generator[None]:
    """Hold the lake's lock. Raises UsageError when another holds it and it is not taken over."""
    path = f"{lake.catalog.folder}/{LOCK}"
    if take_over:
        lake.files.delete(path)
    try:
        lake.files.write_new(path, json.dumps({"sinceMs": clock.now_ms()}))
    except LakeError as error:
        since = lake.files.modified_ms(path)
        raise UsageError(
            f"{path}: another job looks after this lake since {_moment(since)}; if it was killed,"
            " breakLock takes its lock over"
        ) from error
    try:
        yield
    finally:
        lake.files.delete(path)


# --- compaction ----------------------------------------------------------------------------------


def compact(
    lake: Lake, target: int, grace_ms: int, clock: Clock, say: Callable[[str], None]
) -> str:
    """Merge small files and return what was done, in a line.

    `target` are the bytes of a file, about. Parts that are replaced go after `grace_ms`, with the
    next run at the earliest when that is above 0. Call it with the lock held.
    """
    if lake.kind == "delta":
        lake.spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(target))
        sql(lake.spark, f"OPTIMIZE {lake.delta_name}")
        return "compacted by Delta"
    clean(lake, grace_ms, clock)
    live = sorted(entry(it) for it in lake.catalog.live().collect())
    # What is merged has the newest schema that there was when its parts were listed.
    version = len(lake.schemas())
    groups, replaced = 0, 0
    begun = clock.now_ms()
    for (topic, day), group in itertools.groupby(live, key=lambda it: it.place[:2]):
        entries = list(group)
        places = {it.place for it in entries}
        small = small_parts(places, lambda it: lake.files.size(lake.place(it)), target)
        if len(small) < 2:
            continue
        part = schemas.named(f"c{begun:013}-{groups:05}", version)
        _merge(lake, part, small, [it for it in entries if it.place in small], target)
        say(f"{topic} {day}: {len(small)} parts are one")
        groups += 1
        replaced += len(small)
    clean(lake, grace_ms, clock)
    return f"{replaced:,} parts merged into {groups:,}"


def small_parts(parts: Iterable[Part], size: Callable[[Part], int], target: int) -> dict[Part, int]:
    """Return the parts below half of the target, with their bytes."""
    sizes = {it: size(it) for it in parts}
    return {it: count for it, count in sizes.items() if count < target // 2}


def _merge(
    lake: Lake, part: str, small: Mapping[Part, int], entries: list[Entry], target: int
) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    files = max(1, sum(small.values()) // target)
    # In the order of the log, so that a range of offsets is in few pages of few files.
    rows = lake.read(small.__contains__, schemas.version_of(part)).withColumn("part", f.lit(part))
    rows = rows.repartitionByRange(files, "brokerName", "queueId", "queueOffset")
    rows = rows.sortWithinPartitions("brokerName", "queueId", "queueOffset")
    made = lake.stage(part, rows)
    if made != merged(entries, part):
        raise LakeError(f"{part}: what was merged is not what the catalog has; audit the lake")
    lake.move(part, made)
    lake.commit(part, made, small)


def clean(lake: Lake, grace_ms: int, clock: Clock) -> None:
    """Finish what a killed compaction began; remove parts that count no longer."""
    for part in lake.left_over("c"):
        lake.undo(part)
    if lake.kind == "delta":
        return
    entries = lake.catalog.entries()
    out = entries.where("op in ('remove', 'retire')").select("topic", "day", "part", "commit")
    now = clock.now_ms()
    for row in out.distinct().collect():
        folder = lake.place(Part(row.topic, row.day, row.part))
        if not lake.files.exists(folder):
            continue
        since = lake.files.modified_ms(f"{lake.catalog.folder}/{row.commit}")
        if now - since >= grace_ms:
            lake.files.delete(folder)


# --- retention -----------------------------------------------------------------------------------


def retire(lake: Lake, days: int, grace_ms: int, clock: Clock) -> str:
    """Remove days (UTC) that ended more than `days` days ago; return what was done, in a line."""
    last = cutoff(clock.now_ms(), days)
    old = sorted({it for it in lake.parts() if it.day < last.isoformat()})
    if old:
        lake.catalog.commit(f"r{clock.now_ms():013}", gone(old, "retire"))
    quarantine.retire(lake, last)
    if lake.kind == "delta":
        # Also when the catalog had it already: a killed run may have stopped in between.
        # Delta's DELETE takes no parameters.
        days_before = f"day < DATE '{last.isoformat()}'"
        sql(lake.spark, f"DELETE FROM {lake.delta_name} WHERE {days_before}")  # noqa: S608
        vacuum(lake.spark, lake.delta_name)
    else:
        clean(lake, grace_ms, clock)
    return f"{len(old):,} parts of days before {last} removed"


def vacuum(spark: SparkSession, table: str) -> None:
    """Let Delta remove the files that no version needs any more."""
    # It lists folders with as many tasks as this setting says: 10,000, however small the lake is.
    usual = str(spark.conf.get(_LISTING))
    few = min(int(usual), _TASKS_A_CORE * cores(spark))
    spark.conf.set(_LISTING, str(few))
    try:
        sql(spark, f"VACUUM {table}")
    finally:
        spark.conf.set(_LISTING, usual)


def cutoff(now_ms: int, days: int) -> date:
    """Return the first day that stays."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).date() - timedelta(days=days)


# --- check ---------------------------------------------------------------------------------------


def check(lake: Lake) -> list[str]:
    """Return every difference of catalog and lake, in lines; empty when there is none."""
    lines = [] if lake.kind == "delta" else _uncommitted(lake)
    try:
        return lines + _compared(lake)
    except Exception as error:
        # PySpark has no type for what a task raises while rows are collected.
        file = _UNREADABLE.search(str(error))
        if file is None:
            raise
        lines.append(f"unreadable: {file[1]}; rows of such files are lost below")
    usual = str(lake.spark.conf.get(_CORRUPT))
    lake.spark.conf.set(_CORRUPT, "true")
    try:
        return lines + _compared(lake)
    finally:
        lake.spark.conf.set(_CORRUPT, usual)


def _uncommitted(lake: Lake) -> list[str]:
    """Return lines for folders of rows that no commit has added, and no job is putting in place."""
    # Parts that were removed stay for running readers.
    known = {lake.place(it) for it in lake.catalog.summary().ever()}
    begun = set(lake.left_over(""))
    lines: list[str] = []
    for topic in _folders(lake, lake.root, "topic="):
        for day in _folders(lake, topic, "day="):
            lines += [
                f"unknown: {it}: a folder that no commit of the catalog has added"
                for it in _folders(lake, day, "part=")
                if it not in known and it.rpartition("part=")[2] not in begun
            ]
    return lines[:SHOWN]


def _folders(lake: Lake, root: str, prefix: str) -> list[str]:
    return [f"{root}/{it}" for it in lake.files.names(root) if it.startswith(prefix)]


def _compared(lake: Lake) -> list[str]:
    spark = lake.spark
    live = lake.catalog.live().persist()
    try:
        rows = _visible(lake)
        ranges = sql(spark, _FOUND.replace("{crc}", CRC), rows=rows)
        lines = [
            _difference(it)
            for it in sql(spark, _COMPARED, catalog=live, ranges=ranges).limit(SHOWN).collect()
        ]
        lines += [
            f"twice: {_queue(it)} offset {it.queueOffset} is there {it.copies} times"
            for it in sql(spark, _TWICE, rows=rows).limit(SHOWN).collect()
        ]
        for it in sql(spark, _QUEUES, ever=lake.catalog.ever()).limit(SHOWN).collect():
            length = it.toOffset - it.fromOffset
            word = "gap" if it.rows < length else "overlap"
            lines.append(
                f"{word}: {_queue(it)} has {it.rows:,} rows for offsets {it.fromOffset} to"
                f" {it.toOffset - 1}"
            )
    finally:
        live.unpersist()
    return lines


def _visible(lake: Lake) -> Any:
    """Return what is in the files of live parts, whatever the catalog says about rows."""
    try:
        return lake.read(whole=False)
    except LakeError:
        # A part whose folder is gone: read the others, so that the check can name it.
        return lake.read(lambda it: lake.files.exists(lake.place(it)), whole=False)


def _difference(row: Any) -> str:
    place = f"{_queue(row)} day {row.day} part {row.part}"
    if row.found is None:
        return f"lost: {place}: all {row.wanted:,} rows"
    if row.wanted is None:
        return f"unknown: {place}: {row.found:,} rows that the catalog does not have"
    if row.found < row.wanted:
        return f"lost: {place}: {row.found:,} of {row.wanted:,} rows"
    if row.found > row.wanted:
        return f"added: {place}: {row.found:,} rows instead of {row.wanted:,}"
    return f"changed: {place}: checksum {row.foundCRC} instead of {row.wantedCRC}"


def _queue(row: Any) -> str:
    return f"{row.topic} {row.brokerName} queue {row.queueId}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
