"""Frames of HTTP/2 and blocks of headers, made by hand: no library that would correct them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from roquet.proxy import messages as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, AWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIORITY_FLAG, ACK = 1, 4, 8, 32, 1


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """Return a frame."""
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


SETTINGS_ACK = frame(SETTINGS, 0, flags=ACK)


def text(value: str) -> bytes:
    """Return a text of HPACK with its length, not compressed."""
    data = value.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, found = len(data) - 127, bytearray([127])
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest]) + data


def rows(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Return a block of literals that no table keeps."""
    return b"".join(b"\x00" + text(name) + text(value) for name, value in pairs)


def headers(
    path: str,
    more: Sequence[tuple[str, str]] = (),
    *,
    method: str = "POST",
    authority: str = "localhost",
    kind: str = "application/grpc",
    scheme: str = "http",
) -> bytes:
    """Return the block of headers of a call."""
    first = [(":method", method), (":scheme", scheme), (":path", path), (":authority", authority)]
    return rows([*first, ("content-type", kind), *more])


def path_of(method: str) -> str:
    """Return the path of a method."""
    return f"/{pb.SERVICE}/{method}"


def framed(message: bytes) -> bytes:
    """Return a message as gRPC frames it."""
    return b"\x00" + struct.pack(">I", len(message)) + message
