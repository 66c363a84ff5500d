"""Queue offsets of the Spark source: their JSON, ranges, shares of a limit, splits. Pure.

An offset is always the next one to read, so the end of a range is not part of it. The JSON is
`{"v": 1, "q": {topic: {broker: {"0": 123}}}}`; Spark keeps it in checkpoints.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from roquet.base.errors import UsageError
from roquet.base.overriding import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

VERSION: Final = 1
EARLIEST: Final = -2
LATEST: Final = -1
QUEUE_ID_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1


class QueueKey(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker: str
    queue_id: int

    @override
    def __str__(self) -> str:
        return f"{self.topic}/{self.broker}/{self.queue_id}"


Offsets = dict[QueueKey, int]


class Bounds(NamedTuple):
    """What a queue holds: the first offset still there, and the one after the last."""

    low: int
    high: int


# Not frozen: a plan of a million queues makes as many, and frozen ones take three times as long.
@dataclasses.dataclass(slots=True, order=True, unsafe_hash=True)
class Range:
    """Offsets `begin` to `end` of a queue, `end` not included; never changed."""

    queue: QueueKey
    begin: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.begin)

    @override
    def __str__(self) -> str:
        return f"{self.queue} [{self.begin}, {self.end})"


class DataLoss(UsageError):  # noqa: N818  (it is what happened to the data)
    """Messages that were to be read are gone."""


# --- JSON ---------------------------------------------------------------------------------------


def to_json(offsets: Mapping[QueueKey, int]) -> dict[str, Any]:
    """Return the form that Spark stores."""
    return {"v": VERSION, "q": nested(offsets)}


def nested(numbers_of: Mapping[QueueKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return a table of topics, brokers and queues, always in the same order."""
    table: dict[str, dict[str, dict[str, int]]] = {}
    brokers: dict[str, dict[str, int]] = {}
    numbers: dict[str, int] = {}
    last: tuple[str | None, str | None] = (None, None)
    # Always in the same order: Spark compares the text to see whether anything has come.
    for (topic, broker, queue_id), offset in sorted(numbers_of.items()):
        if (topic, broker) != last:
            if topic != last[0]:
                brokers = table[topic] = {}
            numbers = brokers[broker] = {}
            last = (topic, broker)
        numbers[_id_text(queue_id)] = offset
    return table


def from_json(source: object, *, symbols: bool = False) -> Offsets:
    """Read that form; with `symbols` also -2 and -1 and the bare table of topics.

    Raises UsageError that says what is wrong and where.
    """
    if isinstance(source, str):
        text = source
        try:
            source = json.loads(text)
        except ValueError as error:
            raise UsageError(
                f"offsets are no JSON, and neither earliest nor latest: {text[:80]!r}; JSON is"
                f' {{"orders":{{"broker-a":{{"0":5}}}}}} ({error})'
            ) from error
    table = _object(source, "offsets")
    if "v" in table or "q" in table or not symbols:
        if table.get("v") != VERSION:
            raise UsageError(
                f"offsets of version {table.get('v')!r}: this release reads version {VERSION}"
            )
        table = _object(table.get("q"), "q")
    low = EARLIEST if symbols else 0
    return {queue: _offset(value, queue, low) for queue, value in leaves(table)}


def queues_from_json(text: str) -> set[QueueKey]:
    """Read the option `assign`: `{topic: {broker: [0, 1]}}`. Raises UsageError."""
    try:
        table = _object(json.loads(text), "assign")
    except ValueError as error:
        raise UsageError(f"assign is no JSON: {error}") from error
    found: set[QueueKey] = set()
    for topic, brokers in table.items():
        for broker, numbers in _object(brokers, topic).items():
            if not isinstance(numbers, list) or not numbers:
                raise UsageError(f"assign: {topic}/{broker} needs a list of queue ids")
            ids = cast("list[object]", numbers)
            found |= {QueueKey(topic, broker, _queue_id(number, topic)) for number in ids}
    if not found:
        raise UsageError("assign names no queue")
    return found


def leaves(table: Mapping[str, Any]) -> Iterator[tuple[QueueKey, Any]]:
    """Yield what such a table has for each queue. Raises UsageError."""
    for topic, brokers in table.items():
        for broker, numbers in _object(brokers, topic).items():
            for number, value in _object(numbers, f"{topic}/{broker}").items():
                yield QueueKey(topic, broker, _queue_id(number, topic)), value


def _object(source: object, where: str) -> dict[str, Any]:
    if not isinstance(source, dict):
        raise UsageError(f"{where[:80]} is {str(source)[:80]!r}: must be a JSON object")
    return cast("dict[str, Any]", source)


@functools.lru_cache(65536)
def _id_text(queue_id: int) -> str:
    return str(queue_id)


@functools.lru_cache(65536)
def _small_id(text: str) -> int | None:
    """Return a queue id of an ordinary form, of which there are few."""
    return int(text) if len(text) <= 5 and text.isascii() and text.isdigit() else None


