"""Batches of ordered pop, as `consumerOrderInfo.json` keeps them (Java: OrderInfo; store §8)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.fastjson_reader import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFSETS_MAX = 64
"""Messages of a batch: bits of an i64. A pop takes 32 at most."""
_U64 = 1 << 64
Key = tuple[str, str, int]
"""(topic, group, queue id)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OrderedBatch:
    """The messages that a group popped last from one queue. Times are milliseconds."""

    pop_time_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    """Queue offsets, ascending."""
    attempt_id: str | None = None
    acked: int = 0
    """Bit i: message i is acknowledged."""
    later: frozenset[int] = frozenset()
    """Queue offsets behind the batch that an earlier pop took and somebody acknowledged.

    In memory alone: the file has no place for them.
    """
    visible_ms: Mapping[int, int] = dataclasses.field(default_factory=dict[int, int])
    """Queue offset -> when it becomes visible, where that was changed."""
    deliveries: Mapping[int, int] = dataclasses.field(default_factory=dict[int, int])
    """Queue offset -> earlier deliveries, of those that had any."""
    last_ms: int = 0
    """When the group popped."""


def encode_orders(batches: Mapping[Key, OrderedBatch]) -> bytes:
    """Write the file as Java does."""
    table: dict[str, dict[int, dict[str, Any]]] = {}
    for (topic, group, queue_id), batch in batches.items():
        table.setdefault(f"{topic}@{group}", {})[queue_id] = _row(batch)
    source = {
        "orderInfoCount": len(table),
        "orderedConsumptionLevel": "QUEUE",
        "table": {key: dict(sorted(queues.items())) for key, queues in table.items()},
    }
    return fastjson.java(source)


def decode_orders(data: bytes, *, size_max: int) -> dict[Key, OrderedBatch]:
    """Read the file. Raises JsonError."""
    table = fields.obj(fastjson.read_object(data, tolerant_size_max=size_max), "table")
    found: dict[Key, OrderedBatch] = {}
    for name in table:
        topic, mark, group = name.partition("@")
        queues = fields.obj(table, name)
        for number in queues if mark else ():
            queue_id = fields.number(number, name, fields.I32_MAX)
            found[topic, group, queue_id] = _batch(fields.as_object(queues[number], name))
    return found


def _row(batch: OrderedBatch) -> dict[str, Any]:
    first = batch.offsets[0] if batch.offsets else 0
    acked = batch.acked % _U64
    return {
        "a": batch.attempt_id,
        "cm": acked - _U64 if acked >= _U64 // 2 else acked,
        "i": batch.invisible_ms,
        "l": batch.last_ms,
        "o": [first, *(offset - first for offset in batch.offsets[1:])],
        "oc": dict(sorted(batch.deliveries.items())) or None,
        "ot": dict(sorted(batch.visible_ms.items())) or None,
        "popTime": batch.pop_time_ms,
    }


def _batch(row: dict[str, Any]) -> OrderedBatch:
    listed = [fields.number(item, "o") for item in fields.array(row, "o")]
    if len(listed) > OFFSETS_MAX:
        raise JsonError(f"o: a batch of {len(listed)} messages")
    offsets = (*listed[:1], *(listed[0] + diff for diff in listed[1:]))
    return OrderedBatch(
        pop_time_ms=fields.i64(row, "popTime"),
        invisible_ms=fields.i64(row, "i"),
        offsets=offsets,
        attempt_id=fields.optional_text(row, "a"),
        acked=fields.i64(row, "cm") % _U64,
        visible_ms=fields.int_map(row, "ot"),
        deliveries=fields.int_map(row, "oc"),
        last_ms=fields.i64(row, "l"),
    )
