"""Offset tables: 43, 45, 220, 221, 308, and the files of consumer and delay offsets."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.model.data_version import DataVersion
from roquet.protocol import fastjson, names
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.topics import data_version_json, data_version_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.fields import Json

TOPIC_GROUP_SEPARATOR = "@"

KEYS_AT_ONCE = 2_000
"""Topics and groups that are looked at for one piece of a file."""

Table = dict[str, dict[int, int]]
"""`topic@group` -> queue id -> offset."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsetBody:
    """All consumer offsets of a broker (Java: ConsumerOffsetSerializeWrapper)."""

    offsets: Mapping[str, Mapping[int, int]]
    version: DataVersion | None = None
    pull_offsets: Mapping[str, Mapping[int, int]] | None = None
    """Offsets last pulled; only in the file."""

    def encode(self) -> bytes:
        """Write the answer to GET_ALL_CONSUMER_OFFSET (43)."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Yield the same in pieces, each in about a millisecond."""
        return fastjson.java_pieces(self._json())

    def encode_file(self) -> bytes:
        """Write consumerOffset.json, with the topics of each group as Java derives them."""
        return b"".join(self.file_pieces())

    def file_pieces(self) -> Iterator[bytes]:
        """Yield the same in pieces, some of them empty, each in about a millisecond."""
        out = yield from self._file_json(self.offsets)
        yield from fastjson.pretty_pieces(out)

    def encode_light_file(self) -> bytes:
        """Write lmqConsumerOffset.json: the same, but light groups have one offset a topic."""
        return b"".join(self.light_file_pieces())

    def light_file_pieces(self) -> Iterator[bytes]:
        """Yield the same in pieces, some of them empty, each in about a millisecond."""
        light: dict[str, int] = {}
        others: dict[str, Mapping[int, int]] = {}
        for count, (key, queues) in enumerate(self.offsets.items()):
            if count % KEYS_AT_ONCE == 0:
                yield b""
            if _is_light(key, queues):
                light[key] = queues[0]
            else:
                others[key] = queues
        out = yield from self._file_json(others)
        out["lmqOffsetTable"] = fastjson.Made(light, int)
        yield from fastjson.pretty_pieces(out)

    def _file_json(
        self, offsets: Mapping[str, Mapping[int, int]]
    ) -> Generator[bytes, None, dict[str, Any]]:
        out = {**self._json(), "offsetTable": fastjson.Made(offsets, dict)}
        groups: dict[str, list[str]] = {}
        for count, key in enumerate(offsets):
            if count % KEYS_AT_ONCE == 0:
                yield b""
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            groups.setdefault(group, []).append(topic)
        out["groupTopicMap"] = fastjson.Made(groups, _topics)
        out["pullOffsetTable"] = fastjson.Made(self.pull_offsets or {}, dict)
        return out

    def _json(self) -> Json:
        out: Json = {"offsetTable": fastjson.Made(self.offsets, dict)}
        if self.version is not None:
            out["dataVersion"] = data_version_json(self.version)
        return out

    @classmethod
    def decode(cls, data: bytes, *, tolerant_size_max: int = fastjson.TOLERANT_SIZE_MAX) -> Self:
        """Read body or file. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=tolerant_size_max)
        versioned = source.get("dataVersion") is not None
        pulled = source.get("pullOffsetTable") is not None
        light = fields.obj(source, "lmqOffsetTable")
        light_offsets = {key: {0: fields.number(light[key], key)} for key in light}
        return cls(
            offsets={**_table(source, "offsetTable"), **light_offsets},
            version=data_version_of(fields.obj(source, "dataVersion")) if versioned else None,
            pull_offsets=_table(source, "pullOffsetTable") if pulled else None,
        )


def _topics(names: list[str]) -> list[str]:
    """Return the topics of a group; sorting many keeps the interpreter for long."""
    return sorted(names) if len(names) <= fastjson.SORTED_MAX else names


def _is_light(key: str, queues: Mapping[int, int]) -> bool:
    """Tell whether Java keeps these offsets in a table of their own: those of a light group."""
    group = key.partition(TOPIC_GROUP_SEPARATOR)[2]
    return names.is_lmq(group) and 0 in queues


def _table(source: Mapping[str, Any], name: str) -> Table:
    table = fields.obj(source, name)
    return {key: fields.int_map(table, key) for key in table}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsetBody:
    """Delay level -> queue offset delivered so far (Java: DelayOffsetSerializeWrapper)."""

    offsets: Mapping[int, int]
    version: DataVersion = dataclasses.field(default_factory=DataVersion)

    def encode(self) -> bytes:
        """Write the answer to GET_ALL_DELAY_OFFSET (45)."""
        return fastjson.java(self._json())

    def encode_file(self) -> bytes:
        """Write delayOffset.json."""
        return fastjson.pretty(self._json())

    def _json(self) -> Json:
        return {"dataVersion": data_version_json(self.version), "offsetTable": dict(self.offsets)}

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read body or file. Raises JsonError."""
        source = fastjson.read_object(data)
        return cls(
            offsets=fields.int_map(source, "offsetTable"),
            version=data_version_of(fields.obj(source, "dataVersion")),
        )


