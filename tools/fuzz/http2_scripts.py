"""Scripts of HTTP/2 and gRPC for a flood: legal, odd, and at their ends broken.

Pieces that HTTP/2 allows, however odd, stand in front, each with a PING behind it whose answer is
the mark. A piece that ends the connection stands last.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from roquet.proxy import messages as pb
from tools.fuzz.flood import Piece, Script, drawn_of
from tools.fuzz.http2_breaks import BREAKS
from tools.fuzz.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_FLAG,
    RESET,
    SETTINGS,
    SETTINGS_ACK,
    WINDOW,
    frame,
    framed,
    headers,
    path_of,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

BODIES_EACH = 60
"""Requests of each method that are kept; one is drawn anew for each connection."""
STREAMING = ("ReceiveMessage", "PullMessage", "Telemetry")
HANGING_MAX = 4
"""Calls of a connection that may wait for messages."""
PIECES_MAX = 60
KINDS = (
    ("call", 30.0),
    ("good call", 6.0),
    ("lying length", 8.0),
    ("odd message", 8.0),
    ("odd headers", 1.0),
    ("split headers", 4.0),
    ("begun and reset", 4.0),
    ("settings", 5.0),
    ("pings", 6.0),
    ("windows", 6.0),
    ("empty data", 5.0),
    ("priorities", 6.0),
    ("unknown frames", 6.0),
    ("drip", 4.0),
)
AUTHORITIES = (
    "", "localhost", "127.0.0.1:8081", "[::1]:1", "a" * 300, "user:pass@host:1", "host:99999999",
    "%41", "a,b", "x:y:z", "..", "http://x/", "10.0.0.1:0, 10.0.0.2:0", "\u00e4", ":", "@",
)  # fmt: skip
AUTHORIZATIONS = (
    "", "MQv2-HMAC-SHA1", "MQv2-HMAC-SHA1 ", "=" * 500, "Basic eDp5",
    "MQv2-HMAC-SHA1 Signature=zz, Credential",
    "MQv2-HMAC-SHA1 Credential=fuzz, SignedHeaders=x, Signature=",
    "MQv2-HMAC-SHA1 Credential=/a/b/c, SignedHeaders=x-mq-date-time, Signature=00",
    "MQv2-HMAC-SHA1 Credential=" + "k" * 2000 + ", Signature=" + "f" * 40,
    "MQv2-HMAC-SHA1 " + ", ".join(["Credential=a"] * 200), "MQv2-HMAC-SHA1 Credential=\u00e4",
)  # fmt: skip
METADATA = (
    ("x-mq-date-time", "20260101T000000Z"), ("x-mq-date-time", "9" * 300), ("x-mq-language", "?"),
    ("x-mq-client-version", "9" * 500), ("x-mq-protocol", "v1"), ("x-mq-namespace", "n" * 1000),
    ("x-mq-channel-id", "-1"), ("grpc-timeout", "1n"), ("grpc-timeout", "99999999999H"),
    ("grpc-timeout", "x"), ("grpc-encoding", "gzip"), ("grpc-accept-encoding", ",,,,"),
    ("x-bin", "!!!!"), ("x-bin", "AAAA" * 200), ("te", "trailers"), ("user-agent", "u" * 900),
    ("accept", "*/*"), ("cookie", "a=b; c=d"), ("x-mq-client-id", "twice"),
)  # fmt: skip
TREES = (
    b"\x0a\x00" * 400,
    b"\x9a\x06\x01x" * 400,
    b"\xf3\x7f" * 90,
    b"\x0a\x80" * 300,
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" * 60,
    b"\x0d\x00\x00\x00\x00" * 100,
    b"\x0b" * 500,
    b"\x0a\xff\xff\xff\xff\x07",
    b"\xff" * 300,
    b"",
)
"""Wrong wire types, groups without end, unknown fields, lengths beyond the message."""


def nested(depth: int) -> bytes:
    """Return messages within messages."""
    data = b""
    for _ in range(depth):
        size, head = len(data), bytearray(b"\x0a")
        while size > 127:
            head.append(size & 127 | 128)
            size >>= 7
        data = bytes([*head, size]) + data
    return data


class Http2Scripts:
    """Draws scripts."""

    def __init__(
        self,
        rng: random.Random,
        drawn: Callable[[str], bytes],
        good: Callable[[], tuple[str, bytes]],
        identities: Sequence[str],
    ) -> None:
        """`drawn` makes a hostile request of a method, `good` one that is served."""
        self._rng = rng
        self._drawn = drawn
        self._good = good
        self._identities = identities
        self._names = sorted(pb.methods())
        self._bodies = {name: [drawn(name) for _ in range(BODIES_EACH)] for name in self._names}
        self._pings = itertools.count(1)
        self._stream = 1
        self._hanging = 0
        self._made: Mapping[str, Callable[[], tuple[bytes, int]]] = {
            "call": self._call,
            "good call": self._good_call,
            "lying length": self._lying,
            "odd message": self._odd_message,
            "odd headers": self._odd_headers,
            "split headers": self._split,
            "begun and reset": self._reset,
            "settings": self._settings,
            "pings": self._ping_flood,
            "windows": self._windows,
            "empty data": self._empty_data,
            "priorities": self._priorities,
            "unknown frames": self._unknown,
            "drip": self._drip,
        }

    def script(self) -> Script:
        """Draw what one connection says."""
        rng = self._rng
        name = rng.choice(self._names)
        self._bodies[name][rng.randrange(BODIES_EACH)] = self._drawn(name)
        self._stream, self._hanging = 1, 0
        pieces = [self._marked("greeting", *self._greeting())]
        for _ in range(rng.randrange(1, PIECES_MAX)):
            kind = drawn_of(rng, KINDS)
            pieces.append(self._marked(kind, *self._made[kind]()))
        if rng.random() < 0.6:
            kind = rng.choice(sorted(BREAKS))
            pieces.append(Piece(kind, *BREAKS[kind](rng, self._next())))
        return Script(pieces, reads_late=rng.random() < 0.1, ends_hard=rng.random() < 0.3)

    def _marked(self, kind: str, data: bytes, frames: int) -> Piece:
        """Have a PING behind a piece, whose answer says that all was read."""
        payload = b"mark" + struct.pack(">I", next(self._pings) & 0xFFFFFFFF)
        mark = frame(PING, 0, payload, 1)
        return Piece(kind, data + frame(PING, 0, payload), frames + 1, mark)

    def _next(self) -> int:
        found, self._stream = self._stream, self._stream + 2
        return found

    def _greeting(self) -> tuple[bytes, int]:
        rng = self._rng
        rows = [(4, rng.choice((0, 1, 65_535, 1 << 20, 2**31 - 1)))]
        rows += [(1, rng.choice((0, 4096, 1 << 20)))] * (rng.random() < 0.3)
        rows += [(2, rng.choice((0, 1)))] * (rng.random() < 0.3)
        data = PREFACE + frame(SETTINGS, 0, b"".join(struct.pack(">HI", *row) for row in rows))
        data += SETTINGS_ACK * (rng.random() < 0.9)
        return data + frame(WINDOW, 0, struct.pack(">I", rng.choice((1, 1 << 20, 2**30)))), 3

    # --- calls ---------------------------------------------------------------------------------

    def _metadata(self) -> list[tuple[str, str]]:
        rng = self._rng
        rows = [("x-mq-client-id", rng.choice(self._identities))]
        if rng.random() < 0.3:
            rows += rng.sample(METADATA, rng.randrange(1, 4))
        if rng.random() < 0.3:
            rows += [("authorization", rng.choice(AUTHORIZATIONS))] * rng.choice((1, 1, 1, 2))
        return rows

    def _method(self) -> str:
        """Draw a method; few calls of a connection wait for messages."""
        name = self._rng.choice(self._names)
        if name in STREAMING:
            if self._hanging >= HANGING_MAX:
                return "SendMessage"
            self._hanging += 1
        return name

    def _begin(self, name: str, stream: int, flags: int = END_HEADERS) -> bytes:
        return frame(HEADERS, stream, headers(path_of(name), self._metadata()), flags)

    def _data(self, stream: int, data: bytes, flags: int = END_STREAM) -> tuple[bytes, int]:
        """Cut data into frames, some of them padded."""
        rng, parts, frames = self._rng, list[bytes](), 0
        cuts = 1 if rng.random() < 0.6 else rng.randrange(2, 12)
        size = max(1, min(16_000, len(data) // cuts + 1))
        for at in range(0, max(len(data), 1), size):
            part, last = data[at : at + size], at + size >= len(data)
            flag = flags if last else 0
            if rng.random() < 0.2:
                padding = rng.randrange(0, 200)
                part, flag = bytes([padding]) + part + bytes(padding), flag | PADDED
            parts.append(frame(DATA, stream, part, flag))
            frames += 1
        return b"".join(parts), frames

    def _call(self) -> tuple[bytes, int]:
        name, stream = self._method(), self._next()
        body = self._rng.choice(self._bodies[name])
        data, frames = self._data(stream, framed(body))
        return self._begin(name, stream) + data, frames + 1

    def _good_call(self) -> tuple[bytes, int]:
        (name, body), stream = self._good(), self._next()
        rows = [("x-mq-client-id", self._identities[0])]
        data, frames = self._data(stream, framed(body))
        head = frame(HEADERS, stream, headers(path_of(name), rows), END_HEADERS)
        return head + data, frames + 1

    def _lying(self) -> tuple[bytes, int]:
        rng, name, stream = self._rng, self._method(), self._next()
        body = rng.choice(self._bodies[name])
        size = rng.choice((0, 1, len(body) + 1, max(0, len(body) - 1), 2**32 - 1, 2**31, 1 << 24))
        flag = rng.choice((0, 0, 1, 2, 255))
        message = bytes([flag]) + struct.pack(">I", size) + body
        message = rng.choice((message, message[:3], message + framed(b""), framed(b"") * 50, b""))
        data, frames = self._data(stream, message)
        return self._begin(name, stream) + data, frames + 1

    def _odd_message(self) -> tuple[bytes, int]:
        rng, name, stream = self._rng, self._method(), self._next()
        tree = rng.choice((*TREES, nested(rng.choice((50, 101, 400)))))
        data, frames = self._data(stream, framed(tree + rng.choice(self._bodies[name])[:2000]))
        return self._begin(name, stream) + data, frames + 1

    def _odd_headers(self) -> tuple[bytes, int]:
        """Begin calls that are none of ours: other paths, methods, types and authorities."""
        rng, parts, frames = self._rng, list[bytes](), 0
        for _ in range(rng.randrange(1, 8)):
            path = rng.choice(
                ("/", "*", "/x" * 900, "/a?b#c", "//", path_of("Nothing"), path_of("SendMessage"))
            )
            block = headers(
                path,
                self._metadata(),
                method=rng.choice(("GET", "POST", "OPTIONS", "CONNECT", "X" * 200)),
                authority=rng.choice(AUTHORITIES),
                kind=rng.choice(("application/grpc", "application/grpc+json", "text/html", "")),
                scheme=rng.choice(("http", "https", "ftp", "")),
            )
            parts.append(frame(HEADERS, self._next(), block, END_HEADERS | END_STREAM))
            frames += 1
        return b"".join(parts), frames

    def _split(self) -> tuple[bytes, int]:
        """Send headers in several frames, padded and with a priority."""
        rng, name, stream = self._rng, self._method(), self._next()
        block = headers(path_of(name), self._metadata())
        cut = rng.randrange(1, len(block))
        # More continuations than a block of its size can need end the connection.
        first, rest = block[:cut], block[cut:]
        data = frame(HEADERS, stream, struct.pack(">IB", 0, 255) + first, PRIORITY_FLAG)
        data += frame(CONTINUATION, stream, rest, END_HEADERS)
        more, frames = self._data(stream, framed(rng.choice(self._bodies[name])))
        return data + more, frames + 2

    def _reset(self) -> tuple[bytes, int]:
        rng, parts = self._rng, list[bytes]()
        count = rng.randrange(1, 7)
        for _ in range(count):
            stream = self._next()
            name = rng.choice(self._names)
            parts.append(self._begin(name, stream))
            parts.append(frame(RESET, stream, struct.pack(">I", rng.choice((0, 5, 8, 2**32 - 1)))))
        return b"".join(parts), 2 * count

    # --- frames that carry nothing ---------------------------------------------------------------

    def _settings(self) -> tuple[bytes, int]:
        rng, parts = self._rng, list[bytes]()
        count = rng.randrange(1, 60)
        for _ in range(count):
            row = rng.choice(
                ((1, 0), (1, 4096), (3, 0), (3, 100), (4, 0), (4, 65_535), (4, 2**31 - 1),
                 (5, 16_384), (5, 2**24 - 1), (6, 0), (6, 2**32 - 1), (99, 7), (0xFFFF, 2**32 - 1))
            )  # fmt: skip
            parts.append(frame(SETTINGS, 0, struct.pack(">HI", *row) * rng.choice((0, 1, 3))))
        return b"".join(parts), count

    def _ping_flood(self) -> tuple[bytes, int]:
        count = self._rng.randrange(1, 100)
        flags = self._rng.choice((0, 0, 0, 1, 0xFE))
        return frame(PING, 0, self._rng.randbytes(8), flags) * count, count

    def _windows(self) -> tuple[bytes, int]:
        """Open the connection's window by one byte again and again."""
        count = self._rng.randrange(1, 100)
        return frame(WINDOW, 0, struct.pack(">I", 1)) * count, count

    def _empty_data(self) -> tuple[bytes, int]:
        """Send data of no bytes before the request."""
        rng, name, stream = self._rng, self._method(), self._next()
        count = rng.randrange(1, 60)
        data = self._begin(name, stream) + frame(DATA, stream) * count
        more, frames = self._data(stream, framed(rng.choice(self._bodies[name])))
        return data + more, frames + count + 1

    def _priorities(self) -> tuple[bytes, int]:
        rng, parts = self._rng, list[bytes]()
        count = rng.randrange(1, 100)
        for _ in range(count):
            stream = rng.randrange(1, 1 << 20)
            on = stream ^ rng.randrange(1, 1 << 10)
            row = struct.pack(">IB", on | rng.choice((0, 1 << 31)), rng.randrange(256))
            parts.append(frame(PRIORITY, stream, row))
        return b"".join(parts), count

    def _unknown(self) -> tuple[bytes, int]:
        rng, parts = self._rng, list[bytes]()
        count = rng.randrange(1, 150)
        for _ in range(count):
            payload = rng.randbytes(rng.randrange(0, 60))
            flags = rng.randrange(256)
            parts.append(frame(rng.randrange(10, 256), rng.randrange(0, 2000), payload, flags))
        return b"".join(parts), count

    def _drip(self) -> tuple[bytes, int]:
        """Send a call byte by byte, and open its window so."""
        name, stream = self._method(), self._next()
        message = framed(self._rng.choice(self._bodies[name])[:100])
        parts = [frame(DATA, stream, message[at : at + 1]) for at in range(len(message))]
        parts += [frame(WINDOW, stream, struct.pack(">I", 1))] * 20
        parts.append(frame(DATA, stream, b"", END_STREAM))
        return self._begin(name, stream) + b"".join(parts), len(parts) + 1
