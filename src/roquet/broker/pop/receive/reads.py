"""Reading messages for POP: which they are, and how a redelivered one is shown to its client."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from roquet.broker.services.light_reads import Reader as QueueReader
from roquet.broker.services.light_reads import is_judged, may_have, read_allowed
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages.records import encode_record
from roquet.protocol.pop.topics import is_for_group, pop_retry_topic
from roquet.store.records import offset_in, read_records, slices
from roquet.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from roquet.broker.clients.expressions import Choice
    from roquet.broker.pop.receive.rules import PopConfig
    from roquet.broker.services.light_reads import MayRead
    from roquet.model.topic import TopicConfig
    from roquet.protocol.pop.handle import ReceiptHandle

_SIZE_AND_OFFSET = struct.Struct(">i16xq")
"""Of a record: its size, and its queue offset."""

MOVED = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL)
"""The position is not in the queue: the store says where to go on."""
SKIPPED = (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING)
"""Nothing is for this group up to the next position, or not any more."""


Queue = tuple[str, int]
"""(topic read, queue id)."""


class Draws:
    """The numbers that pops draw, one each."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next: int | None = None

    def look(self) -> int:
        """Return the next number, which stays the next one: who looks may not pop after all."""
        if self._next is None:
            self._next = self._rng.randrange(100)
        return self._next

    def take(self) -> int:
        """Return the next number, for a pop that goes by it."""
        number, self._next = self.look(), None
        return number


class Draw:
    """What one request draws: which retry topic it reads, when, and where it begins."""

    __slots__ = ("_by_priority", "_number", "_rules")

    def __init__(self, rules: PopConfig, number: int, *, urgent_percent: int = 0) -> None:
        """`urgent_percent` of 100 such requests take the most urgent messages first."""
        self._number = number
        self._by_priority = self._number < urgent_percent
        self._rules = rules

    @property
    def retry_first(self) -> bool:
        """Whether the queues of redelivered messages come first."""
        rules = self._rules
        urgent = self._by_priority
        return self._number < (rules.retry_percent_priority if urgent else rules.retry_percent)

    def retry_topic(self, topic: str, group: str) -> str:
        """Return the topic of messages redelivered to a group, of the one form or the other."""
        rules = self._rules
        v2 = rules.retry_v2 and not (rules.read_retry_v1 and self._number % 2 == 0)
        return pop_retry_topic(topic, group, v2=v2)

    def turned(self, topic: TopicConfig | None) -> list[Queue]:
        """Return the queues of a topic in the order in which they are visited."""
        if topic is None:
            return []
        order = self._rules.queues(topic.read_queues, self._number, by_priority=self._by_priority)
        return [(topic.name, queue_id) for queue_id in order]


class Reader(QueueReader, Protocol):
    """What is needed of the message store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...

    def dispatch_behind(self) -> int:
        """Return the bytes of the log that are not in the queues yet."""
        ...


def read(store: Reader, queue: Queue, offset: int, *, most: int, wanted: Choice) -> GetResult:
    """Read at most `most` wanted messages of a queue. Raises StoreFault."""
    return store.get(*queue, offset, most, tag_codes=wanted.codes, filter_by=wanted.filter_by)


def read_for(
    store: Reader,
    queue: Queue,
    offset: int,
    *,
    group: str,
    most: int,
    wanted: Choice,
    may_read: MayRead | None = None,
) -> GetResult:
    """Read like `read`, but of a retry topic only what is the group's. Raises StoreFault.

    Of a topic where those of others lie only messages of topics that `may_read` allows.
    """
    result = read_allowed(
        *(store, queue, offset, most),
        codes=wanted.codes,
        filter_by=wanted.filter_by,
        allowed=may_read,
    )
    topic = queue[0]
    if not result.messages or not names.is_retry(topic):
        return result
    mine = [
        data
        for record, data in slices(result.records)
        if is_for_group(topic, group, props.read(record.properties))
    ]
    if len(mine) == result.messages:
        return result
    status = result.status if mine else GetStatus.NO_MATCHED_MESSAGE
    return result._replace(status=status, messages=len(mine), records=b"".join(mine))


def has_wanted(
    store: Reader,
    queue: Queue,
    begin: int,
    end: int,
    *,
    wanted: Choice,
    most: int,
    may_read: MayRead | None = None,
) -> bool:
    """Tell whether one of the messages from `begin` up to `end` may be wanted.

    More than `most` of them are not looked at: then it may be so. Raises StoreFault.
    """
    if end > begin and may_read is not None and is_judged(queue[0], may_read):
        codes, filter_by = wanted
        return may_have(store, queue, begin, codes=codes, filter_by=filter_by, allowed=may_read)
    if wanted.is_everything or end - begin > most:
        return end > begin
    if wanted.codes is not None:
        units = store.units(*queue, begin, end - begin)
        return any(code in wanted.codes for _, _, code in units)
    while begin < end:
        result = read(store, queue, begin, most=1, wanted=wanted)
        if result.status is not GetStatus.NO_MATCHED_MESSAGE:
            return result.status is GetStatus.FOUND
        if result.next_begin_offset <= begin:
            return False
        begin = result.next_begin_offset
    return False


def rest_of(result: GetResult) -> int:
    """Return how many messages lie behind those that a read found or passed over."""
    return max(0, result.max_offset - result.next_begin_offset)


def offsets_of(result: GetResult, begin: int, topic: str) -> Sequence[int]:
    """Return the offsets of the messages that a read of a topic's queue from `begin` on found."""
    if result.next_begin_offset - begin == result.messages:
        return range(begin, result.next_begin_offset)
    if names.is_lmq(topic):
        records = read_records(result.records, check_crc=False)
        places = [offset_in(record, topic) for record in records]
        assert None not in places, "the store gives what is in the queue"
        return [place for place in places if place is not None]
    found: list[int] = []
    at = 0
    while at < len(result.records):
        size, offset = _SIZE_AND_OFFSET.unpack_from(result.records, at)
        assert size > 0, "the store gives whole records"
        found.append(offset)
        at += size
    return found


def as_original(records: bytes, topic: str, handle: ReceiptHandle) -> bytes:
    """Return messages of a pop retry topic under the name of their own topic.

    Each carries its receipt handle, made of `handle`: the client cannot build it any more.
    """
    shown: list[bytes] = []
    for record in read_records(records, check_crc=False):
        mine = handle._replace(queue_id=record.queue_id, queue_offset=record.queue_offset)
        found = props.read(record.properties)
        found[props.POP_CK] = mine.encode()
        text = props.write(found).encode()
        if len(text) > props.SIZE_MAX:
            # The client builds the handle of this one from the name of the retry topic.
            shown.append(encode_record(record))
        else:
            shown.append(encode_record(record._replace(topic=topic, properties=text)))
    return b"".join(shown)
