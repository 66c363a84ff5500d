"""A client of HTTP/2 that sends whatever frames a test wants, and reads what comes."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
from typing import TYPE_CHECKING, Self

from tools.fuzz import http2_frames

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CALM = 11
"""The reason ENHANCE_YOUR_CALM."""


frame = http2_frames.frame


def headers(path: str, *more: tuple[str, str]) -> bytes:
    """Return the block of a call's headers, each a literal that no table keeps."""
    return http2_frames.headers(path, more)


@dataclasses.dataclass
class Peer:
    """One connection."""

    link: socket.socket
    _rest: bytes = b""

    @classmethod
    @contextlib.contextmanager
    def connect(
        cls,
        port: int,
        *,
        greets: bool = True,
        first: bytes = b"",
        tls: ssl.SSLContext | None = None,
        source: str = "127.0.0.1",
    ) -> Iterator[Self]:
        """Connect, perhaps from an address of one's own, and greet as a client of HTTP/2 does."""
        with contextlib.ExitStack() as stack:
            link = stack.enter_context(
                socket.create_connection(
                    ("127.0.0.1", port), timeout=20, source_address=(source, 0)
                )
            )
            link.sendall(first)
            if tls is not None:
                link = stack.enter_context(tls.wrap_socket(link, server_hostname="127.0.0.1"))
            peer = cls(link)
            if greets:
                peer.send(PREFACE, frame(SETTINGS, 0))
                # The server's windows hold once its settings are acknowledged.
                assert peer.until(SETTINGS) is not None
                peer.send(frame(SETTINGS, 0, flags=ACK))
            yield peer

    def send(self, *frames: bytes) -> None:
        """Send bytes; a server may have hung up by now."""
        with contextlib.suppress(ConnectionError):
            self.link.sendall(b"".join(frames))

    def read(self) -> tuple[int, int, int, bytes] | None:
        """Return the next frame: kind, flags, stream, payload; None at the end."""
        while len(self._rest) < 9 or len(self._rest) < 9 + int.from_bytes(self._rest[:3], "big"):
            try:
                chunk = self.link.recv(1 << 16)
            except ConnectionError:
                return None
            if not chunk:
                return None
            self._rest += chunk
        size = int.from_bytes(self._rest[:3], "big")
        kind, flags = self._rest[3], self._rest[4]
        stream = struct.unpack(">I", self._rest[5:9])[0]
        payload, self._rest = self._rest[9 : 9 + size], self._rest[9 + size :]
        return kind, flags, stream, payload

    def until(self, kind: int) -> bytes | None:
        """Return the payload of the next frame of a kind; None when the connection ends before."""
        while (found := self.read()) is not None:
            if found[0] == kind:
                return found[3]
        return None
