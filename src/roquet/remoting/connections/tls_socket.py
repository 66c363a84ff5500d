"""TLS between the socket of an accepted connection and the connection: the core seals and opens.

`accept_tls` is the one way in, and `go_on_with` that of a connection which a thread gives back. A
port whose files the core cannot use has an OpenSSL context instead (`remoting.tls`), and the loop
does the same with it.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

from roquet.base.errors import RoquetError
from roquet.base.overriding import override
from roquet.remoting.tls import HANDSHAKE_S, SHUTDOWN_S

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from roquet._native import RemotingTls, TlsSession
    from roquet.remoting.connections.connection import Connection

SEALED_SIZE = 128 * 1024
"""Sealed bytes read at a time."""
_HAS_OUTPUT, _IS_HANDSHAKING, _IS_OVER = 1, 2, 4


class HandshakeError(RoquetError):
    """No TLS could be agreed on."""


async def accept_tls(
    accepted: socket.socket,
    connection: Connection,
    context: RemotingTls | ssl.SSLContext,
    buffer: memoryview,
) -> None:
    """Agree on TLS and open `connection` behind it. Raises HandshakeError and OSError.

    `buffer` is lent by the loop's thread to one read after the other.
    """
    loop = asyncio.get_running_loop()
    if isinstance(context, ssl.SSLContext):
        try:
            await loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ssl.SSLError as error:
            raise HandshakeError((error.reason or "no reason given").lower()) from error
        return
    door = TlsSocket(connection, context.session(), buffer)
    await loop.connect_accepted_socket(lambda: door, accepted)
    await door.agreed(HANDSHAKE_S)


async def go_on_with(
    session: TlsSession, accepted: socket.socket, connection: Connection, buffer: memoryview
) -> None:
    """Open `connection` behind TLS that somebody else has agreed on. Raises OSError."""
    door = TlsSocket(connection, session, buffer, has_agreed=True)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: door, accepted)


class TlsSocket(asyncio.Transport, asyncio.BufferedProtocol):
    """A transport to its connection, a protocol to the socket's transport.

    Invariant: the connection is opened once the handshake is done, and what `_session` has to send
    is written before anything else is.
    """

    __slots__ = ("_buffer", "_connection", "_is_open", "_raw", "_session", "_waiting", "_why")

    def __init__(
        self,
        connection: Connection,
        session: TlsSession,
        buffer: memoryview,
        *,
        has_agreed: bool = False,
    ) -> None:
        """Be ready for `connection_made`; `has_agreed`: the handshake is done."""
        super().__init__()
        self._connection: Connection | None = connection
        self._session = session
        self._buffer = buffer
        self._raw: asyncio.Transport | None = None
        self._is_open = has_agreed
        self._waiting: asyncio.Future[None] | None = None
        self._why = "the peer has gone"
        """Why there is no handshake, once there will be none."""

    async def agreed(self, within_s: float) -> None:
        """Wait for the end of the handshake. Raises HandshakeError."""
        if self._is_open:
            return
        if self._raw is None or self._raw.is_closing():
            raise HandshakeError(self._why)
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(within_s):
                await self._waiting
        except TimeoutError:
            raise HandshakeError(f"not within {within_s:g} s") from None
        finally:
            self._waiting = None
            if not self._is_open:
                self.abort()

    # --- the socket's side -----------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._raw = transport  # type: ignore[assignment]  # uvloop's are none by inheritance
        if self._is_open and self._connection is not None:
            self._connection.connection_made(self)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the buffer; what it gets is opened before anybody else reads."""
        del sizehint
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """Open what was read, and give it to the connection."""
        raw, connection = self._raw, self._connection
        if raw is None or connection is None:
            return
        try:
            plain, flags = self._session.take(self._buffer[:nbytes])
        except ValueError as error:
            self._fail(str(error))
            return
        if flags & _HAS_OUTPUT:
            raw.write(self._session.output())
        if not self._is_open and not flags & _IS_HANDSHAKING:
            self._is_open = True
            connection.connection_made(self)
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)
        if plain:
            connection.received(memoryview(plain))
        if flags & _IS_OVER:
            connection.close("")

    @override
    def eof_received(self) -> bool:
        """Close: nobody half-closes a RocketMQ connection."""
        return False

    @override
    def pause_writing(self) -> None:
        """Tell the connection that the peer takes no more."""
        if self._is_open and self._connection is not None:
            self._connection.pause_writing()

    @override
    def resume_writing(self) -> None:
        """Tell the connection that it does again."""
        if self._is_open and self._connection is not None:
            self._connection.resume_writing()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection, or who waits for the handshake."""
        self._raw = None
        connection, self._connection = self._connection, None  # it refers to this transport
        if self._is_open and connection is not None:
            connection.connection_lost(exc)
        self._refuse()

    def _fail(self, why: str) -> None:
        """Send the peer what is wrong, and close."""
        raw, connection = self._raw, self._connection
        assert raw is not None, "only while it is open"
        assert connection is not None, "as long as there is a transport"
        raw.write(self._session.output())
        if self._is_open:
            connection.close(f"broken TLS: {why}")
        self._why = why
        self._refuse()
        raw.close()

    def _refuse(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(HandshakeError(self._why))

    # --- the connection's side -------------------------------------------------------------

    @override
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport says; `sslcontext` is the session."""
        if name == "sslcontext":
            return self._session
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set those of the socket's transport: sealed bytes are hardly more."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    @override
    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have bytes sealed and written."""
        if self._raw is not None:
            self._raw.write(self._session.seal(data))

    @override
    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Have several pieces sealed and written."""
        if self._raw is not None:
            self._raw.writelines([self._session.seal(data) for data in list_of_data])

    @override
    def is_closing(self) -> bool:
        """Whether it is closed or is being closed."""
        return self._raw is None or self._raw.is_closing()

    @override
    def close(self) -> None:
        """Close when everything is written, and say so to the peer."""
        if self._raw is not None and not self._raw.is_closing():
            self._raw.write(self._session.farewell())
            self._raw.close()

    @override
    def abort(self) -> None:
        """Close now."""
        if self._raw is not None:
            self._raw.abort()

    @override
    def is_reading(self) -> bool:
        """Whether the socket is read."""
        return self._raw is not None and self._raw.is_reading()

    @override
    def pause_reading(self) -> None:
        """Read no further."""
        if self._raw is not None:
            self._raw.pause_reading()

    @override
    def resume_reading(self) -> None:
        """Go on."""
        if self._raw is not None:
            self._raw.resume_reading()
