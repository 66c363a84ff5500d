"""How groups fetch messages, as operators have set it: `messageRequestMode.json`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import TableFull
from roquet.protocol.bodies.assignments import RequestModeTable
from roquet.store.files import FILE_SIZE_MAX

if TYPE_CHECKING:
    from roquet.model.request_mode import GroupRequestMode
    from roquet.store.files import JsonFile

log = logging.getLogger(__name__)

MODES_MAX = 100_000
"""Pairs of topic and group that may have a mode."""


class RequestModes:
    """(topic, group) -> request mode."""

    def __init__(self, file: JsonFile) -> None:
        """Begin empty; `load` takes the file's modes."""
        self._file = file
        self._modes: dict[tuple[str, str], GroupRequestMode] = {}
        self._changes = 0
        self._saved = 0

    def load(self) -> None:
        """Take over the file's modes. Raises Corrupt when neither it nor its copy is whole."""
        table = self._file.load(_decode)
        if table is not None:
            self._modes = {(row.topic, row.group): row for row in table.modes}

    async def persist(self) -> None:
        """Make the modes durable; returns at once when none has changed."""
        async with self._file.writing:
            changes = self._changes
            if self._saved != changes:
                await self._file.save(self.export().encode_file)
                self._saved = changes

    def get(self, topic: str, group: str) -> GroupRequestMode | None:
        """Return what was set for a topic and a group."""
        return self._modes.get((topic, group))

    def put(self, mode: GroupRequestMode) -> None:
        """Set a mode. Raises TableFull when there are too many."""
        key = mode.topic, mode.group
        if key not in self._modes and len(self._modes) >= MODES_MAX:
            raise TableFull(f"there are {len(self._modes)} request modes: no more can be set")
        self._modes[key] = mode
        self._changes += 1

    def replace(self, table: RequestModeTable) -> None:
        """Take over another broker's modes."""
        modes = {(row.topic, row.group): row for row in table.modes}
        if modes != self._modes:
            self._modes = modes
            self._changes += 1

    def export(self) -> RequestModeTable:
        """Return all modes."""
        return RequestModeTable(modes=tuple(self._modes.values()))


def _decode(data: bytes) -> RequestModeTable:
    return RequestModeTable.decode(data, tolerant_size_max=FILE_SIZE_MAX)
