"""Body of REGISTER_BROKER (103): plain JSON, or the compressed binary form (wire §13.1)."""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Self

from roquet.protocol import fastjson, versions
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.topics import (
    TopicTableBody,
    data_version_json,
    data_version_of,
    topic_of_text,
    topic_text,
)
from roquet.protocol.fastjson import JsonError
from roquet.protocol.messages import compression
from roquet.protocol.messages.compression import CompressionError, CompressionType

if TYPE_CHECKING:
    from roquet.model.topic import TopicConfig
    from roquet.protocol.bodies.fields import Json

TOPICS_MAX = 200_000
_ZLIB_FIRST_BYTE = 0x78


class RegisterBodyError(ValueError):
    """The body is damaged, too big, or not what its header says."""


def crc32_of(body: bytes) -> int:
    """Return the value of header field bodyCrc32."""
    return zlib.crc32(body) & 0x7FFFFFFF


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBody:
    """What a broker registers."""

    table: TopicTableBody
    filter_servers: tuple[str, ...] = ()

    def encode(self, *, compressed: bool = False) -> bytes:
        """Write the JSON form, or the binary form within zlib."""
        if compressed:
            return self._binary()
        return fastjson.java(
            {
                "filterServerList": list(self.filter_servers),
                "topicConfigSerializeWrapper": self.table.to_json(),
            }
        )

    def _binary(self) -> bytes:
        parts = [_sized(fastjson.java(data_version_json(self.table.version)))]
        parts.append(len(self.table.topics).to_bytes(4, "big"))
        parts += [_sized(topic_text(config).encode()) for config in self.table.topics.values()]
        parts.append(_sized(fastjson.java(list(self.filter_servers))))
        mappings = self.table.mapping_info or {}
        parts.append(len(mappings).to_bytes(4, "big"))
        parts += [_sized(fastjson.java(mapping)) for mapping in mappings.values()]
        return zlib.compress(b"".join(parts))

    @classmethod
    def decode(cls, body: bytes, version: int, *, compressed: bool) -> Self:
        """Read either form; zlib is recognized even when `compressed` says no.

        `version` is that of the registering broker. Raises RegisterBodyError.
        """
        try:
            if compressed or body[:1] == bytes([_ZLIB_FIRST_BYTE]):
                return cls._of_binary(body, version)
            source = fastjson.read_object(body)
            if version < versions.V3_0_11:
                return cls(table=TopicTableBody.of_json(source))
            return cls(
                table=TopicTableBody.of_json(fields.obj(source, "topicConfigSerializeWrapper")),
                filter_servers=tuple(fields.texts(source, "filterServerList")),
            )
        except (JsonError, CompressionError, UnicodeDecodeError) as error:
            raise RegisterBodyError(str(error)) from error

    @classmethod
    def _of_binary(cls, body: bytes, version: int) -> Self:
        data = compression.decompress(body, CompressionType.ZLIB, compression.REGISTER_SIZE_MAX)
        cursor = _Cursor(data)
        data_version = data_version_of(fastjson.read_object(cursor.sized()))
        topics: dict[str, TopicConfig] = {}
        for _ in range(cursor.count()):
            config = topic_of_text(cursor.sized().decode())
            topics[config.name] = config
        servers = fields.texts({"list": fastjson.read(cursor.sized())}, "list")
        mappings: Json = {}
        if version >= versions.V5_0_0 and cursor.left():
            for _ in range(cursor.count()):
                mapping = fastjson.read_object(cursor.sized())
                mappings[fields.text(mapping, "topic")] = mapping
        return cls(
            table=TopicTableBody(
                topics=topics,
                version=data_version,
                mapping_version=data_version if mappings else None,
                mapping_info=mappings or None,
            ),
            filter_servers=tuple(servers),
        )


class _Cursor:
    """Walks over sized parts; no length is believed before it was compared with what is left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def _int(self) -> int:
        if self.left() < 4:
            raise RegisterBodyError("the body ends within a length")
        self._at += 4
        return int.from_bytes(self._data[self._at - 4 : self._at], "big", signed=True)

    def count(self) -> int:
        count = self._int()
        if not 0 <= count <= min(TOPICS_MAX, self.left() // 4):
            raise RegisterBodyError(f"{count} entries cannot be in {self.left()} bytes")
        return count

    def sized(self) -> bytes:
        length = self._int()
        if not 0 <= length <= self.left():
            raise RegisterBodyError(f"a part of {length} bytes where {self.left()} are left")
        self._at += length
        return self._data[self._at - length : self._at]


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
