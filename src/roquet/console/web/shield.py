"""What every request passes first: its host, its size, its time; and the headers of answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from roquet.console.config import ConsoleConfig, Limits

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_NO_STORE = (b"cache-control", b"no-store")


class Shield:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, config: ConsoleConfig, limits: Limits) -> None:
        """Guard this one."""
        self._app = app
        self._root = config.root_path
        self._limits = limits
        named = tuple(it.lower() for it in config.hosts)
        self._hosts = (*_LOOPBACK, *named) if named or config.is_loopback else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer that it cannot be."""
        if scope["type"] != "http":
            return
        guarded = _Answer(send, is_static=False)
        wrong = self._wrong(scope)
        if wrong is not None:
            text, status = wrong
            await PlainTextResponse(text + "\n", status)(scope, receive, guarded.send)
            return
        scope = {**scope, "path": self._path(scope["path"])}
        guarded.is_static = scope["path"].startswith("/static/")
        try:
            body = await self._whole(scope, receive)
        except TimeoutError:
            text = "the request took too long\n"
            await PlainTextResponse(text, 408)(scope, receive, guarded.send)
            return
        if body is None:
            text = f"a request has at most {self._limits.body} bytes\n"
            await PlainTextResponse(text, 413)(scope, receive, guarded.send)
            return
        await self._app(scope, _Given(body, receive).receive, guarded.send)

    def _wrong(self, scope: Scope) -> tuple[str, int] | None:
        """Return why a request is not looked at, and the status."""
        if self._hosts:
            # A page elsewhere whose name is made to point here must not reach us (DNS rebinding).
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
            name, _, port = host.rpartition(":")
            bare = name if port.isdigit() and name else host
            if bare not in self._hosts:
                return "this console is not served under that name; --host NAME allows one", 421
        if not scope["path"].isprintable():
            return "the path has control characters", 400
        return None

    def _path(self, path: str) -> str:
        """Return a path below the root, whether or not the proxy has taken the prefix away."""
        if self._root and (path == self._root or path.startswith(self._root + "/")):
            return path[len(self._root) :] or "/"
        return path

    async def _whole(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body, None when it is too large. Raises TimeoutError."""
        if scope["method"] in ("GET", "HEAD"):
            return b""
        found = bytearray()
        async with asyncio.timeout(self._limits.request_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return bytes(found)
                found += message.get("body", b"")
                if len(found) > self._limits.body:
                    return None
                if not message.get("more_body", False):
                    return bytes(found)


class _Given:
    """Gives a body that is there already, then what the connection says."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def receive(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Answer:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send, *, is_static: bool) -> None:
        self._send = send
        self.is_static = is_static

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", []), *_HEADERS]
            headers.append((b"cache-control", b"max-age=3600") if self.is_static else _NO_STORE)
            message = {**message, "headers": headers}
        await self._send(message)
