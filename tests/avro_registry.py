"""A registry of schemas over HTTP, and bodies in Avro with an id of one in front."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import threading
from typing import TYPE_CHECKING, Any

import fastavro

from roquet.base.overriding import override

if TYPE_CHECKING:
    from collections.abc import Iterator


def body(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    out.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


class Web(http.server.BaseHTTPRequestHandler):
    """A registry with what a test gives it."""

    pages: dict[str, tuple[int, bytes]]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, page = self.pages.get(self.path, (404, b'{"error_code": 40403}'))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(page)

    @override
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
        """Say nothing."""


@contextlib.contextmanager
def registry(pages: dict[str, tuple[int, bytes]]) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    kind = type("Pages", (Web,), {"pages": pages, "asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(schema: Any, **more: Any) -> tuple[int, bytes]:
    return 200, json.dumps({"schema": json.dumps(schema), **more}).encode()
