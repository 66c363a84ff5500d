"""Who may read which messages of a topic where those of other topics lie.

These are the light queues (LMQ), and the copies of their messages for a retry or among the dead
letters. The right to read such a topic by its own name, which the front asks for as RocketMQ does,
is not the right to read the messages' topics: what the account may not read there is passed over
here, as if the queue did not have it. So each message is judged before a filter looks at it, and
its size and contents decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Refusal
from roquet.protocol.light import light_queues
from roquet.store.records import offset_in, slices
from roquet.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.services.access import Access
    from roquet.store.records import Record
    from roquet.store.results import GetResult
    from roquet.store.tables.filters import Filter

MayRead = Callable[[str], bool]
"""Tells whether the caller may read a topic."""

LOOKS_MAX = 512
"""Messages that one read judges; the next goes on behind them."""
_AT_ONCE = 32
_BYTES_MAX = 256 * 1024
"""Bytes of the messages that one read gives, if it gives more than one."""


class Reader(Protocol):
    """What is asked of the message store."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
    ) -> GetResult:
        """Read from a queue. Raises StoreFault."""
        ...

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of messages of a queue."""
        ...


def may_read(access: Access, caller: Caller) -> MayRead | None:
    """Return what tells which topics a caller may read at the moment; None: all of them."""
    if access.is_open:
        return None

    def asked(topic: str) -> bool:
        try:
            access.require_read(caller, topic)
        except Refusal:
            return False
        return True

    return asked


def is_judged(topic: str, allowed: MayRead | None) -> bool:
    """Tell whether each message of a topic has to be judged."""
    return allowed is not None and light_queues.is_of_others(topic)


def is_visible(record: Record, topic: str, allowed: MayRead | None) -> bool:
    """Tell whether the caller, who may read `topic`, may read a message that lies there.

    What is the topic's own is not judged by that name again: the retry topic of a group and a topic
    (POP) looks like that of a group which nobody has a right on.
    """
    owner = light_queues.owner(record.topic, record.properties)
    return allowed is None or owner == topic or allowed(owner)


def read_allowed(
    store: Reader,
    queue: tuple[str, int],
    offset: int,
    most: int,
    *,
    codes: Sequence[int] | None,
    filter_by: Filter | None,
    allowed: MayRead | None,
) -> GetResult:
    """Read at most `most` wanted messages that the caller may read. Raises StoreFault."""
    if not is_judged(queue[0], allowed):
        return store.get(*queue, offset, most, tag_codes=codes, filter_by=filter_by)
    first = chunk = store.get(*queue, offset, _AT_ONCE)
    if not first.messages:
        return first
    taken = _Taken(queue[0], most, codes, filter_by, allowed)
    at = offset
    while chunk.messages:
        tags = _codes(store, queue, at, chunk.next_begin_offset) if codes is not None else {}
        rest = taken.fill(_each(chunk, queue[0]), tags)
        at = chunk.next_begin_offset if rest is None else rest
        if rest is not None or at - offset >= LOOKS_MAX or at >= chunk.max_offset:
            break
        chunk = store.get(*queue, at, _AT_ONCE)
    return first._replace(
        status=GetStatus.FOUND if taken.parts else GetStatus.NO_MATCHED_MESSAGE,
        next_begin_offset=at,
        messages=len(taken.parts),
        records=b"".join(taken.parts),
    )


class _Taken:
    """The messages that one read gives."""

    def __init__(
        self,
        topic: str,
        most: int,
        codes: Sequence[int] | None,
        filter_by: Filter | None,
        allowed: MayRead | None,
    ) -> None:
        self.parts: list[bytes] = []
        self._size = 0
        self._most = most
        self._codes = codes
        self._filter = filter_by
        self._allowed = allowed
        self._known = {topic: True}

    def fill(
        self, found: Iterator[tuple[int, Record, bytes]], tags: Mapping[int, int]
    ) -> int | None:
        """Take what is wanted; return where the next read goes on, None behind all of it."""
        for place, record, data in found:
            if not self._wants(record, tags.get(place)):
                continue
            if self.parts and self._size + len(data) > _BYTES_MAX:
                return place
            self.parts.append(data)
            self._size += len(data)
            if len(self.parts) >= self._most:
                return place + 1
        return None

    def _wants(self, record: Record, code: int | None) -> bool:
        owner = light_queues.owner(record.topic, record.properties)
        if owner not in self._known:
            self._known[owner] = self._allowed is None or self._allowed(owner)
        if not self._known[owner] or (self._codes is not None and code not in self._codes):
            return False
        return self._filter is None or self._filter.matches(record.properties)


def may_have(
    store: Reader,
    queue: tuple[str, int],
    offset: int,
    *,
    codes: Sequence[int] | None,
    filter_by: Filter | None,
    allowed: MayRead,
) -> bool:
    """Tell whether a wanted message that the caller may read lies at an offset or behind it.

    With more messages than one read judges it may be so. Raises StoreFault.
    """
    found = read_allowed(store, queue, offset, 1, codes=codes, filter_by=filter_by, allowed=allowed)
    is_unknown = found.status is GetStatus.NO_MATCHED_MESSAGE
    is_unknown = is_unknown and found.next_begin_offset < found.max_offset
    return found.status is GetStatus.FOUND or is_unknown


def _codes(store: Reader, queue: tuple[str, int], begin: int, end: int) -> dict[int, int]:
    """Return the tags codes of messages by their offsets."""
    units = store.units(*queue, begin, end - begin)
    return {begin + index: code for index, (_, _, code) in enumerate(units)}


def _each(result: GetResult, topic: str) -> Iterator[tuple[int, Record, bytes]]:
    """Yield the offset, the fields and the bytes of each message that a read found."""
    for record, data in slices(result.records):
        place = offset_in(record, topic)
        assert place is not None, "the store gives what is in the queue"
        yield place, record, data