def _queue_id(source: object, where: str) -> int:
    if isinstance(source, str):
        found = _small_id(source)
        if found is not None:
            return found
    text = str(source)
    if isinstance(source, bool) or not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise UsageError(f"{where[:80]}: {text[:80]!r} is no queue id")
    if int(text) > QUEUE_ID_MAX:
        raise UsageError(f"{where[:80]}: queue id {text} is above {QUEUE_ID_MAX}")
    return int(text)


def _offset(source: object, queue: QueueKey, low: int) -> int:
    if not isinstance(source, int) or isinstance(source, bool) or not low <= source <= OFFSET_MAX:
        raise UsageError(f"{queue}: {str(source)[:80]!r} is no offset")
    return source


# --- planning -----------------------------------------------------------------------------------


def ranges(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int]) -> list[Range]:
    """Return what lies between two positions, without empty ranges, in queue order.

    A queue that only `end` knows has just been found: the stream enters it at that offset, and
    what lies behind is read from the next position on.
    """
    found: list[Range] = []
    for queue, stop in sorted(end.items()):
        begin = start.get(queue)
        if begin is not None and stop > begin:
            found.append(Range(queue, begin, stop))
    return found


def available(
    wanted: Range, bounds: Bounds | None, *, fail_on_data_loss: bool
) -> tuple[Range | None, int]:
    """Cut a range to what a queue still holds; return it and how many offsets are lost.

    Raises DataLoss instead when that is to be an error. Never returns an offset that was not
    wanted: a queue that was deleted and made again is not read from its beginning.
    """
    low, high = (wanted.end, wanted.end) if bounds is None else bounds
    begin, end = max(wanted.begin, low), min(wanted.end, high)
    lost = len(wanted) - max(0, end - begin)
    if lost and fail_on_data_loss:
        has = "the queue is gone" if bounds is None else f"it has [{low}, {high})"
        raise DataLoss(
            f"{lost} messages of {wanted} are lost: {has}. They expired, or the topic was deleted"
        )
    return (Range(wanted.queue, begin, end) if begin < end else None), lost


def limited(
    start: Mapping[QueueKey, int], target: Mapping[QueueKey, int], rows_max: int
) -> Offsets:
    """Return how far to read with about `rows_max` rows, each queue its share of the backlog.

    Each queue with messages gets one at least, so that none waits for ever beside a long backlog;
    with more such queues than rows that exceeds the limit. Otherwise the shares add up to the limit
    exactly; the rest of the division goes to the largest parts.
    """
    backlog = {item.queue: len(item) for item in ranges(start, target)}
    if sum(backlog.values()) <= rows_max:
        return dict(target)
    share = dict.fromkeys(backlog, 1)
    spare = rows_max - len(backlog)
    if spare > 0:
        # What is left when each has its one is shared out by what each has left.
        total = sum(backlog.values()) - len(backlog)
        over = {queue: (count - 1) * spare for queue, count in backlog.items()}
        for queue, count in over.items():
            share[queue] += count // total
        rest = rows_max - sum(share.values())
        for queue in sorted(over, key=lambda queue: (-(over[queue] % total), queue))[:rest]:
            share[queue] += 1
    return {
        queue: start[queue] + share[queue] if queue in share else offset
        for queue, offset in target.items()
    }


def split(
    whole: Iterable[Range], parts_min: int | None = None, rows_max: int | None = None
) -> list[Range]:
    """Cut ranges so that there are about `parts_min` of them, none with more than `rows_max` rows.

    Each offset is in exactly one part; parts of a queue are in order and equal to one row.
    """
    found = [item for item in whole if item.begin < item.end]
    if parts_min is None and rows_max is None:
        return found
    counts = _shared(list(map(len, found)), parts_min or 0)
    parts: list[Range] = []
    for item, share in zip(found, counts, strict=True):
        count = share if rows_max is None else max(share, -(-len(item) // rows_max))
        parts += _cut(item, count)
    return parts


def _shared(sizes: Sequence[int], parts: int) -> list[int]:
    """Return how many parts each has, from one to its size; together `parts` if that is possible.

    One after the other goes to where parts are largest. There is none beyond what was asked for:
    a task costs as much as some ten thousand rows.
    """
    counts = [1] * len(sizes)
    more = min(parts, sum(sizes)) - len(sizes)
    if more <= 0:
        return counts
    largest: list[tuple[float, int]] = [(-size, at) for at, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(more):
        at = largest[0][1]
        counts[at] += 1
        heapq.heapreplace(largest, (-sizes[at] / counts[at], at))
    return counts


def _cut(whole: Range, count: int) -> Iterator[Range]:
    if count == 1:
        yield whole
        return
    size = len(whole)
    edges = [whole.begin + size * number // count for number in range(count + 1)]
    for begin, end in itertools.pairwise(edges):
        yield Range(whole.queue, begin, end)
