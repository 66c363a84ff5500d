"""The transport of a connection that a thread of the core serves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from roquet.base.overriding import override

if TYPE_CHECKING:
    from roquet._native import NetConnection


class Writer(Protocol):
    """Who writes, and has to know when the peer takes nothing."""

    def pause_writing(self) -> None:
        """Hear that it does not take what was written."""
        ...

    def resume_writing(self) -> None:
        """Hear that it does again."""
        ...


class NativeTransport(asyncio.Transport):
    """Writes to a connection that a thread serves, and stops its reading."""

    def __init__(self, net: NetConnection, connection: Writer) -> None:
        """Be open and read."""
        super().__init__()
        self._net = net
        self._connection: Writer | None = connection
        self._closing = False
        self._reading = True
        self._stuck = False

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing: the limits are those of the threads."""

    @override
    def get_write_buffer_size(self) -> int:
        """Bytes that are not in the socket's buffer yet, wherever they are."""
        return self._net.unsent()

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have whole frames written."""
        if self._net.write(data) and not self._stuck and self._connection is not None:
            self._stuck = True
            self._connection.pause_writing()

    @override
    def is_closing(self) -> bool:
        """Whether it is closed or is being closed."""
        return self._closing

    @override
    def close(self) -> None:
        """Close when everything is written."""
        self._closing = True
        self._net.close()

    @override
    def abort(self) -> None:
        """Close now."""
        self._closing = True
        self._net.abort()

    @override
    def is_reading(self) -> bool:
        """Whether it is read, as far as the loop is concerned."""
        return self._reading

    @override
    def pause_reading(self) -> None:
        """Read no further."""
        if self._reading:
            self._reading = False
            self._net.pause(paused=True)

    @override
    def resume_reading(self) -> None:
        """Go on."""
        if not self._reading:
            self._reading = True
            self._net.pause(paused=False)

    def drained(self) -> None:
        """Hear that the peer takes what is written again."""
        if self._stuck and self._connection is not None:
            self._stuck = False
            self._connection.resume_writing()

    def lost(self) -> None:
        """Let go of the connection: a cycle would keep the descriptors until it is collected."""
        self._connection = None
