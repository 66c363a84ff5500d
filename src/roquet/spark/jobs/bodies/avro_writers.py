"""Schemas that bodies in Avro were written by, found by the ids that stand in front of them.

A body begins with a zero byte and the id in four bytes, as Confluent's serializers have it. Schemas
come from files of a folder, which the driver reads once, or from a registry, which tasks ask for
each id once. A schema that nobody knows is a fault of the body. A registry that does not answer is
not: it ends the task, since the body may be good.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from roquet.base.clock import SystemClock, pause
from roquet.base.errors import Unreachable, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.base.clock import Clock

HEADER: Final = 5
FILES_MAX: Final = 1000
TEXT_MAX: Final = 1 << 20
"""Bytes of one schema."""
TOTAL_MAX: Final = 8 << 20
"""Bytes of all schemas of a folder: each task gets them."""
TRIES: Final = 5
WAIT_S: Final = 2.0
"""Between two tries to reach a registry."""
TIMEOUT_S: Final = 5.0
UNKNOWN_MAX: Final = 10_000
UNKNOWN_MS: Final = 10_000
"""For so long a registry is not asked again for a schema that it did not have."""
_FILE: Final = re.compile(r"([0-9]{1,10})\.(avsc|json)")
_NOT_FOUND: Final = 404
_OK: Final = 200


def identified(body: bytes) -> int:
    """Return the id in front of a body. Raises ValueError when there is none."""
    if len(body) < HEADER or body[0] != 0:
        raise ValueError("it does not begin with the id of a schema (a zero byte and four more)")
    return int.from_bytes(body[1:HEADER], "big")


def from_folder(given: str) -> tuple[tuple[int, str], ...]:
    """Return ids and schemas of the files `ID.avsc` in a folder. Raises UsageError."""
    folder = Path(given)
    found: dict[int, str] = {}
    total = 0
    try:
        for path in sorted(folder.iterdir()):
            if (named := _FILE.fullmatch(path.name)) is None:
                continue
            number, size = int(named[1]), path.stat().st_size
            total += size
            if number in found:
                raise UsageError(f"schemas: {given[:200]} has two files of the id {number}")
            if len(found) == FILES_MAX or size > TEXT_MAX or total > TOTAL_MAX:
                raise UsageError(
                    f"schemas: {given[:200]} has more than {FILES_MAX:,} files, {TEXT_MAX:,} bytes"
                    f" in one, or {TOTAL_MAX:,} in all"
                )
            found[number] = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"schemas: {given[:200]} cannot be read: {error}") from error
    if not found:
        raise UsageError(
            f"schemas: {given[:200]} has no file that is named by an id, as in 7.avsc; a registry"
            " is given as http://host:port"
        )
    return tuple(sorted(found.items()))


def registry_url(given: str) -> str:
    """Return the address of a registry, checked. Raises UsageError."""
    try:
        parts = urllib.parse.urlsplit(given)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    else:
        good = good and not (parts.username or parts.password or parts.query or parts.fragment)
    if not good or not given.isprintable() or " " in given:
        raise UsageError(
            f"schemas: {given[:200]!r} is no registry, as in http://host:8081; passwords are not"
            " taken here, since every plan would show them"
        )
    return given.rstrip("/")


class Known:
    """Schemas that were given with the job."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        """Take the schemas by their ids."""
        self._texts = texts

    def __call__(self, number: int) -> str:
        """Return a schema. Raises ValueError for one that is not known."""
        if number not in self._texts:
            raise ValueError(f"schema {number} is not in the folder of schemas")
        return self._texts[number]


class Registry:
    """Schemas of a registry, asked over HTTP."""

    def __init__(
        self, url: str, wait: Callable[[float], None] = pause, clock: Clock | None = None
    ) -> None:
        """Take its address; nothing is asked yet."""
        self._url = url
        self._wait = wait
        self._clock = clock or SystemClock()
        self._unknown: dict[int, int] = {}

    def __call__(self, number: int) -> str:
        """Return a schema, asking once more while the registry is away.

        Raises ValueError for one that it does not have, Unreachable when it does not answer.
        """
        since = self._unknown.get(number)
        if since is not None and self._clock.steady_ms() - since < UNKNOWN_MS:
            raise ValueError(f"the registry has no schema {number}")
        for left in reversed(range(TRIES)):
            try:
                page = self._page(f"/schemas/ids/{number}")
                if page is None:
                    break
                return _schema(number, page)
            except Unreachable as error:
                if left == 0:
                    raise Unreachable(
                        f"the registry of schemas at {self._url} does not answer as one ({error});"
                        f" schema {number} is needed, and nothing of this micro-batch is kept"
                        " without it: run the job again when it does"
                    ) from error
            self._wait(WAIT_S)
        if len(self._unknown) >= UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[number] = self._clock.steady_ms()
        raise ValueError(f"the registry has no schema {number}")

    def _page(self, path: str) -> bytes | None:
        """Return a page of the registry, None when there is none. Raises Unreachable."""
        import http.client  # noqa: PLC0415  (only this kind of body needs it)

        parts = urllib.parse.urlsplit(self._url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        try:
            connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
            try:
                connection.request("GET", parts.path + path, headers={"Accept": "application/json"})
                answer = connection.getresponse()
                page = answer.read(2 * TEXT_MAX + 1)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        if answer.status not in {_OK, _NOT_FOUND}:
            raise Unreachable(f"status {answer.status}")
        return page if answer.status == _OK else None


def _schema(number: int, page: bytes) -> str:
    """Return the schema in a registry's answer. Raises ValueError, Unreachable for no answer."""
    try:
        answer = json.loads(page)
    except (ValueError, RecursionError) as error:
        raise Unreachable("its answer is no JSON") from error
    if not isinstance(answer, dict):
        raise Unreachable("its answer is no JSON object")
    found = cast("dict[str, Any]", answer)
    if found.get("schemaType", "AVRO") != "AVRO":
        raise ValueError(f"schema {number} of the registry is of {str(found['schemaType'])[:50]}")
    if found.get("references"):
        raise ValueError(f"schema {number} of the registry has references, which are not followed")
    text = found.get("schema")
    if not isinstance(text, str):
        raise Unreachable("its answer has no schema")
    if len(text) > TEXT_MAX:
        raise ValueError(f"schema {number} of the registry is larger than {TEXT_MAX:,} bytes")
    return text
