"""The name server's key-value configuration: free namespaces, kept in one JSON file.

Brokers get the namespace ORDER_TOPIC_CONFIG at registration and mark its topics as ordered.
Every change is on disk before it is answered (spec: namesrv, KV config).
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

from roquet.base.durable import read_front, replace_file
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
MAX_FILE = 16 * 1024 * 1024
"""Bytes of the file; a put that would pass it is refused, so what is written can be read."""


class KeyValues:
    """Namespaces of keys. A value that cannot be written is not kept either."""

    def __init__(self, path: Path) -> None:
        """Name the file; `load` reads it."""
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, or its `.bak` when it is absent or broken; neither: start empty.

        Raises UsageError when there is a file and nothing in it can be used: to start empty
        would let the next write destroy what an operator may want to repair.
        """
        backup = _beside(self._path, ".bak")
        candidates = [path for path in (self._path, backup) if path.exists()]
        for path in candidates:
            try:
                self._table = _parse(read_front(path, MAX_FILE + 1))
            except (OSError, ValueError) as error:
                log.warning("cannot use %s: %s", path, error)
            else:
                return
        if candidates:
            raise UsageError(
                f"kvConfigPath: {self._path} is damaged and has no good .bak beside it"
            )

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value, None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all of a namespace, None when nothing was ever put into it."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value and write the file. Raises OSError or UsageError; then nothing changed."""
        changed = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
        self._write(changed)
        self._table = changed

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value and write the file; an absent one is no error."""
        held = self._table.get(namespace)
        if held is None:
            return
        rest = {name: value for name, value in held.items() if name != key}
        changed = {**self._table, namespace: rest}
        self._write(changed)
        self._table = changed

    def describe(self) -> list[str]:
        """Return one line for each value, for the periodic log."""
        return [
            f"kv {namespace!r} {key!r} = {value!r}"
            for namespace, values in sorted(self._table.items())
            for key, value in sorted(values.items())
        ]

    def _write(self, table: Mapping[str, Mapping[str, str]]) -> None:
        data = json.dumps({"configTable": table}, indent=1).encode()
        if len(data) > MAX_FILE:
            raise UsageError(f"the key-value configuration may not pass {MAX_FILE} bytes")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            replace_file(_beside(self._path, ".bak"), self._path.read_bytes())
        replace_file(self._path, data)


def _parse(data: bytes) -> dict[str, dict[str, str]]:
    if len(data) > MAX_FILE:
        raise ValueError(f"longer than {MAX_FILE} bytes")
    try:
        whole: Any = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    table = cast("dict[str, Any]", whole).get("configTable") if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise ValueError("no object configTable")  # noqa: TRY004  (what is wrong is the file)
    result: dict[str, dict[str, str]] = {}
    for namespace, values in cast("dict[str, Any]", table).items():
        if not isinstance(values, dict):
            raise ValueError(f"namespace {namespace!r} is no object")  # noqa: TRY004
        pairs = cast("dict[str, Any]", values)
        if not all(isinstance(value, str) for value in pairs.values()):
            raise ValueError(f"namespace {namespace!r} holds a value that is no text")
        result[namespace] = pairs
    return result


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
