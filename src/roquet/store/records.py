"""One stored record, read back with names for its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from roquet._native import decode_records, sum_records
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.light import light_queues

if TYPE_CHECKING:
    from collections.abc import Iterator


OFFSET_MAX: Final = 2**63 - 1


class Record(NamedTuple):
    """Everything a record holds, in the order the core gives it (spec: store §3.2)."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    """As stored: compressed when `sys_flag` says so."""
    topic: str
    properties: bytes
    """The property string as stored."""
    magic: int


def read_records(data: bytes, *, check_crc: bool = True) -> list[Record]:
    """Take apart records that follow each other without a gap. Raises ValueError."""
    return [Record(*fields) for fields in decode_records(data, check_crc)]


class Sum(NamedTuple):
    """What some messages of a queue come to; crates/core/src/arrow/sums.rs has the rule."""

    messages: int = 0
    xor: int = 0
    """Of their checksums, as a signed number."""
    first: int = -1
    """The first offset of them; -1 of none."""
    last: int = -1

    def plus(self, other: Sum) -> Sum:
        """Return what both come to, which have no message in common."""
        if not self.messages or not other.messages:
            return other if other.messages else self
        return Sum(
            self.messages + other.messages,
            self.xor ^ other.xor,
            min(self.first, other.first),
            max(self.last, other.last),
        )


def summed(data: bytes, begin: int, end: int, stored: tuple[int | None, int | None]) -> Sum:
    """Sum up the records of a range of offsets that were stored within two times.

    Raises ValueError.
    """
    found = Sum()
    low, high = (-(2**63) if stored[0] is None else stored[0]), stored[1]
    for _, *it in sum_records(
        [data],
        bucket=OFFSET_MAX,
        begin=begin,
        end=end,
        stored_begin=low,
        stored_end=OFFSET_MAX if high is None else high,
    ):
        found = found.plus(Sum(*it))
    return found


def slices(data: bytes) -> Iterator[tuple[Record, bytes]]:
    """Yield the records that follow each other without a gap, and the bytes of each.

    Their checksums are not looked at. Raises ValueError.
    """
    at = 0
    for record in read_records(data, check_crc=False):
        yield record, data[at : at + record.size]
        at += record.size


def offset_in(record: Record, topic: str) -> int | None:
    """Return a record's offset in a queue of a topic; None when it is in none of them."""
    if record.topic == topic:
        return record.queue_offset
    if not names.is_lmq(topic):
        return None
    return light_queues.offset_in(topic, props.read(record.properties))


def is_meant(data: bytes, topic: str, key: str) -> bool:
    """Tell whether a record has a topic and a key; one that is damaged is left to the reader."""
    try:
        record = read_records(data, check_crc=False)[0]
    except (ValueError, IndexError):
        return True
    found = props.read(record.properties)
    keys = [*found.get(props.KEYS, "").split(props.KEY_SEPARATOR), found.get(props.UNIQ_KEY)]
    return record.topic == topic and (key in keys or key == f"T#{found.get(props.TAGS)}")
