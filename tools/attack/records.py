"""Records of the commit log, forged and read, by a layout written down here once more."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAGIC = 0xDAA320A7
HOST = bytes((127, 0, 0, 1)) + (40_000).to_bytes(4, "big")
_HEAD = struct.Struct(">IiIiqqiq")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Forged:
    """What a record says of itself."""

    topic: str
    body: bytes = b"ATTACK"
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_host: bytes = HOST

    def encode(self) -> bytes:
        """Write it with right lengths and a right checksum."""
        properties = "".join(f"{k}\x01{v}\x02" for k, v in self.properties.items()).encode()
        name = self.topic.encode()
        head = _HEAD.pack(
            MAGIC,
            zlib.crc32(self.body) & 0x7FFFFFFF,
            self.queue_id,
            0,
            self.queue_offset,
            self.physical_offset,
            self.sys_flag,
            1_700_000_000_000,
        )
        rest = b"".join(
            (
                self.born_host,
                (1_700_000_000_000).to_bytes(8, "big"),
                HOST,
                struct.pack(">iqi", 0, 0, len(self.body)),
                self.body,
                bytes((len(name),)),
                name,
                len(properties).to_bytes(2, "big"),
                properties,
            )
        )
        return struct.pack(">i", 4 + len(head) + len(rest)) + head + rest


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What matters of a record that was read (hosts of 8 bytes)."""

    topic: str
    queue_offset: int
    physical_offset: int
    body: bytes

    @classmethod
    def read(cls, data: bytes) -> Iterator[Found]:
        """Take apart records that follow each other."""
        while data:
            size = int.from_bytes(data[:4], "big")
            one, data = data[:size], data[size:]
            _, _, _, _, queue_offset, physical, *_ = _HEAD.unpack_from(one, 4)
            at = 4 + _HEAD.size + 8 + 8 + 8 + 12
            length = int.from_bytes(one[at : at + 4], "big")
            body = one[at + 4 : at + 4 + length]
            at += 4 + length
            yield cls(one[at + 1 : at + 1 + one[at]].decode(), queue_offset, physical, body)
