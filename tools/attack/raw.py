"""A client of sockets and structs: it shares no line with the product, so no error of its codec."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import itertools
import json
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

ONE_WAY = 2
RESPONSE = 1
TIMEOUT_S = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """What an account signs by."""

    access_key: str
    secret: str

    def signed(self, ext: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields with key and signature."""
        fields = {**ext, "AccessKey": self.access_key}
        values = "".join(fields[name] for name in sorted(fields)).encode() + body
        mac = hmac.new(self.secret.encode(), values, hashlib.sha1)
        fields["Signature"] = base64.b64encode(mac.digest()).decode()
        return fields


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it came."""

    header: dict[str, object]
    body: bytes
    raw: bytes

    @property
    def code(self) -> int:
        """The code of a request or an answer."""
        return int(str(self.header["code"]))

    @property
    def ext(self) -> dict[str, str]:
        """The fields."""
        found = self.header.get("extFields") or {}
        return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}

    @property
    def remark(self) -> str:
        """The text of an answer."""
        return str(self.header.get("remark") or "")


def encode(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """Write a frame with a JSON header."""
    text = json.dumps(header, ensure_ascii=False).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


class RawClient:
    """One connection. What the broker asks is answered with nothing and kept in `heard`."""

    def __init__(self, address: str, key: Key | None = None, version: int = 513) -> None:
        """Connect to `host:port`; requests are signed when there is a key."""
        self._version = version
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._key = key
        self._numbers = itertools.count(1)
        self.heard: list[Frame] = []

    def __enter__(self) -> Self:
        """Use the connection for a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self._socket.close()

    def send(
        self, code: int, ext: Mapping[str, str], body: bytes = b"", *, one_way: bool = False
    ) -> int:
        """Send a request; return its number."""
        fields = dict(ext) if self._key is None else self._key.signed(ext, body)
        number = next(self._numbers)
        header = {
            "code": code,
            "language": "OTHER",
            "version": self._version,
            "opaque": number,
            "flag": ONE_WAY if one_way else 0,
            "extFields": fields,
            "serializeTypeCurrentRPC": "JSON",
        }
        self._socket.sendall(encode(header, body))
        return number

    def call(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Frame:
        """Ask, and wait for the answer. Raises OSError."""
        number = self.send(code, ext or {}, body)
        while True:
            frame = self.receive()
            if int(str(frame.header["flag"])) & RESPONSE:
                if frame.header["opaque"] == number:
                    return frame
            else:
                self._hear(frame)

    def receive(self) -> Frame:
        """Wait for a frame. Raises OSError."""
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        head = struct.unpack(">i", data[:4])[0] & 0xFFFFFF
        return Frame(json.loads(data[4 : 4 + head]), data[4 + head :], data)

    def _hear(self, frame: Frame) -> None:
        self.heard.append(frame)
        if not int(str(frame.header["flag"])) & ONE_WAY:
            answer = {
                "code": 0,
                "flag": RESPONSE,
                "opaque": frame.header["opaque"],
                "language": "OTHER",
                "version": 513,
                "serializeTypeCurrentRPC": "JSON",
            }
            self._socket.sendall(encode(answer))

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionError("the broker hung up")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
