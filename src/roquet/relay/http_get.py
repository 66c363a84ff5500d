"""One HTTP GET over asyncio's streams: all that asking a configuration server takes."""

from __future__ import annotations

import asyncio
import os
from urllib.parse import urlsplit

from roquet.base.errors import RoquetError

HEAD_SIZE_MAX = 16 * 1024
_READ = 64 * 1024


class HttpError(RoquetError):
    """The question was not answered by a 200 with a whole body."""


async def http_get(url: str, timeout_s: float, size_max: int) -> bytes:
    """Return the body at `url` (`http://host[:port]/path`). Raises HttpError.

    HTTP/1.0 is spoken, so that no answer comes in chunks; redirects are not followed.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    asked = f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: application/json\r\n\r\n"
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=HEAD_SIZE_MAX)
            try:
                writer.write(asked.encode("ascii", "replace"))
                return await _answer(reader, size_max)
            finally:
                writer.close()
    except TimeoutError:
        raise HttpError(f"{url} did not answer within {timeout_s:g} s") from None
    except asyncio.IncompleteReadError as error:
        raise HttpError(f"{url} closed the connection in the middle of its answer") from error
    except asyncio.LimitOverrunError as error:
        raise HttpError(f"{url} sends no HTTP head within {HEAD_SIZE_MAX} bytes") from error
    except OSError as error:
        raise HttpError(f"{url}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return in words why a connection could not be had.

    The loop's own text for a refused connection names the call that failed, not why.
    """
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


async def _answer(reader: asyncio.StreamReader, size_max: int) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    words = head[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise HttpError("the answer is not HTTP")
    if words[1] != "200":
        raise HttpError(f"the answer is {' '.join(words[1:])[:80]}")
    fields = {
        name.strip().lower(): value.strip()
        for name, colon, value in (line.partition(":") for line in head[1:])
        if colon
    }
    if "chunked" in fields.get("transfer-encoding", "").lower():
        raise HttpError("the answer comes in chunks, which HTTP/1.0 does not know")
    length = fields.get("content-length")
    if length is None:
        return await _until_end(reader, size_max)
    if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= size_max):
        raise HttpError(f"the answer has {length[:20]} bytes: the limit is {size_max}")
    return await reader.readexactly(int(length))


async def _until_end(reader: asyncio.StreamReader, size_max: int) -> bytes:
    body = bytearray()
    while chunk := await reader.read(_READ):
        body += chunk
        if len(body) > size_max:
            raise HttpError(f"the answer has more than {size_max} bytes")
    return bytes(body)
