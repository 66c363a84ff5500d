"""The configuration server's answer: which inner servers there are; read strictly or not at all."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, Any, cast

import msgspec

from roquet.base.errors import UsageError
from roquet.relay.codes import ID_MAX
from roquet.store.tables.files import JsonFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ANSWER_SIZE_MAX = 64 * 1024 * 1024
"""Bytes; a larger answer is refused."""
_TEXT_MAX = 255

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "The inner servers of a relay",
    "type": "object",
    "required": ["version", "servers"],
    "additionalProperties": False,
    "properties": {
        "version": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        "servers": {
            "type": "array",
            "description": "Ids are unique.",
            "items": {
                "type": "object",
                "required": ["id", "type"],
                "additionalProperties": False,
                "properties": {
                    "id": {"type": "integer", "minimum": 1, "maximum": ID_MAX},
                    "type": {"type": "integer", "minimum": 1, "maximum": ID_MAX},
                    "host": {"type": "string", "minLength": 1, "maxLength": _TEXT_MAX},
                    "port": {"type": "integer", "minimum": 1, "maximum": 65535},
                    "name": {"type": "string", "maxLength": _TEXT_MAX},
                },
                "dependentRequired": {"host": ["port"], "port": ["host"]},
                "description": "Without host and port the server dials the relay.",
            },
        },
    },
}
"""The published JSON schema; unique ids are beyond what a schema can say."""


class ServersError(UsageError):
    """An answer that breaks the schema; the text names the offending entry."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One inner server as it is configured. Without `host` it dials the relay."""

    id: int
    type: int
    host: str = ""
    port: int = 0
    name: str = ""

    def same_place(self, other: Entry) -> bool:
        """Whether a link to one is a link to the other."""
        return (self.type, self.host, self.port) == (other.type, other.host, other.port)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerList:
    """A whole answer."""

    version: int
    servers: Mapping[int, Entry]


def parse(data: bytes, servers_max: int) -> ServerList:
    """Read an answer. Raises ServersError."""
    if len(data) > ANSWER_SIZE_MAX:
        raise ServersError(f"an answer of {len(data)} bytes: the limit is {ANSWER_SIZE_MAX}")
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ServersError(f"the answer is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ServersError("the answer is no JSON object")
    answer = cast("dict[str, Any]", found)
    _only(answer, {"version", "servers"}, "the answer")
    version = _integer(answer, "version", 0, 2**63 - 1, "the answer")
    listed = answer.get("servers")
    if not isinstance(listed, list):
        raise ServersError("the answer: servers must be an array")
    entries = cast("list[object]", listed)
    if len(entries) > servers_max:
        raise ServersError(f"{len(entries)} servers: servers_max is {servers_max}")
    servers: dict[int, Entry] = {}
    for index, one in enumerate(entries):
        entry = _entry(one, f"servers[{index}] {_shown(one)}")
        if entry.id in servers:
            raise ServersError(f"servers[{index}] {_shown(one)}: id {entry.id} comes twice")
        servers[entry.id] = entry
    return ServerList(version, servers)


def encode(servers: ServerList) -> bytes:
    """Write an answer, in a form that people can read."""
    listed: list[dict[str, Any]] = []
    for one in servers.servers.values():
        fields = dataclasses.asdict(one)
        listed.append({name: value for name, value in fields.items() if value not in ("", 0)})
    answer = {"version": servers.version, "servers": listed}
    return (json.dumps(answer, indent=1) + "\n").encode()


class LastGood:
    """The last good answer, kept on disk; written whole or not at all."""

    def __init__(self, path: Path, servers_max: int) -> None:
        """Name the file; its folder is made when it is first written."""
        self._file = JsonFile(path)
        self._servers_max = servers_max
        self._written: ServerList | None = None

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._file.path

    def load(self) -> ServerList | None:
        """Return it, None when there is none. Raises Corrupt when it cannot be read."""
        self._written = self._file.load(self._decode)
        return self._written

    async def save(self, servers: ServerList) -> None:
        """Keep an answer, unless it is the one that is kept. Raises OSError, DiskFull."""
        async with self._file.writing:
            if servers is self._written:
                return
            # Comparing two lists of many servers is work as well.
            if not await asyncio.to_thread(lambda: servers == self._written):
                await self._file.save(lambda: encode(servers))
            self._written = servers

    def _decode(self, data: bytes) -> ServerList:
        try:
            return parse(data, self._servers_max)
        except ServersError as error:
            raise ValueError(str(error)) from error


def _entry(one: Any, where: str) -> Entry:
    if not isinstance(one, dict):
        raise ServersError(f"{where}: must be an object")
    fields = cast("dict[str, Any]", one)
    _only(fields, {"id", "type", "host", "port", "name"}, where)
    server_id = _integer(fields, "id", 1, ID_MAX, where)
    server_type = _integer(fields, "type", 1, ID_MAX, where)
    name = _text(fields, "name", 0, where) if "name" in fields else ""
    if "host" not in fields and "port" not in fields:
        return Entry(server_id, server_type, name=name)
    host = _text(fields, "host", 1, where)
    return Entry(server_id, server_type, host, _integer(fields, "port", 1, 65535, where), name)


def _only(fields: dict[str, Any], known: set[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise ServersError(f"{where}: {name[:40]!r} is no field of it")


def _integer(fields: dict[str, Any], name: str, low: int, high: int, where: str) -> int:
    value = fields.get(name)
    if type(value) is int and low <= value <= high:
        return value
    raise ServersError(f"{where}: {name} must be an integer within {low}..{high}")


def _text(fields: dict[str, Any], name: str, low: int, where: str) -> str:
    value = fields.get(name)
    if isinstance(value, str) and low <= len(value) <= _TEXT_MAX and value.isprintable():
        return value
    raise ServersError(f"{where}: {name} must be a text of {low} to {_TEXT_MAX} characters")


def _shown(one: Any) -> str:
    return msgspec.json.encode(one).decode()[:120]
