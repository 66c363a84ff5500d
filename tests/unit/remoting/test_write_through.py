"""Answers go straight to the socket where nothing waits before them; the transport has the rest."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.remoting.writing import write_through

if TYPE_CHECKING:
    from collections.abc import Iterator


class Transport:
    """What the transport got, and what waits there."""

    def __init__(self) -> None:
        self.waiting = 0
        self.written: list[bytes] = []

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def _write(transport: Transport, fd: int | None, data: bytes) -> list[bytes]:
    write_through(cast("Any", transport), fd, data)
    return transport.written


def test_write_through_takes_everything_when_the_socket_has_room(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    assert _write(Transport(), ours.fileno(), b"answer") == []
    assert theirs.recv(100) == b"answer"


def test_write_through_leaves_what_the_socket_does_not_take_to_the_transport(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    data = os.urandom(8 * 1024 * 1024)
    (rest,) = _write(Transport(), ours.fileno(), data)
    assert 0 < len(rest) < len(data)
    got = b""
    while len(got) < len(data) - len(rest):
        got += theirs.recv(1 << 20)
    assert got + rest == data
    ours.send(b"x" * 8 * 1024 * 1024)
    assert _write(Transport(), ours.fileno(), b"full") == [b"full"]


def test_write_through_overtakes_nothing_that_waits_in_the_transport(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    transport = Transport()
    transport.waiting = 1
    assert _write(transport, ours.fileno(), b"second") == [b"second"]
    theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        theirs.recv(1)


def test_write_through_leaves_a_broken_or_wrapped_socket_to_the_transport(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    assert _write(Transport(), None, b"secret") == [b"secret"]
    theirs.close()
    assert _write(Transport(), ours.fileno(), b"gone") == [b"gone"]
