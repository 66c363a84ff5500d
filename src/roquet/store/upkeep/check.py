"""What is wrong with a store, found by reading it: log, queues, tables, marks.

The log is the truth; queues, index and checkpoint are made from it and can be made anew. Each
finding says what it means for the messages and what helps.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import fcntl
import json
import struct
from typing import TYPE_CHECKING

from roquet.base.durable import read_stored
from roquet.protocol import properties as props
from roquet.protocol.fastjson import read_object
from roquet.protocol.fastjson_reader import JsonError
from roquet.protocol.java_hash import java_hash
from roquet.store.marks import diverged
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.upkeep.logscan import Damage, End, is_log_name, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from roquet.store.records import Record

DELAY_TOPIC = "SCHEDULE_TOPIC_XXXX"
UNIT = struct.Struct(">QIq")
_FILLER_SIZE = 0x7FFFFFFF
_NOT_QUEUED = (0x4, 0xC)
"""Transaction bits of half messages and of those rolled back: no queue has them."""
_SHOWN_MAX = 20
_PROGRESS_RECORDS = 500


class Level(enum.Enum):
    """How bad a finding is."""

    FINE = "fine"
    NOTE = "note"
    REPAIRABLE = "repairable"
    DAMAGE = "DAMAGE"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing found: where, what, and what helps."""

    level: Level
    where: str
    text: str
    helps: str = ""
    is_late: bool = False
    """A broker that has the store open may not have written it yet."""

    def of_used(self) -> Finding:
        """Return what it means in a store that a broker has open."""
        if not self.is_late:
            return self
        helps = "nothing to do: a broker has the store open and writes queues some seconds later"
        return dataclasses.replace(self, level=Level.NOTE, helps=helps)


@dataclasses.dataclass(slots=True)
class _Queue:
    """The log's view of one queue: physical offset, size and tag code by queue offset."""

    first: int
    offsets: array.array[int] = dataclasses.field(default_factory=lambda: array.array("Q"))
    sizes: array.array[int] = dataclasses.field(default_factory=lambda: array.array("I"))
    codes: array.array[int] = dataclasses.field(default_factory=lambda: array.array("q"))

    @property
    def end(self) -> int:
        return self.first + len(self.offsets)

    def add(self, record: Record, code: int) -> None:
        self.offsets.append(record.physical_offset)
        self.sizes.append(record.size)
        self.codes.append(code)


@dataclasses.dataclass(slots=True)
class Summary:
    """What a check has seen."""

    records: int = 0
    record_bytes: int = 0
    log_begin: int | None = None
    log_end: int = 0
    findings: list[Finding] = dataclasses.field(default_factory=list[Finding])

    @property
    def worst(self) -> Level:
        """The gravest level among the findings."""
        order = list(Level)
        return max((it.level for it in self.findings), key=order.index, default=Level.FINE)


def check(folder: Path, progress: Callable[[int], None] = lambda _: None) -> Summary:
    """Read a whole store; `progress` is told now and then how many bytes of records were read.

    Raises UsageError.
    """
    summary = Summary()
    used = is_used(folder)
    queues = _read_log(folder, summary, progress)
    for found in _check_queues(folder, queues, lambda: progress(summary.record_bytes)):
        summary.findings.append(found.of_used() if used else found)
    summary.findings.extend(_odd_files(folder / "consumequeue"))
    summary.findings.extend(_check_tables(folder / "config"))
    summary.findings.extend(_check_marks(folder))
    return summary


def is_used(folder: Path) -> bool:
    """Tell whether a broker, which then is another process, has the store open."""
    try:
        with (folder / "lock").open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (BlockingIOError, PermissionError):
        return True
    return False


def _read_log(
    folder: Path, summary: Summary, progress: Callable[[int], None]
) -> dict[tuple[str, int], _Queue]:
    queues: dict[tuple[str, int], _Queue] = {}
    for piece in scan(folder):
        if isinstance(piece, Damage):
            summary.findings.append(_damage(piece))
            continue
        if isinstance(piece, End):
            summary.log_end = piece.offset
            continue
        summary.records += 1
        summary.record_bytes += piece.size
        summary.log_end = piece.physical_offset + piece.size
        if summary.log_begin is None:
            summary.log_begin = piece.physical_offset
        if summary.records % _PROGRESS_RECORDS == 0:
            progress(summary.record_bytes)
        if piece.sys_flag & 0xC not in _NOT_QUEUED:
            summary.findings.extend(_enqueue(queues, piece))
    return queues


def _damage(piece: Damage) -> Finding:
    return Finding(
        Level.DAMAGE,
        f"commitlog/{piece.file}",
        f"{piece.end - piece.begin} bytes at {piece.begin} hold no record: {piece.why}",
        "messages there are lost unless a slave or a backup has them; those behind are whole",
    )


def _enqueue(queues: dict[tuple[str, int], _Queue], record: Record) -> Iterator[Finding]:
    queue = queues.setdefault((record.topic, record.queue_id), _Queue(record.queue_offset))
    if record.queue_offset == queue.end:
        queue.add(record, _tag_code(record))
        return
    where = f"{record.topic} queue {record.queue_id}"
    if record.queue_offset < queue.end:
        yield Finding(
            Level.DAMAGE,
            where,
            f"queue offset {record.queue_offset} is used twice (again at {record.physical_offset})",
            "consumers see one of the two messages",
        )
        return
    yield Finding(
        Level.NOTE,
        where,
        f"queue offsets {queue.end} to {record.queue_offset - 1} have no message in the log",
        "damage in front of it, or the topic was deleted and made again",
    )
    queues[record.topic, record.queue_id] = anew = _Queue(record.queue_offset)
    anew.add(record, _tag_code(record))


