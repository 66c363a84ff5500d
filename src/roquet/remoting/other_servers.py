"""What listens at an address whose server does not answer as was hoped: asked once, to explain."""

from __future__ import annotations

import socket
import time

from roquet.base.errors import Unreachable
from roquet.protocol.hosts import split_address

_QUESTION = b"GET / HTTP/1.0\r\n\r\n"
"""Web servers answer it, and most others complain in words of their own or close."""
_READ_MAX = 64
_SHOWN_MAX = 24
_HTTP2_SETTINGS = 4
_HTTP2_HEAD = 9


class WrongServer(Unreachable):
    """Another kind of server listens at the address: trying again is in vain."""


def no_name_server(address: str) -> WrongServer:
    """Return the error for a server that speaks the protocol and has no routes."""
    return WrongServer(
        f"{address} does not answer as a name server does; is it a broker? The address of a name"
        " server is wanted, which usually has port 9876"
    )


def why_no_frames(address: str, within_s: float = 1.0) -> WrongServer | None:
    """Look who is at `host:port` that answered no frame; None when nothing else is recognized.

    It blocks for `within_s` at most, and raises nothing: it is asked after a failure alone.
    """
    host, port = split_address(address)
    said = b""
    try:
        with socket.create_connection((host, port), within_s) as peer:
            end = time.monotonic() + within_s
            peer.sendall(_QUESTION)
            while len(said) < _HTTP2_HEAD and (left_s := end - time.monotonic()) > 0:
                peer.settimeout(left_s)
                more = peer.recv(_READ_MAX)
                if not more:
                    break
                said += more
    except OSError:
        pass  # what it said before counts
    kind = recognized(said)
    if kind is None:
        return None
    return WrongServer(
        f"{address} is {kind}: the address of a name server is wanted, which usually has port 9876"
    )


def recognized(said: bytes) -> str | None:
    """Return what a server is by the first bytes that it said, None when they tell nothing."""
    if said.startswith(b"HTTP/"):
        return "a web server's (HTTP) port"
    is_http2 = len(said) >= _HTTP2_HEAD and said[3] == _HTTP2_SETTINGS and not any(said[5:9])
    if is_http2:
        return "a port for HTTP/2, as of gRPC"
    line = said.splitlines()[0] if said else b""
    if len(line) > 3 and line.isascii() and line.decode("ascii").isprintable():
        return f"another kind of server, which answers {line[:_SHOWN_MAX].decode('ascii')!r}"
    return None
