"""Records of the revive topic: checkpoints, acknowledgements and batches of them.

The bodies are JSON byte for byte as Java 5.5.0 writes it (PopCheckPoint, AckMsg, BatchAckMsg), so
that a Java broker can go on with the store: keys in alphabetical order, fields without a value
left out, `reviveTime` derived. Reading takes what Java takes, and refuses what would make Java's
revive stop for ever.

Both kinds carry TIMER_DELIVER_MS: they wait in the timer wheel and reach the revive topic when
they are due. A checkpoint is due one second before its acknowledgements.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import msgspec

from roquet.model import frozen
from roquet.protocol import fastjson
from roquet.protocol import properties as props
from roquet.protocol.bodies import fields
from roquet.protocol.fastjson_reader import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKPOINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"

ACK_INTERVAL_MS = 1000
"""A checkpoint reaches the revive topic so much before it is due."""
MESSAGES_MAX = 32
"""Messages of one checkpoint: bits of its i32."""
BATCH_MAX = 1 << 16
"""Offsets that one batch of acknowledgements may name."""
_BYTE = 256
_BITS = 1 << 32
_UNREADABLE_RE_PUTS = 127

MergeKey = tuple[str, str, int, int, int, str]
"""(topic, group, queue id, first offset, pop time, broker name). Java joins them to one text, so
that a group `_ab` of the topic `orders` acknowledges for the group `b` of the topic `orders_a`."""
_quote = msgspec.json.encode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PopCheckpoint:
    """Messages that one pop took from one queue, and when they become visible again."""

    topic: str | None
    """The topic read: the pop retry topic when the messages came from there."""
    group: str | None
    queue_id: int
    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    broker_name: str | None = None
    diffs: tuple[int, ...] = ()
    """Distances of the messages from `start_offset`. Empty in old records: 0, 1, ... there."""
    count: int = 0
    bits: int = 0
    """Acknowledged messages, bit i for message i."""
    revive_offset: int = 0
    """Where the record lies in its revive queue: known to the reader, 0 on disk."""
    re_puts: str | None = None
    """How often the record was written again because a copy could not be stored."""
    suspended: bool = False
    """A redelivery does not count as a failed attempt."""

    @property
    def revive_ms(self) -> int:
        """When the messages become visible again, Unix milliseconds."""
        return self.pop_time_ms + self.invisible_ms

    @property
    def deliver_ms(self) -> int:
        """When the record is due in the revive topic, Unix milliseconds."""
        return self.revive_ms - ACK_INTERVAL_MS

    @property
    def merge_key(self) -> MergeKey:
        """What acknowledgements have in common with their checkpoint."""
        name = str(self.broker_name)
        place = self.queue_id, self.start_offset, self.pop_time_ms
        return str(self.topic), str(self.group), *place, name

    @property
    def re_put_times(self) -> int:
        """How often the record was written again; 127 when the number cannot be read."""
        if self.re_puts is None:
            return 0
        try:
            return fields.number(self.re_puts, "rp", fields.I32_MAX)
        except JsonError:
            return _UNREADABLE_RE_PUTS

    def offsets(self) -> tuple[int, ...]:
        """Return the queue offsets of the messages, in the order of their bits."""
        if self.diffs:
            return tuple(self.start_offset + diff for diff in self.diffs[: self.count])
        return tuple(range(self.start_offset, self.start_offset + self.count))

    def index_of(self, offset: int) -> int:
        """Return the bit of the message at a queue offset, -1 when it is not of this record."""
        diff = offset - self.start_offset
        if not self.diffs:
            return diff if 0 <= diff < self.count else -1
        try:
            return self.diffs.index(diff) if diff >= 0 else -1
        except ValueError:
            return -1

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of the record."""
        return (
            f"{_java(self.topic)}@{self.queue_id}@{self.start_offset}@{_java(self.group)}"
            f"@{self.pop_time_ms}@{_java(self.broker_name)}@{CHECKPOINT_TAG}"
        )

    def properties(self) -> dict[str, str]:
        """Return the properties of the record in Java's order."""
        return _properties(self.deliver_ms, self.unique_key, CHECKPOINT_TAG)

    def encode(self) -> bytes:
        """Write the body as Java does."""
        rest = (
            f'"it":{self.invisible_ms},"n":{self.count},"pt":{self.pop_time_ms},"q":{self.queue_id}'
            f',"reviveTime":{self.revive_ms},"ro":{self.revive_offset}'
        )
        tail = f'"so":{self.start_offset},"sp":{"true" if self.suspended else "false"}'
        diffs = f'"d":[{",".join(map(str, self.diffs))}]'.encode() if self.diffs else b""
        return _joined(
            b'"bm":%d' % self.bits,
            _text(b"bn", self.broker_name),
            _text(b"c", self.group),
            diffs,
            rest.encode(),
            _text(b"rp", self.re_puts),
            tail.encode(),
            _text(b"t", self.topic),
        )

    @classmethod
    def decode(cls, data: bytes) -> PopCheckpoint:
        """Read a body. Raises JsonError."""
        source = fastjson.read_object(data)
        diffs = tuple(fields.number(item, "d", fields.I32_MAX) for item in _array(source, "d"))
        count = (fields.i32(source, "n") + _BYTE // 2) % _BYTE - _BYTE // 2
        if count > MESSAGES_MAX or len(diffs) > MESSAGES_MAX:
            raise JsonError(f"a checkpoint of {max(count, len(diffs))} messages")
        if diffs and len(diffs) < count:
            raise JsonError(f"a checkpoint of {count} messages with {len(diffs)} offsets")
        return checkpoint_of(
            topic=fields.optional_text(source, "t"),
            group=fields.optional_text(source, "c"),
            queue_id=fields.i32(source, "q"),
            start_offset=_i64(source, "so"),
            pop_time_ms=_i64(source, "pt"),
            invisible_ms=_i64(source, "it"),
            broker_name=fields.optional_text(source, "bn"),
            diffs=diffs,
            count=max(0, count),
            bits=fields.i32(source, "bm"),
            revive_offset=_i64(source, "ro"),
            re_puts=fields.optional_text(source, "rp"),
            suspended=fields.boolean(source, "sp"),
        )


checkpoint_of = frozen.maker(PopCheckpoint)
"""Makes checkpoints quickly: each pop does, and each that is redelivered."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PopAck:
    """Acknowledged messages of one checkpoint: one, or a batch when `batch` is not None."""

    topic: str | None
    group: str | None
    queue_id: int
    start_offset: int
    """`start_offset` of the checkpoint."""
    pop_time_ms: int
    broker_name: str | None = None
    offset: int = -1
    """The queue offset of the message; -1 in a batch."""
    batch: tuple[int, ...] | None = None
    """The queue offsets of a batch."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """The queue offsets of all messages that are acknowledged."""
        return (self.offset,) if self.batch is None else self.batch

    @property
    def tag(self) -> str:
        """The tag of the record."""
        return ACK_TAG if self.batch is None else BATCH_ACK_TAG

    def merge_key(self, broker_name: str) -> MergeKey:
        """Return the merge key of the checkpoint; `broker_name` stands in for none."""
        name = self.broker_name
        if name is None or not name.strip():
            name = broker_name
        place = self.queue_id, self.start_offset, self.pop_time_ms
        return str(self.topic), str(self.group), *place, name

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of a record that answers a request; of a batch too, whose offset is -1."""
        return (
            f"{_java(self.topic)}@{self.queue_id}@{self.offset}@{_java(self.group)}"
            f"@{self.pop_time_ms}@{_java(self.broker_name)}@{ACK_TAG}"
        )

    @property
    def buffer_key(self) -> str:
        """UNIQ_KEY of a batch that the merge buffer stores."""
        listed = ", ".join(map(str, self.offsets))
        return (
            f"{_java(self.topic)}@{self.queue_id}@[{listed}]@{_java(self.group)}"
            f"@{self.pop_time_ms}@{BATCH_ACK_TAG}"
        )

    def properties(self, deliver_ms: int, *, of_buffer: bool = False) -> dict[str, str]:
        """Return the properties of the record in Java's order.

        `deliver_ms` is the revive time of the checkpoint. `of_buffer`: the merge buffer stores it.
        """
        of_buffer = of_buffer and self.batch is not None
        key = self.buffer_key if of_buffer else self.unique_key
        return _properties(deliver_ms, key, self.tag)

    def encode(self) -> bytes:
        """Write the body as Java does."""
        batch = self.batch
        listed = "" if batch is None else f'"aol":[{",".join(map(str, batch))}],'
        return (
            f'{{"ao":{self.offset},{listed}{_member("bn", self.broker_name)}'
            f'{_member("c", self.group)}"pt":{self.pop_time_ms},"q":{self.queue_id}'
            f',"so":{self.start_offset}{_last_member("t", self.topic)}}}'
        ).encode()

    @classmethod
    def decode(cls, data: bytes, *, batch: bool) -> PopAck:
        """Read a body; the tag of the record says whether it is a batch. Raises JsonError."""
        source = fastjson.read_object(data)
        for short, long in _ACK_NAMES:
            if source.get(short) is None and source.get(long) is not None:
                source[short] = source[long]
        listed = _array(source, "aol") if batch else []
        if len(listed) > BATCH_MAX:
            raise JsonError(f"a batch of {len(listed)} acknowledgements")
        return cls(
            topic=fields.optional_text(source, "t"),
            group=fields.optional_text(source, "c"),
            queue_id=fields.i32(source, "q"),
            start_offset=_i64(source, "so"),
            pop_time_ms=_i64(source, "pt"),
            broker_name=fields.optional_text(source, "bn"),
            offset=_i64(source, "ao"),
            batch=tuple(fields.number(item, "aol") for item in listed) if batch else None,
        )


_ACK_NAMES = (
    ("ao", "ackOffset"),
    ("so", "startOffset"),
    ("c", "consumerGroup"),
    ("t", "topic"),
    ("q", "queueId"),
    ("pt", "popTime"),
    ("bn", "brokerName"),
    ("aol", "ackOffsetList"),
)
"""Names that releases before 5.2 wrote."""


def with_bit(bits: int, index: int) -> int:
    """Return an i32 with one bit more set."""
    bits = (bits | 1 << index) % _BITS
    return bits - _BITS if bits >= _BITS // 2 else bits


def has_bit(bits: int, index: int) -> bool:
    """Tell whether a bit of an i32 is set."""
    return bool(bits >> index & 1)


def _array(source: Mapping[str, Any], name: str) -> list[Any]:
    value = source.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    return fields.array(source, name)


def _i64(source: Mapping[str, Any], name: str) -> int:
    value = source.get(name)
    if isinstance(value, (bool, float)):
        # As Java: the fraction is dropped.
        if not math.isfinite(value):
            raise JsonError(f"{name}: {value} is not an integer")
        value = int(value)
    return 0 if value is None else fields.number(value, name)


def _java(text: str | None) -> str:
    return "null" if text is None else text


def _properties(deliver_ms: int, key: str, tag: str) -> dict[str, str]:
    return {props.TIMER_DELIVER_MS: str(deliver_ms), props.UNIQ_KEY: key, props.TAGS: tag}


@functools.lru_cache(maxsize=1024)
def _member(name: str, value: str | None) -> str:
    """Return a text as a member that others follow; the same few names come with every record."""
    return "" if value is None else f'"{name}":{_quote(value).decode()},'


def _last_member(name: str, value: str | None) -> str:
    written = _member(name, value)
    return f",{written[:-1]}" if written else ""


def _text(name: bytes, value: str | None) -> bytes:
    return b"" if value is None else b'"' + name + b'":' + _quote(value)


def _joined(*parts: bytes) -> bytes:
    return b"{" + b",".join([part for part in parts if part]) + b"}"


def read_record(tag: str | None, body: bytes) -> PopCheckpoint | PopAck | None:
    """Read a record of a revive topic; None for one of another tag. Raises JsonError."""
    if tag == CHECKPOINT_TAG:
        return PopCheckpoint.decode(body)
    if tag in (ACK_TAG, BATCH_ACK_TAG):
        return PopAck.decode(body, batch=tag == BATCH_ACK_TAG)
    return None