def _tag_code(record: Record) -> int:
    tag = props.read(record.properties).get(props.TAGS)
    return java_hash(tag) if tag else 0


# --- queues -------------------------------------------------------------------------------------


def _check_queues(
    folder: Path, queues: dict[tuple[str, int], _Queue], progress: Callable[[], None]
) -> Iterator[Finding]:
    root = folder / "consumequeue"
    if queues and not (root.is_dir() and any(root.iterdir())):
        yield Finding(
            Level.NOTE,
            "consumequeue",
            "there are no queues, as in a store that was just restored",
            "nothing to do: the next start makes them from the log",
            is_late=True,
        )
        return
    for (topic, queue_id), queue in sorted(queues.items()):
        progress()
        where = f"consumequeue/{topic}/{queue_id}"
        units = dict(_units(root / topic / str(queue_id), queue.first, queue.end))
        wrong = [
            offset
            for offset in range(queue.first, queue.end)
            if not _fits(units.get(offset), queue, offset - queue.first, topic)
        ]
        if not wrong:
            continue
        missing = sum(offset not in units for offset in wrong)
        shown = ", ".join(map(str, wrong[:_SHOWN_MAX])) + (" …" if len(wrong) > _SHOWN_MAX else "")
        yield Finding(
            Level.REPAIRABLE,
            where,
            f"{missing} units are missing and {len(wrong) - missing} wrong, at {shown}",
            "roquet store repair: the broker makes the queues anew from the log",
            # The last ones, and nothing behind them.
            is_late=missing == len(wrong) == queue.end - wrong[0],
        )


def _odd_files(root: Path) -> Iterator[Finding]:
    """Yield what a broker would refuse: files of another length than the store's other ones."""
    lengths = {
        path: path.stat().st_size if path.is_file() else -1
        for path in sorted(root.glob("*/*/*"))
        if is_log_name(path.name)
    }
    counts = collections.Counter(it for it in lengths.values() if it > 0)
    usual = max(counts, key=lambda it: (it % UNIT.size == 0, counts[it], it), default=0)
    for path, length in lengths.items():
        if length in {0, usual} and length % UNIT.size == 0:
            continue
        text = "is no file" if length < 0 else f"has {length} bytes, where others have {usual}"
        yield Finding(
            Level.REPAIRABLE,
            str(path.relative_to(root.parent)),
            f"{text}: the broker refuses to start",
            "roquet store repair: the broker makes the queues anew from the log",
        )


def _fits(unit: tuple[int, int, int] | None, queue: _Queue, index: int, topic: str) -> bool:
    if unit is None:
        return False
    place = (queue.offsets[index], queue.sizes[index])
    # The delay topic holds the time of delivery where others have the tag.
    return unit[:2] == place and (topic == DELAY_TOPIC or unit[2] == queue.codes[index])


def _units(folder: Path, first: int, end: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield (queue offset, unit) of those that a folder has within the range."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if not is_log_name(path.name):
            continue
        begin = int(path.name) // UNIT.size
        low, high = max(first - begin, 0), end - begin
        if low >= high:
            continue
        with path.open("rb") as file:
            file.seek(low * UNIT.size)
            data = file.read((high - low) * UNIT.size)
        for index, unit in enumerate(UNIT.iter_unpack(data[: len(data) // UNIT.size * UNIT.size])):
            if 0 < unit[1] < _FILLER_SIZE:
                yield begin + low + index, unit


# --- tables and marks ---------------------------------------------------------------------------


def _check_tables(folder: Path) -> Iterator[Finding]:
    if not folder.is_dir():
        yield Finding(
            Level.NOTE, "config", "there are no tables", "topics and offsets begin anew at a start"
        )
        return
    for path in sorted(folder.glob("*.json")):
        fault = table_fault(path)
        if fault is None:
            continue
        spare = path.with_name(path.name + ".bak")
        if spare.exists() and table_fault(spare) is None:
            text, helps = f"{fault}; its .bak is whole", "the broker starts with the .bak"
            yield Finding(Level.REPAIRABLE, f"config/{path.name}", text, helps)
        else:
            yield Finding(
                Level.DAMAGE,
                f"config/{path.name}",
                f"{fault}; there is no whole .bak",
                "the broker refuses to start: put a backup's file there",
            )


def table_fault(path: Path) -> str | None:
    """Return what is wrong with a metadata file, None when it can be read."""
    try:
        data = read_stored(path, FILE_SIZE_MAX + 1)
        if not data:
            return "empty"
        if len(data) > FILE_SIZE_MAX:
            return f"larger than {FILE_SIZE_MAX} bytes"
        read_object(data, tolerant_size_max=FILE_SIZE_MAX)
    except (OSError, JsonError, json.JSONDecodeError) as error:
        return str(error)
    return None


def _check_marks(folder: Path) -> Iterator[Finding]:
    why = diverged.read(folder)
    if why is not None:
        yield Finding(Level.DAMAGE, diverged.NAME, why, diverged.remedy(folder))
    if (folder / "abort").exists():
        yield Finding(
            Level.NOTE,
            "abort",
            "a broker is using the store, or was killed while it did",
            "nothing to do: the next start looks at the tail of the log",
        )
    if not (folder / "checkpoint").exists():
        yield Finding(
            Level.NOTE,
            "checkpoint",
            "there is none",
            "the next start reads the whole log, which takes a second a gigabyte or so",
        )
