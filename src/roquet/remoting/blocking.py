"""A connection without a loop, for worker processes that do one thing after the other."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Self

from roquet.base.errors import BrokenFrame, OutcomeUnknown, Unreachable
from roquet.protocol.command import FLAG_ONE_WAY, FLAG_RESPONSE
from roquet.remoting.client import split_address
from roquet.remoting.codec import FRAME_SIZE_MAX, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command
    from roquet.remoting.tls import ClientTls

_ASK = ~(FLAG_RESPONSE | FLAG_ONE_WAY)


class BlockingConnection:
    """One socket, one call at a time. Requests and late answers of the peer are dropped."""

    def __init__(
        self,
        address: str,
        *,
        connect_s: float = 3.0,
        frame_size_max: int = FRAME_SIZE_MAX,
        tls: ClientTls | None = None,
        sign: Callable[[Command], Command] | None = None,
    ) -> None:
        """Connect to `host:port`. Raises Unreachable, UsageError."""
        self._sign = sign
        self.address = address
        self._frame_size_max = frame_size_max
        self._partial = bytearray()
        self._opaque = 0
        try:
            self._socket = _connect(address, connect_s, tls)
        except OSError as error:
            raise Unreachable(f"{address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether another call may be tried; after a failed one it may not."""
        return self._open

    def close(self) -> None:
        """End the connection."""
        self._open = False
        self._socket.close()

    def call(self, command: Command, timeout: float = 3.0) -> Command:
        """Ask and wait; `timeout` is seconds for each read and write.

        Raises Unreachable when nothing was sent, OutcomeUnknown when it was and no answer came;
        the connection is closed then, since a late answer would be taken for the next one's.
        """
        if not self._open:
            raise Unreachable(f"the connection to {self.address} is closed")
        self._opaque = (self._opaque + 1) % 2**31
        self._socket.settimeout(timeout)
        if self._sign is not None:
            command = self._sign(command)
        try:
            self._socket.sendall(encode(command, opaque=self._opaque, flag=command.flag & _ASK))
            while True:
                for answer in self._receive():
                    if answer.is_response and answer.opaque == self._opaque:
                        return answer
        except (OSError, BrokenFrame) as error:
            self.close()
            raise OutcomeUnknown(
                f"{self.address} did not answer request {command.code}: {error}"
            ) from error

    def _receive(self) -> list[Command]:
        data = self._socket.recv(256 * 1024)
        if not data:
            raise ConnectionResetError("it closed the connection")
        self._partial += data
        commands, used = decode(self._partial, self._frame_size_max)
        del self._partial[:used]
        return commands


def _connect(address: str, within_s: float, tls: ClientTls | None) -> socket.socket:
    host, port = split_address(address)
    plain = socket.create_connection((host, port), timeout=within_s)
    if tls is None:
        return plain
    try:
        return tls.context().wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise
