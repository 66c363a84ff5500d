"""The columns of an Arrow batch as the native encoder takes them: buffers, nothing copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from roquet.base.errors import UsageError
from roquet.protocol import names, properties
from roquet.protocol.properties import RESERVED, SHARDING_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet._native import SinkEncoder

    Texts = tuple[int, memoryview | None, memoryview, memoryview | None]
    Lists = tuple[int, memoryview | None, memoryview]
    Frame = tuple[int, bytes, int, str]
    # Lot, body of a batch send, messages in it, unique key of the first.

DELAY_MAX: Final = 1000
"""Levels of a broker at most, by far; one above the broker's own is its highest."""
LEFT_OUT: Final = sorted(RESERVED - {SHARDING_KEY})
"""What a broker or a producer set when the message was read from a topic."""

_TEXT = pa.string()
_NONE = memoryview(bytes(4))
"""Offsets of an array without rows, which may have no buffers."""
_TYPES: Final[Mapping[str, Any]] = {
    "body": pa.binary(),
    "topic": _TEXT,
    "tags": _TEXT,
    "properties": pa.map_(_TEXT, _TEXT),
    "brokerName": _TEXT,
    "queueId": pa.int64(),
    "shardingKey": _TEXT,
    "uniqKey": _TEXT,
    "delay": pa.int64(),
}


class Columns(NamedTuple):
    """The rows of one batch, each column in the one type that the encoder knows."""

    rows: int
    arrays: Mapping[str, Any]
    """Column -> Arrow array; only those that the sink knows."""

    def values(self, name: str) -> Sequence[Any]:
        """Return a column's values, None for null; all None when there is no such column."""
        array = self.arrays.get(name)
        return [None] * self.rows if array is None else array.to_pylist()

    def topics(self, default: str | None) -> Sequence[str]:
        """Return the topic of each row. Raises UsageError for a row without one."""
        array = self.arrays.get("topic")
        if array is None:
            found: Sequence[str | None] = [default or None] * self.rows
        else:
            found = [topic or default or None for topic in array.to_pylist()]
        if None in found:
            raise UsageError("a row has no topic, and the option `topic` is not given")
        for topic in {it for it in found if it is not None}:
            wrong = names.check_topic(topic) or names.check_may_send(topic)
            if wrong is not None:
                raise UsageError(wrong)
        return [topic for topic in found if topic is not None]

    def delays(self, levels: int) -> Sequence[int] | None:
        """Return the level of each row, None when there is none. Raises UsageError."""
        array = self.arrays.get("delay")
        if array is None:
            return None
        found: list[int] = pc.fill_null(array, 0).to_pylist()
        for level in (min(found, default=0), max(found, default=0)):
            if not 0 <= level <= DELAY_MAX:
                raise UsageError(f"delay {level}: must be a level from 0 (at once) to {DELAY_MAX}")
            if level > levels:
                raise UsageError(
                    f"delay_level {level} is not within 0..{levels}"
                    f" ({levels} levels unless brokers have others)"
                )
        return found if any(found) else None

    def sharding_keys(self) -> Sequence[str]:
        """Return by what rows choose queues: the sharding key, else the first key, else nothing."""
        sharding = self.values("shardingKey")
        array = self.arrays.get("properties")
        if array is not None:
            given = pc.map_lookup(array, pa.scalar(SHARDING_KEY), "last").to_pylist()
            sharding = [one or other for one, other in zip(sharding, given, strict=True)]
        keys = self.values("keys")
        return [one or first_key(other) for one, other in zip(sharding, keys, strict=True)]


def first_key(keys: str | Sequence[str] | None) -> str:
    """Return the first of a row's keys; an empty text when there is none."""
    return "".join((keys.split() if isinstance(keys, str) else keys or ())[:1])


def columns_of(batch: Any) -> Columns:
    """Return the columns of an Arrow batch that mean something to the sink."""
    arrays: dict[str, Any] = {}
    for name in batch.schema.names:
        array = batch.column(name)
        wanted = _TYPES.get(name)
        if name == "keys":
            many = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
            wanted = pa.list_(_TEXT) if many else _TEXT
        if wanted is not None:
            arrays[name] = array if array.type == wanted else array.cast(wanted)
    return Columns(batch.num_rows, arrays)


def texts(array: Any) -> Texts:
    """Return the buffers of an array of texts or bytes."""
    validity, offsets, data = map(lent, array.buffers())
    return array.offset, validity, offsets or _NONE, data


def lists(array: Any) -> Lists:
    """Return the buffers of an array of lists or maps, without its entries."""
    validity, offsets, *_ = array.buffers()
    return array.offset, lent(validity), lent(offsets) or _NONE


def lent(buffer: Any) -> memoryview | None:
    """Return an Arrow buffer as bytes."""
    return None if buffer is None else memoryview(buffer).cast("B")


def encode(
    encoder: SinkEncoder, columns: Columns, lots: Any, delays: Any, unique: Any
) -> list[Frame]:
    """Hand rows to the encoder and return what became full; `unique` is an array of keys or None.

    Raises UsageError, which says what is wrong with a row.
    """
    arrays = columns.arrays
    given: dict[str, Any] = {"delay": delays}
    for name, of in (("tags", arrays.get("tags")), ("sharding", arrays.get("shardingKey"))):
        given[name] = None if of is None else texts(of)
    given["unique"] = None if unique is None else texts(unique)
    if (keys := arrays.get("keys")) is not None:
        many = pa.types.is_list(keys.type)
        given["keys"] = (lists(keys), texts(keys.values)) if many else texts(keys)
    if (found := arrays.get("properties")) is not None:
        given["properties"] = (lists(found), texts(found.keys), texts(found.items))
    frames, problem = encoder.add(columns.rows, lots, texts(arrays["body"]), **given)
    if problem is not None:
        raise UsageError(_said(*problem))
    return frames


def _said(row: int, kind: str, detail: str) -> str:
    return {
        "no body": "a row has no body; a message needs one",
        "body size": f"a body of {detail} bytes: the limit is {SIZE_MAX}",
        "key": "a key is not empty and has no white space",
        "property": f"property {detail!r} is empty or holds a separator",
        "properties size": f"properties are longer than {properties.SIZE_MAX} bytes",
        "batch size": f"a message does not fit into a batch of {SIZE_MAX} bytes",
    }[kind] + f" (row {row} of an Arrow batch)"


SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of a body, and of the body of one request, as the client has it."""
