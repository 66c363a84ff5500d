"""Reading typed fields out of decoded JSON, as forgiving as Java is and no more (wire §18).

Numbers and booleans may come as text; null counts as absent; unknown fields are ignored; a field
of another kind raises JsonError naming it.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from roquet.model.queue import MessageQueue
from roquet.protocol import fastjson
from roquet.protocol.fastjson_reader import JsonError, ObjectKey, is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

I32_MAX = 2**31 - 1
I64_MAX = 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)

PAUSE_BYTES = 16 * 1024
"""Bytes of JSON that are read between two pauses: some 2 ms."""
_UNKNOWN_SIZE = 128

Json = dict[str, Any]
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields where others may have their turn, and returns its result."""


def at_once(steps: Steps[T]) -> T:
    """Do all of the steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("T", end.value)


def number(value: Any, name: str, limit: int = I64_MAX) -> int:
    """Return `value` as an integer within -limit-1..limit."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise JsonError(f"{name}: {_shown(value)} is not an integer")
    if not -limit - 1 <= value <= limit:
        raise JsonError(f"{name}: {value} is out of range")
    return value


def i32(source: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Read a 32-bit integer."""
    value = source.get(name)
    return default if value is None else number(value, name, I32_MAX)


def i64(source: Mapping[str, Any], name: str, default: int = 0) -> int:
    """Read a 64-bit integer."""
    value = source.get(name)
    return default if value is None else number(value, name)


def real(source: Mapping[str, Any], name: str, default: float = 0.0) -> float:
    """Read a number with a fraction."""
    value = source.get(name)
    if value is None:
        return default
    try:
        return float(value)
    except (TypeError, ValueError):
        raise JsonError(f"{name}: {_shown(value)} is not a number") from None


def boolean(source: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Read true or false, also as text or as 0 and 1."""
    value = source.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise JsonError(f"{name}: {_shown(value)} is not true or false")


def text(source: Mapping[str, Any], name: str, default: str = "") -> str:
    """Read a text; a number becomes its digits."""
    value = optional_text(source, name)
    return default if value is None else value


def optional_text(source: Mapping[str, Any], name: str) -> str | None:
    """Read a text that may be absent."""
    value = source.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    raise JsonError(f"{name}: {_shown(value)} is not a text")


def obj(source: Mapping[Any, Any], name: str) -> Json:
    """Read an object; absent is empty."""
    value = source.get(name)
    if value is None:
        return {}
    return as_object(value, name)


def as_object(value: Any, name: str) -> Json:
    """Check that a value is an object."""
    if not is_object(value):
        raise JsonError(f"{name}: {_shown(value)} is not an object")
    return value


def array(source: Mapping[str, Any], name: str) -> list[Any]:
    """Read an array; absent is empty."""
    value = source.get(name)
    if value is None:
        return []
    if not is_array(value):
        raise JsonError(f"{name}: {_shown(value)} is not an array")
    return value


def objects(source: Mapping[str, Any], name: str) -> list[Json]:
    """Read an array of objects."""
    return [as_object(item, name) for item in array(source, name)]


def paced_objects(
    source: Mapping[str, Any], name: str, *, in_parts: bool = False
) -> Iterator[tuple[Json, bool]]:
    """Read an array of objects: each, and whether a pause is due behind it.

    With `in_parts` arrays within them are read by this function, too.
    """
    left = PAUSE_BYTES
    for item, size in fastjson.items(array(source, name), in_parts=in_parts):
        left -= size or _UNKNOWN_SIZE
        yield as_object(item, name), left <= 0
        if left <= 0:
            left = PAUSE_BYTES


def texts(source: Mapping[str, Any], name: str) -> list[str]:
    """Read an array of texts; nulls in it are left out."""
    found: list[str] = []
    for item in array(source, name):
        if isinstance(item, str):
            found.append(item)
        elif item is not None:
            raise JsonError(f"{name}: {_shown(item)} is not a text")
    return found


def text_map(source: Mapping[str, Any], name: str) -> dict[str, str]:
    """Read an object of texts."""
    found = obj(source, name)
    return {key: text(found, key) for key in found if found[key] is not None}


def int_map(source: Mapping[str, Any], name: str) -> dict[int, int]:
    """Read an object from integers to integers, its keys quoted or bare."""
    found = obj(source, name)
    return {number(key, name): number(value, name) for key, value in found.items()}


def queue_items(source: Mapping[str, Any], name: str) -> Iterator[tuple[MessageQueue, Any]]:
    """Go through an object whose keys are message queues."""
    table: dict[Any, Any] = obj(source, name)
    for key, value in table.items():
        if isinstance(key, ObjectKey):
            yield queue(key.as_dict()), value
        elif key.startswith("{"):
            # As `fastjson.read_keyed` gives it.
            yield queue(fastjson.read_object(key.encode())), value
        else:
            raise JsonError(f"{name}: a key is not a message queue")


def queue(source: Mapping[str, Any]) -> MessageQueue:
    """Read one message queue."""
    return MessageQueue(
        topic=text(source, "topic"),
        broker_name=text(source, "brokerName"),
        queue_id=i32(source, "queueId"),
    )


def queue_json(value: MessageQueue) -> Json:
    """Return a message queue's fields."""
    return {"brokerName": value.broker_name, "queueId": value.queue_id, "topic": value.topic}


def queue_key(value: MessageQueue) -> ObjectKey:
    """Return a message queue as a map key."""
    return ObjectKey.of(queue_json(value))


class QueueText:
    """Writes the queues of one topic as map keys or objects: long answers are made row by row."""

    def __init__(self, topic: str, broker_name: str) -> None:
        self._before = f'{{"brokerName":{fastjson.quoted(broker_name)},"queueId":'
        self._behind = f',"topic":{fastjson.quoted(topic)}}}'

    def of(self, queue_id: int) -> str:
        """Return the JSON of a queue, the same as of `queue_json`."""
        return f"{self._before}{queue_id}{self._behind}"


def _shown(value: Any) -> str:
    return repr(value)[:60]
