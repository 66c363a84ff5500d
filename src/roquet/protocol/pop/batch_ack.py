"""The body of BATCH_ACK_MESSAGE 200151 (Java: BatchAckMessageRequestBody, BatchAck)."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from typing import TYPE_CHECKING, Any, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.fastjson_reader import JsonError
from roquet.protocol.pop.records import BATCH_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ACKS_MAX = 65_536
"""Entries that are read at all."""
_SET_BYTE = re.compile(rb"[^\0]")
_NAMES = {
    "c": "consumerGroup",
    "t": "topic",
    "r": "retry",
    "so": "startOffset",
    "q": "queueId",
    "rq": "reviveQueueId",
    "pt": "popTime",
    "it": "invisibleTime",
    "b": "bitSet",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchAck:
    """Acknowledged messages of one checkpoint."""

    group: str
    topic: str
    """The normal topic, also of redelivered messages."""
    retry_flag: str
    start_offset: int
    queue_id: int
    revive_queue: int
    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchAckBody:
    """The whole body."""

    broker_name: str
    acks: tuple[BatchAck, ...]

    def encode(self) -> bytes:
        """Write the body."""
        rows = [
            {
                "b": _bits(offset - ack.start_offset for offset in ack.offsets),
                "c": ack.group,
                "it": ack.invisible_ms,
                "pt": ack.pop_time_ms,
                "q": ack.queue_id,
                "r": ack.retry_flag,
                "rq": ack.revive_queue,
                "so": ack.start_offset,
                "t": ack.topic,
            }
            for ack in self.acks
        ]
        return fastjson.java({"acks": rows, "brokerName": self.broker_name})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError, also for more offsets than a record can name."""
        source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
        return fields.at_once(cls.of_json(source))

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> fields.Steps[Self]:
        """Read the fields, in steps; arrays may be parts. Raises JsonError as `decode` does."""
        count = len(fields.array(source, "acks"))
        if count > ACKS_MAX:
            raise JsonError(f"a batch of {count} acknowledgements")
        acks: list[BatchAck] = []
        # A set of bits is long: its row is read as a body is, whatever its length.
        for row, is_due in fields.paced_objects(source, "acks", in_parts=True):
            acks.append(_ack(row))
            if is_due:
                yield
        return cls(broker_name=fields.text(source, "brokerName"), acks=tuple(acks))


def _ack(row: dict[str, Any]) -> BatchAck:
    for short, long in _NAMES.items():
        if row.get(short) is None and row.get(long) is not None:
            row[short] = row[long]
    start = fields.i64(row, "so")
    return BatchAck(
        group=fields.text(row, "c"),
        topic=fields.text(row, "t"),
        retry_flag=fields.text(row, "r", "0"),
        start_offset=start,
        queue_id=fields.i32(row, "q"),
        revive_queue=fields.i32(row, "rq"),
        pop_time_ms=fields.i64(row, "pt"),
        invisible_ms=fields.i64(row, "it"),
        offsets=tuple(start + bit for bit in _set_bits(fields.text(row, "b"))),
    )


def _bits(numbers: Iterable[int]) -> str:
    """Write a set of numbers as Java's BitSet: bit n is bit n % 8 of byte n / 8."""
    total = 0
    for number in numbers:
        total |= 1 << number
    data = total.to_bytes((total.bit_length() + 7) // 8, "little")
    return base64.b64encode(data).decode()


def _set_bits(text: str) -> list[int]:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise JsonError(f"b: {text[:40]!r} is not Base64") from error
    count = int.from_bytes(data, "little").bit_count()
    if count > BATCH_MAX:
        raise JsonError(f"b: {count} acknowledgements of one checkpoint")
    found: list[int] = []
    # Most bytes of a long set are zero, and whoever sends it says how many there are.
    for match in _SET_BYTE.finditer(data):
        at, byte = match.start(), match[0][0]
        found += [8 * at + bit for bit in range(8) if byte >> bit & 1]
    return found
