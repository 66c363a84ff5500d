"""Receipt handles, and the tables of offsets in the answer to a pop (Java: ExtraInfoUtil).

A handle names a message in flight: which pop took it and where it lies. Clients build it from the
tables of an answer, brokers take it with an acknowledgement; both may be Java's (spec: wire §11.3).
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple, Self

from roquet.protocol.pop.topics import ORDER_REVIVE_QUEUE, is_retry_v2, pop_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.protocol.headers.pop import PopMessageResponse

NORMAL = "0"
RETRY_V1 = "1"
RETRY_V2 = "2"

LENGTH_MAX = 1024
"""Characters of a handle: seven numbers and the name of a broker."""
_FIELDS = 8
_I32_MAX = 2**31 - 1
_I64_MAX = 2**63 - 1
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class HandleError(ValueError):
    """The text is no receipt handle, or no table of offsets."""


class ReceiptHandle(NamedTuple):
    """A message in flight. Times are milliseconds."""

    start_offset: int
    """Start of its checkpoint."""
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    retry_flag: str
    """Whether the message lies in the topic itself or in a pop retry topic."""
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def is_ordered(self) -> bool:
        """Whether it was popped in order."""
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def encode(self) -> str:
        """Write it as Java does."""
        return " ".join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read a handle. Raises HandleError."""
        # Handles of one pop differ in the last field only: the rest of them is read once.
        shared, _, last = text.rpartition(" ")
        if len(text) <= LENGTH_MAX and shared.count(" ") == _FIELDS - 2:
            return cls(*_shared_fields(shared), _number(last))
        parts = text.split(" ")
        if len(text) > LENGTH_MAX or len(parts) < _FIELDS:
            raise HandleError(f"{text[:80]!r} is no receipt handle")
        return cls(*_fields_of(parts[: _FIELDS - 1]), _number(parts[_FIELDS - 1]))


class Taken(NamedTuple):
    """Messages that one pop took from one queue."""

    topic: str
    """The topic read, which may be a pop retry topic."""
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


def retry_flag(topic: str) -> str:
    """Return the flag by which handles name the kind of a topic."""
    if is_retry_v2(topic):
        return RETRY_V2
    return RETRY_V1 if topic.startswith("%RETRY%") else NORMAL


def real_topic(topic: str, group: str, flag: str) -> str:
    """Return the topic that a message lies in, by its normal topic and the flag of its handle."""
    if flag not in {RETRY_V1, RETRY_V2}:
        return topic
    return pop_retry_topic(topic, group, v2=flag == RETRY_V2)


# --- the tables of an answer ---------------------------------------------------------------------


def start_offset_info(taken: Iterable[Taken]) -> str:
    """Write where the checkpoint of each queue begins."""
    return ";".join(f"{retry_flag(it.topic)} {it.queue_id} {it.start_offset}" for it in taken)


def msg_offset_info(taken: Iterable[Taken]) -> str:
    """Write the queue offsets of the messages of each queue."""
    return ";".join(
        f"{retry_flag(it.topic)} {it.queue_id} {','.join(map(str, it.offsets))}" for it in taken
    )


def read_start_offset_info(text: str) -> dict[tuple[str, int], int]:
    """Return (retry flag, queue id) -> start offset. Raises HandleError."""
    found: dict[tuple[str, int], int] = {}
    for flag, queue_id, value in _entries(text):
        key = flag, _number(queue_id, _I32_MAX)
        if key in found:
            raise HandleError(f"queue {queue_id} has two start offsets")
        found[key] = _number(value)
    return found


def read_msg_offset_info(text: str) -> dict[tuple[str, int], list[int]]:
    """Return (retry flag, queue id) -> queue offsets. Raises HandleError."""
    found: dict[tuple[str, int], list[int]] = {}
    for flag, queue_id, value in _entries(text):
        key = flag, _number(queue_id, _I32_MAX)
        if key in found:
            raise HandleError(f"queue {queue_id} has two lists of offsets")
        found[key] = [_number(offset) for offset in value.split(",")]
    return found


