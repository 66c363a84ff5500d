"""Which release wrote a store, so that an older one never misreads what a newer one left.

The number changes only when files of ours change in a way that an older release would misread;
Java's files are not ours to change. A store without the mark is Java's, or older than the mark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from roquet.base.durable import read_stored, replace_file
from roquet.base.errors import Corrupt, UsageError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
NAME = "roquet-format.json"
_SIZE_MAX = 4096
"""Bytes; a longer file is damaged, and cut it is no JSON."""


class StoreFormat:
    """The mark in a store's folder, as a part of the broker that starts before the store."""

    def __init__(self, folder: Path, release: str) -> None:
        """Touch nothing; `release` is written down for people to read."""
        self._path = folder / NAME
        self._release = release

    async def start(self) -> None:
        """Refuse a newer store, mark an unmarked one. Raises UsageError, Corrupt, OSError."""
        if self.check() != FORMAT:
            self._write()

    def check(self) -> int | None:
        """Return the format of the mark, None without one. Raises as `start` does."""
        found = self._read()
        if found is not None and found > FORMAT:
            raise UsageError(
                f"{self._path.parent} was written by a newer release (store format {found}, this"
                f" one reads up to {FORMAT}): start that release, or restore a backup from before"
            )
        return found

    async def stop(self) -> None:
        """Nothing to release."""

    def _read(self) -> int | None:
        try:
            data = read_stored(self._path, _SIZE_MAX)
        except FileNotFoundError:
            return None
        try:
            found = json.loads(data)["format"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Corrupt(f"{self._path} cannot be read: {error}") from error
        if not isinstance(found, int) or isinstance(found, bool):
            raise Corrupt(f"{self._path} names no format")
        return found

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        mark = {"format": FORMAT, "release": self._release}
        replace_file(self._path, json.dumps(mark).encode())
