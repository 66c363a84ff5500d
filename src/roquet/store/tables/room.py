"""How much a table may grow: no more than a start can read, and a registration can carry.

A table is written as one file, which a start reads up to `files.FILE_SIZE_MAX` bytes. So whatever
clients add is counted here in bytes of that file, rounded up, and refused before it would not fit.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, TypeVar

from roquet.base.errors import TableFull
from roquet.service.background import give_way
from roquet.store.tables.files import FILE_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

SHARE_MAX = FILE_SIZE_MAX // 4 * 3
"""Bytes that entries may come to; the rest is for what surrounds them."""


class Room:
    """Bytes and entries that a table takes up."""

    def __init__(self, name: str, entries_max: int, bytes_max: int = SHARE_MAX) -> None:
        """Begin empty; `name` says in texts which table it is."""
        self._name = name
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.entries = 0
        self.used = 0
        self.refused = 0
        """How often something did not fit."""

    def begin(self, entries: int, used: int) -> None:
        """Count what the table has now."""
        self.entries, self.used = entries, used

    def fits(self, entries: int, used: int) -> bool:
        """Tell whether so much more may be added; count a no."""
        whole = self.entries + entries <= self._entries_max and self.used + used <= self._bytes_max
        # What makes the table no larger is taken in any case: it may have been loaded too large.
        if whole or (entries <= 0 and used <= 0):
            return True
        self.refused += 1
        return False

    def add(self, entries: int, used: int) -> None:
        """Count what was added, or with negative numbers what was removed."""
        self.entries += entries
        self.used += used

    def take(self, entries: int, used: int) -> None:
        """Add so much. Raises TableFull, and then nothing is counted."""
        if not self.fits(entries, used):
            raise TableFull(
                f"the table of {self._name} is full: it has {self.entries} of at most"
                f" {self._entries_max} entries, {self.used} of {self._bytes_max} bytes"
            )
        self.add(entries, used)


ROWS_AT_ONCE = 200
"""Rows of a table that are added before others have their turn."""


async def in_reserved_slices(
    room: Room,
    rows: Sequence[T],
    growth: Callable[[Sequence[T]], tuple[int, int]],
    put: Callable[..., object],
) -> None:
    """Put rows into a table by `put(*rows)` in slices, all of them or none.

    `growth` tells how many entries and bytes a slice adds. The room is taken for all of them
    before the first is put. Raises TableFull when they do not fit; then nothing has changed.
    """
    slices = [rows[at : at + ROWS_AT_ONCE] for at in range(0, len(rows), ROWS_AT_ONCE)]
    reserved: list[tuple[int, int]] = []
    for part in slices:
        reserved.append(growth(part))
        await give_way()
    entries, used = sum(one for one, _ in reserved), sum(one for _, one in reserved)
    room.take(entries, used)
    for part, (part_entries, part_used) in zip(slices, reserved, strict=True):
        room.add(-part_entries, -part_used)
        entries, used = entries - part_entries, used - part_used
        try:
            put(*part)
        except BaseException:
            room.add(-entries, -used)
            raise
        await give_way()


def text_size(text: str) -> int:
    """Return how many bytes a text takes in a file."""
    return len(encode_basestring(text).encode("utf-8", "replace"))