def order_count_info(counts: Mapping[tuple[str, int, int | None], int]) -> str:
    """Write how often messages of ordered pop were delivered before.

    A key is (retry flag, queue id, queue offset); None for the offset: all of the queue.
    """
    rows: list[str] = []
    for (flag, queue_id, offset), count in counts.items():
        place = str(queue_id) if offset is None else f"qo{queue_id}%{offset}"
        rows.append(f"{flag} {place} {count}")
    return ";".join(rows)


def read_order_count_info(text: str) -> dict[tuple[str, int, int | None], int]:
    """Read what `order_count_info` writes. Raises HandleError."""
    found: dict[tuple[str, int, int | None], int] = {}
    for flag, place, count in _entries(text):
        queue_id, mark, offset = place.removeprefix("qo").partition("%")
        if place.startswith("qo") != bool(mark):
            raise HandleError(f"{place[:80]!r} is no queue and no offset of one")
        key = flag, _number(queue_id, _I32_MAX), _number(offset) if mark else None
        found[key] = _number(count, _I32_MAX)
    return found


class PopTables:
    """What the answer to a pop says of its messages: their handles, and earlier deliveries."""

    def __init__(self, answer: PopMessageResponse, broker_name: str) -> None:
        """Read the tables of an answer. Raises HandleError."""
        self._answer = answer
        self._broker_name = broker_name
        self._starts = read_start_offset_info(answer.start_offset_info or "")
        self._offsets = read_msg_offset_info(answer.msg_offset_info or "")
        self._counts = read_order_count_info(answer.order_count_info or "")

    def handle(self, topic: str, queue_id: int, queue_offset: int) -> ReceiptHandle:
        """Return the handle of a message that brings none. Raises HandleError."""
        key = NORMAL, queue_id
        if key not in self._starts or queue_offset not in self._offsets.get(key, ()):
            where = f"{topic}, queue {queue_id}, offset {queue_offset}"
            raise HandleError(f"the answer to a pop does not say how {where} was taken")
        return ReceiptHandle(
            start_offset=self._starts[key],
            pop_time_ms=self._answer.pop_time,
            invisible_ms=self._answer.invisible_time,
            revive_queue=self._answer.revive_qid,
            retry_flag=NORMAL,
            broker_name=self._broker_name,
            queue_id=queue_id,
            queue_offset=queue_offset,
        )

    def deliveries(self, handle: ReceiptHandle) -> int:
        """Return how often an ordered message was delivered before; 0 where nothing is said."""
        flag, queue_id = handle.retry_flag, handle.queue_id
        of_queue = self._counts.get((flag, queue_id, None), 0)
        return self._counts.get((flag, queue_id, handle.queue_offset), of_queue)


def _entries(text: str) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for entry in text.split(";") if text else ():
        parts = entry.split(" ")
        if len(parts) != 3:
            raise HandleError(f"{entry[:80]!r} is no entry of a table of offsets")
        found.append((parts[0], parts[1], parts[2]))
    return found


_Shared = tuple[int, int, int, int, str, str, int]


def _fields_of(parts: Sequence[str]) -> _Shared:
    start, popped, invisible, revive, flag, broker, queue = parts
    return (
        _number(start),
        _number(popped),
        _number(invisible),
        _number(revive, _I32_MAX),
        flag,
        broker,
        _number(queue, _I32_MAX),
    )


@functools.lru_cache(maxsize=1024)
def _shared_fields(text: str) -> _Shared:
    """Read all fields of a handle but the last. Raises HandleError."""
    return _fields_of(text.split(" "))


def _number(text: str, limit: int = _I64_MAX) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise HandleError(f"{text[:80]!r} is no number")
    value = int(text)
    if not -limit - 1 <= value <= limit:
        raise HandleError(f"{text[:80]!r} is out of range")
    return value
