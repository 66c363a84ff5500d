"""A connection without a loop, for worker processes that do one thing after the other."""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING, Self

from roquet.base.errors import BrokenFrame, OutcomeUnknown, Unreachable
from roquet.protocol.codes import request_name
from roquet.protocol.command import FLAG_ONE_WAY, FLAG_RESPONSE
from roquet.remoting.client import split_address
from roquet.remoting.codec import decode, encode
from roquet.remoting.tls import why_not_connected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.protocol.command import Command
    from roquet.remoting.tls import ClientTls

_READ_SIZE = 256 * 1024
_ASK = ~(FLAG_RESPONSE | FLAG_ONE_WAY)


class BlockingConnection:
    """One socket, one user at a time. Requests and late answers of the peer are dropped."""

    def __init__(
        self,
        address: str,
        *,
        connect_s: float = 3.0,
        tls: ClientTls | None = None,
        sign: Callable[[Command], Command] | None = None,
    ) -> None:
        """Connect to `host:port`. Raises Unreachable, UsageError."""
        self._sign = sign
        self.address = address
        self._partial = bytearray()
        self._buffer = memoryview(bytearray(_READ_SIZE))
        self._opaque = 0
        self._poll: select.poll | None = None
        self._codes: list[int] = []
        try:
            self._socket = _connect(address, connect_s, tls)
        except OSError as error:
            raise why_not_connected(address, error, uses_tls=tls is not None) from error
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

    def has_input(self) -> bool:
        """Whether there is something to read though nothing is waited for: mostly its end."""
        if not self._open:
            return True
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """End the connection."""
        self._open = False
        self._socket.close()

    def ask(self, command: Command, within_s: float) -> Command:
        """Ask and return the answer, all within `within_s`.

        Raises as `call` does; whatever is raised, an interrupt too, the connection is closed.
        """
        end_s = time.monotonic() + within_s
        (number,) = self.post((command,), within_s)
        try:
            while True:
                for answer in self._receive():
                    if answer.is_response and answer.opaque == number:
                        return answer
                # A time of 0 would not wait at all, which is another error than a time-out.
                self._socket.settimeout(max(1e-6, end_s - time.monotonic()))
        except TimeoutError:
            self.close()
            name, waited_s = request_name(command.code), max(0.01, round(within_s, 2))
            text = f"{self.address} did not answer {name} within {waited_s:g} s"
            raise OutcomeUnknown(text) from None
        except (OSError, BrokenFrame) as error:
            raise self._failed(error) from error
        except BaseException:
            self.close()
            raise

    def call(self, command: Command, timeout: float = 3.0) -> Command:
        """Ask and wait; `timeout` is seconds for each read and write.

        Raises Unreachable when nothing was sent, OutcomeUnknown when it was and no answer came;
        the connection is closed then, since a late answer would be taken for the next one's.
        """
        return self.take(self.post((command,), timeout), timeout)[0]

    def post(self, commands: Sequence[Command], timeout: float = 3.0) -> list[int]:
        """Send requests and do not wait; return the numbers by which `take` knows their answers.

        They have to be taken before others are sent, and be so few that the answers fit into the
        buffers between the two sides. Raises as `call` does.
        """
        if not self._open:
            raise Unreachable(f"the connection to {self.address} is closed")
        numbers: list[int] = []
        frames = bytearray()
        for command in commands:
            self._opaque = (self._opaque + 1) % 2**31
            numbers.append(self._opaque)
            signed = command if self._sign is None else self._sign(command)
            frames += encode(signed, opaque=self._opaque, flag=signed.flag & _ASK)
        self._codes = [command.code for command in commands]
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(frames)
        except OSError as error:
            raise self._failed(error) from error
        except BaseException:
            self.close()  # who knows how much of a frame went out
            raise
        return numbers

    def take(self, numbers: Sequence[int], timeout: float = 3.0) -> list[Command]:
        """Wait for the answers to what was posted, in that order. Raises OutcomeUnknown."""
        found: dict[int, Command] = {}
        wanted = frozenset(numbers)
        try:
            self._socket.settimeout(timeout)
            while len(found) < len(wanted):
                for answer in self._receive():
                    if answer.is_response and answer.opaque in wanted:
                        found[answer.opaque] = answer
        except (OSError, BrokenFrame) as error:
            raise self._failed(error) from error
        return [found[number] for number in numbers]

    def _failed(self, error: Exception) -> OutcomeUnknown:
        self.close()
        asked = ", ".join(map(request_name, dict.fromkeys(self._codes)))
        return OutcomeUnknown(f"{self.address} did not answer {asked}: {error}")

    def _receive(self) -> list[Command]:
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise ConnectionResetError("it closed the connection")
        if not self._partial:
            commands, used = decode(self._buffer[:size])
            self._partial += self._buffer[used:size]
            return commands
        self._partial += self._buffer[:size]
        commands, used = decode(self._partial)
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
