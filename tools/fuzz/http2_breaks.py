"""What ends a connection of HTTP/2: frames against its rules, and floods beyond its limits."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tools.fuzz.http2_frames import (
    ACK,
    AWAY,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PRIORITY_FLAG,
    PUSH,
    RESET,
    SETTINGS,
    WINDOW,
    frame,
    headers,
    path_of,
    rows,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

Break = tuple[bytes, int]
_SEND = path_of("SendMessage")
_RESET = struct.pack(">I", 8)


def _open(stream: int, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, stream, headers(_SEND, [("x-mq-client-id", "raw")]), flags)


def _rapid_reset(rng: random.Random, stream: int) -> Break:
    count = rng.randrange(50, 1500)
    streams = range(stream, stream + 2 * count, 2)
    return b"".join(_open(at) + frame(RESET, at, _RESET) for at in streams), 2 * count


def _empty_streams(rng: random.Random, stream: int) -> Break:
    count = rng.randrange(100, 1500)
    streams = range(stream, stream + 2 * count, 2)
    return b"".join(_open(at, END_HEADERS | END_STREAM) for at in streams), count


def _continuations(rng: random.Random, stream: int) -> Break:
    count = rng.randrange(10, 3000)
    part = frame(CONTINUATION, stream, rng.choice((b"", rows([("a", "b")]))))
    return _open(stream, 0) + part * count, count + 1


def _bomb(rng: random.Random, stream: int) -> Break:
    """Put one long header into the table and name it thousands of times."""
    kept = b"\x40\x01a\x7e" + b"v" * 126
    block = headers(_SEND) + kept + b"\xbe" * rng.randrange(100, 12_000)
    return frame(HEADERS, stream, block, END_HEADERS), 1


def _bad_block(rng: random.Random, stream: int) -> Break:
    """Break HPACK, or the rules for names and values of headers."""
    good = headers(_SEND)
    block = rng.choice(
        (
            b"\x80",
            b"\xff" * 20,
            b"\xfe",
            good + b"\x3f\xe1\xff\xff\xff\x0f",
            good + b"\x20",
            good + b"\x00\x83\xff\xff\xff\x01x",
            good + b"\x00\x84\x00\x00\x00\x00\x01x",
            good + b"\x00\x7f\xff\xff\xff\xff\xff\x0f",
            good[: rng.randrange(len(good))],
            good + rows([("Upper", "x")]),
            good + rows([("connection", "close")]),
            good + rows([("te", "gzip")]),
            good + rows([("transfer-encoding", "chunked")]),
            good + rows([(":path", "/again")]),
            good + rows([(":unknown", "x")]),
            rows([("x", "first")]) + good,
            good + rows([("a\r\nb", "c\r\nd")]),
            good + rows([("", "")]),
            good + rows([("x-mq-language", "\x7f")]),
            good + rows([("content-length", "3"), ("content-length", "x")]),
            rows([("x", "y")]),
            b"",
            rng.randbytes(rng.randrange(1, 400)),
        )
    )
    flags = rng.choice((END_HEADERS, END_HEADERS | END_STREAM))
    return frame(HEADERS, stream, block, flags), 1


def _trailers(rng: random.Random, stream: int) -> Break:
    """Send trailers that are none."""
    last = frame(HEADERS, stream, rows([(":path", "/x")]), END_HEADERS | rng.choice((0, 1)))
    return _open(stream) + frame(DATA, stream, b"abc") + last, 3


def _wrong_place(rng: random.Random, stream: int) -> Break:
    """Send a frame where it may not stand."""
    return rng.choice(
        (
            frame(DATA, 0, b"x"),
            frame(DATA, stream, b"x"),
            frame(DATA, 2, b"x"),
            frame(HEADERS, 0, headers(_SEND), END_HEADERS),
            frame(HEADERS, 2, headers(_SEND), END_HEADERS),
            frame(RESET, stream, _RESET),
            frame(RESET, 0, _RESET),
            frame(WINDOW, stream, struct.pack(">I", 1)),
            frame(SETTINGS, 1),
            frame(PING, 1, bytes(8)),
            frame(AWAY, 1, bytes(8)),
            frame(CONTINUATION, stream, b"", END_HEADERS),
            frame(PRIORITY, 0, bytes(5)),
            frame(PUSH, stream, struct.pack(">I", 2) + headers(_SEND), END_HEADERS),
        )
    ), 1


def _wrong_size(rng: random.Random, stream: int) -> Break:
    """Send frames whose lengths no frame of their kind has."""
    return rng.choice(
        (
            frame(SETTINGS, 0, bytes(5)),
            frame(SETTINGS, 0, bytes(6), ACK),
            frame(PING, 0, bytes(7)),
            frame(WINDOW, 0, bytes(3)),
            frame(RESET, stream, bytes(3)),
            frame(PRIORITY, stream, bytes(4)),
            frame(AWAY, 0, bytes(3)),
            frame(HEADERS, stream, bytes(2), END_HEADERS | PRIORITY_FLAG),
            frame(HEADERS, stream, b"\xff" + headers(_SEND)[:20], END_HEADERS | PADDED),
            _open(stream) + frame(DATA, stream, b"\xff" + bytes(10), PADDED),
            _open(stream) + frame(DATA, stream, bytes(20_000)),
            b"\xff\xff\xff\x00\x00" + struct.pack(">I", stream) + bytes(3000),
            frame(HEADERS, stream, bytes(17_000), END_HEADERS),
        )
    ), 1


def _bad_value(rng: random.Random, stream: int) -> Break:
    """Send settings and windows that may not be."""
    row = rng.choice(((2, 2), (4, 2**31), (5, 16_383), (5, 2**24), (8, 2)))
    return rng.choice(
        (
            (frame(SETTINGS, 0, struct.pack(">HI", *row)), 1),
            (frame(WINDOW, 0, b"\x7f\xff\xff\xff") * 3, 3),
            (frame(WINDOW, 0, bytes(4)), 1),
            (_open(stream) + frame(WINDOW, stream, b"\x7f\xff\xff\xff") * 2, 3),
            (_open(stream) + frame(WINDOW, stream, bytes(4)), 2),
            (frame(HEADERS, stream, struct.pack(">IB", stream, 1) + headers(_SEND), 36), 1),
            (_open(stream) + _open(stream), 2),
        )
    )


def _leaves(rng: random.Random, stream: int) -> Break:
    """Say goodbye with calls under way, and go on."""
    away = frame(AWAY, 0, struct.pack(">II", rng.choice((0, 1, 2**31 - 1)), 0) + b"bye")
    return _open(stream) + away + _open(stream + 2) + away, 4


def _torn(rng: random.Random, stream: int) -> Break:
    """Stop within a frame, a block of headers, or a message."""
    return rng.choice(
        (
            frame(HEADERS, stream, headers(_SEND), END_HEADERS)[: rng.randrange(1, 60)],
            _open(stream, 0),
            _open(stream) + frame(DATA, stream, b"\x00\x00\x00\x7f\xff" + bytes(900)),
            _open(stream) + frame(DATA, stream, bytes(30))[: rng.randrange(1, 30)],
        )
    ), 1


def _noise(rng: random.Random, stream: int) -> Break:
    count = rng.randrange(1, 200)
    noise = b"".join(
        frame(
            rng.randrange(12), rng.randrange(stream + 2), rng.randbytes(rng.randrange(60)),
            rng.randrange(256),
        )
        for _ in range(count)
    )  # fmt: skip
    return rng.choice(((noise, count), (rng.randbytes(rng.randrange(1, 5000)), 1)))


def _windows_of_closed(rng: random.Random, stream: int) -> Break:
    """Send windows and data for streams that have ended."""
    done = _open(stream, END_HEADERS | END_STREAM)
    late = rng.choice((frame(WINDOW, stream, struct.pack(">I", 1)), frame(DATA, stream, b"late")))
    count = rng.randrange(1, 2000)
    return done + late * count, count + 1


BREAKS: Mapping[str, Callable[[random.Random, int], Break]] = {
    "bad block": _bad_block,
    "bad trailers": _trailers,
    "bad value": _bad_value,
    "continuation flood": _continuations,
    "empty streams": _empty_streams,
    "ended streams": _windows_of_closed,
    "goodbye": _leaves,
    "header bomb": _bomb,
    "noise": _noise,
    "rapid reset": _rapid_reset,
    "torn": _torn,
    "wrong place": _wrong_place,
    "wrong size": _wrong_size,
}
