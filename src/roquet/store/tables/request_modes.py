"""How groups fetch messages, as operators have set it: `messageRequestMode.json`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from roquet.base.errors import TableFull
from roquet.protocol.bodies.assignments import RequestModeTable
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.tables.key_values import Rows, TableCodec

if TYPE_CHECKING:
    from roquet.model.request_mode import GroupRequestMode
    from roquet.store.tables.key_values import TableForm

log = logging.getLogger(__name__)

MODES_MAX = 100_000
"""Pairs of topic and group that may have a mode."""


class RequestModes:
    """(topic, group) -> request mode."""

    def __init__(self, form: TableForm) -> None:
        """Begin empty; `load` takes the durable modes."""
        self._modes = form.table(_CODEC)

    def load(self) -> None:
        """Take over the durable modes. Raises Corrupt when no copy is whole."""
        self._modes.load()

    async def persist(self) -> None:
        """Make the modes durable; returns at once when none has changed."""
        await self._modes.flush()

    def get(self, topic: str, group: str) -> GroupRequestMode | None:
        """Return what was set for a topic and a group."""
        return self._modes.get((topic, group))

    def put(self, mode: GroupRequestMode) -> None:
        """Set a mode. Raises TableFull when there are too many."""
        key = mode.topic, mode.group
        if self._modes.get(key) is None and len(self._modes) >= MODES_MAX:
            raise TableFull(f"there are {len(self._modes)} request modes: no more can be set")
        self._modes.put(key, mode)

    def replace(self, table: RequestModeTable) -> None:
        """Take over another broker's modes."""
        known, modes = self._modes.rows(), _by_key(table)
        if modes == known:
            return
        for key in known:
            self._modes.delete(key)
        for key, mode in modes.items():
            self._modes.put(key, mode)

    def export(self) -> RequestModeTable:
        """Return all modes."""
        return RequestModeTable(modes=tuple(self._modes.rows().values()))


_Key: TypeAlias = tuple[str, str]


def _by_key(table: RequestModeTable) -> dict[_Key, GroupRequestMode]:
    return {(row.topic, row.group): row for row in table.modes}


def _decode(data: bytes) -> Rows[_Key, GroupRequestMode]:
    return Rows(_by_key(RequestModeTable.decode(data, tolerant_size_max=FILE_SIZE_MAX)))


def _encode(table: Rows[_Key, GroupRequestMode]) -> bytes:
    return RequestModeTable(modes=tuple(table.rows.values())).encode_file()


_CODEC = TableCodec(_decode, _encode)
