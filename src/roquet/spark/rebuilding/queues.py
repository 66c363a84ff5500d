"""Which queue and index files are made of which pieces. Pure but for looks into pieces."""

from __future__ import annotations

import dataclasses
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from roquet.store.tables.topics import is_path_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from roquet.spark.rebuilding.pieces import Piece, QueueRun

QUEUES_MAX: Final = 65_536
"""A queue number beyond it is damage: the table of topics would tell clients of all below it."""

Stretch = tuple[str, int, int]
"""A piece, the first byte in it, how many units or keys."""
Look = tuple[int, int, int, int]
"""Count, first queue offset, the one behind the last, log offset behind the last record."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueFileTask:
    """One queue file: `units` from queue offset `begin` on, of these stretches, in order."""

    path: str
    begin: int
    units: int
    first: int
    runs: tuple[Stretch, ...]
    cut: int
    floor: int


@dataclasses.dataclass(frozen=True, slots=True)
class QueuePlan:
    """One queue as it will be; `end` is exclusive."""

    topic: str
    queue_id: int
    messages: int
    first: int
    end: int
    unplaced: int
    """Records whose offset another record has, or that is too far behind the others."""
    tasks: tuple[QueueFileTask, ...]

    @property
    def missing(self) -> int:
        """Return how many offsets between first and last have no message."""
        return self.end - self.first - self.messages


@dataclasses.dataclass(frozen=True, slots=True)
class IndexTask:
    """One index file of these stretches; its name is the time of its first message."""

    runs: tuple[Stretch, ...]
    keys: int


class Queues:
    """Plans the queues of a store; `span` is `rebuild_span` of the native core."""

    def __init__(self, units: int, folder: str, span: Callable[[Stretch, int, int], Look]) -> None:
        """Plan files of so many units each in `folder`."""
        self._units = units
        self._folder = folder
        self._span = span

    def plan(self, pieces: Sequence[Piece], deleted: Mapping[str, int]) -> Iterator[QueuePlan]:
        """Yield queues that hold anything, by topic and number."""
        found: dict[tuple[str, int], list[tuple[str, QueueRun]]] = {}
        for piece in pieces:
            for run in piece.runs:
                if placeable(run):
                    found.setdefault((run.topic, run.queue_id), []).append((piece.path, run))
        topic_cuts = cuts((run for _, run in itertools.chain(*found.values())), deleted)
        for (topic, queue_id), runs in sorted(found.items()):
            plan = self._queue(topic, queue_id, runs, topic_cuts.get(topic, 0))
            if plan is not None:
                yield plan

    def _queue(
        self, topic: str, queue_id: int, runs: Iterable[tuple[str, QueueRun]], cut: int
    ) -> QueuePlan | None:
        kept: list[tuple[Stretch, int, int, int]] = []
        floor = messages = unplaced = 0
        for path, run in runs:
            stretch = (path, run.at, run.count)
            if run.gapless and run.first_physical >= cut and (not kept or run.first == floor):
                count, first, end = run.count, run.first, run.end
            else:
                count, first, end, _ = self._span(stretch, cut, floor)
            if run.first_physical >= cut:
                unplaced += run.count - count
            if count:
                kept.append((stretch, first, end, floor))
                messages, floor = messages + count, end
        if not kept:
            return None
        return QueuePlan(
            topic,
            queue_id,
            messages,
            kept[0][1],
            floor,
            unplaced,
            self._files(f"{self._folder}/{topic}/{queue_id}", kept, cut),
        )

    def _files(
        self, folder: str, kept: Sequence[tuple[Stretch, int, int, int]], cut: int
    ) -> tuple[QueueFileTask, ...]:
        units, first, end = self._units, kept[0][1], kept[-1][2]
        made: list[QueueFileTask] = []
        start = 0
        for begin in range(first // units * units, end, units):
            while kept[start][2] <= begin:
                start += 1
            stop = start
            while stop < len(kept) and kept[stop][1] < begin + units:
                stop += 1
            # One more: an offset without message at the end of a file gets the unit of the next.
            chosen = kept[start : stop + 1]
            made.append(
                QueueFileTask(
                    path=f"{folder}/{begin * 20:020}",
                    begin=begin,
                    units=units,
                    first=first,
                    runs=tuple(stretch for stretch, _, _, _ in chosen),
                    cut=cut,
                    floor=chosen[0][3],
                )
            )
        return tuple(made)


def placeable(run: QueueRun) -> bool:
    """Tell whether a queue can have the topic and number that records say."""
    return is_path_safe(run.topic) and 0 <= run.queue_id < QUEUES_MAX


def cuts(runs: Iterable[QueueRun], deleted: Mapping[str, int]) -> dict[str, int]:
    """Return for each topic the log offset in front of which its records are nobody's.

    What a note of deleted topics says; without one, a queue that begins at 0 once more tells that
    its topic was deleted and made anew, and then all its queues were.
    """
    zeros: dict[str, list[tuple[int, int]]] = {}
    firsts: dict[tuple[str, int], int] = {}
    for run in runs:
        zeros.setdefault(run.topic, []).extend((at, run.queue_id) for at in run.zeros)
        key = (run.topic, run.queue_id)
        firsts[key] = min(run.first_physical, firsts.get(key, run.first_physical))
    found = dict(deleted)
    for topic, places in zeros.items():
        cut = found.get(topic, 0)
        since: set[int] = set()
        for at, queue_id in sorted(places):
            earlier = cut == 0 and firsts[topic, queue_id] < at
            if at >= cut and (queue_id in since or earlier):
                cut, since = at, set[int]()
            if at >= cut:
                since.add(queue_id)
        found[topic] = cut
    return found


KEY_SIZE = 20
"""Bytes that a piece has for each key: an entry of an index file."""


def plan_index(pieces: Iterable[Piece], entries: int) -> list[IndexTask]:
    """Return the index files; one holds `entries` - 1 keys at most."""
    room = entries - 1
    made: list[IndexTask] = []
    runs: list[Stretch] = []
    keys = 0
    for piece in pieces:
        done = 0
        while done < piece.keys:
            count = min(piece.keys - done, room - keys)
            runs.append((piece.path, piece.keys_at + done * KEY_SIZE, count))
            keys, done = keys + count, done + count
            if keys == room:
                made.append(IndexTask(tuple(runs), keys))
                runs, keys = [], 0
    if keys:
        made.append(IndexTask(tuple(runs), keys))
    return made


def index_names(times_ms: Iterable[int]) -> list[str]:
    """Return names of index files by the times of their first messages, each behind the last."""
    names: list[str] = []
    last_ms = 0
    for time_ms in times_ms:
        # Several in one millisecond, or a clock that was set back.
        last_ms = max(time_ms, last_ms + 1)
        name = _name(last_ms)
        while names and name <= names[-1]:
            # Local time goes back once a year.
            last_ms += 60_000
            name = _name(last_ms)
        names.append(name)
    return names


def _name(time_ms: int) -> str:
    at = datetime.fromtimestamp(time_ms // 1000, UTC).astimezone()
    return at.strftime("%Y%m%d%H%M%S") + f"{time_ms % 1000:03}"