def encode_queue_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Write queue -> offset with queues as keys (Java: ResetOffsetBody; 220, 222)."""
    return fastjson.java({"offsetTable": _queue_table(offsets)})


def queue_offsets_body(rows: bytes) -> bytes:
    """Write the same around its rows, `QueueText` and an offset each, separated by commas."""
    return b'{"offsetTable":{%b}}' % rows


def encode_queue_offsets_file(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Write the offset file of a broadcast consumer: the same, indented."""
    return fastjson.pretty({"offsetTable": _queue_table(offsets)})


def encode_queue_offset_list(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Write the list form that C clients get (Java: ResetOffsetBodyForC)."""
    items = [
        {**fields.queue_json(queue), "offset": offset} for queue, offset in sorted(offsets.items())
    ]
    return fastjson.java({"offsetTable": items})


def decode_queue_offsets(data: bytes) -> dict[MessageQueue, int]:
    """Read either form. Raises JsonError."""
    source = fastjson.read_object(data)
    if isinstance(source.get("offsetTable"), list):
        items = fields.objects(source, "offsetTable")
        return {fields.queue(item): fields.i64(item, "offset") for item in items}
    return _queue_offsets(source, "offsetTable")


def encode_consumer_status(
    by_queue: Mapping[MessageQueue, int],
    by_client: Mapping[str, Mapping[MessageQueue, int]] | None = None,
) -> bytes:
    """Write the answers to 221 (by queue) and 223 (by client and queue)."""
    return fastjson.java(
        {
            "consumerTable": {name: _queue_table(it) for name, it in (by_client or {}).items()},
            "messageQueueTable": _queue_table(by_queue),
        }
    )


def decode_consumer_status(
    data: bytes,
) -> tuple[dict[MessageQueue, int], dict[str, dict[MessageQueue, int]]]:
    """Read the answers to 221 and 223: (by queue, by client). Raises JsonError."""
    source = fastjson.read_object(data)
    clients = fields.obj(source, "consumerTable")
    return (
        _queue_offsets(source, "messageQueueTable"),
        {name: _queue_offsets(clients, name) for name in clients},
    )


def correction_offsets_body(rows: bytes) -> bytes:
    """Write the answer to QUERY_CORRECTION_OFFSET (308) around its rows, `queue id:offset`."""
    return b'{"correctionOffsets":{%b}}' % rows


def _queue_table(offsets: Mapping[MessageQueue, int]) -> dict[Any, int]:
    return {fields.queue_key(queue): offset for queue, offset in offsets.items()}


def _queue_offsets(source: Mapping[str, Any], name: str) -> dict[MessageQueue, int]:
    return {
        queue: fields.number(offset, name) for queue, offset in fields.queue_items(source, name)
    }
