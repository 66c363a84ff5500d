"""The mark of a store whose log is not a copy of its master's.

A slave that its master has refused writes it, and removes it when a master has found the log to be
the same. Checks show it; while it is there the slave serves no reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.durable import read_stored, sync_folder, write_synced

if TYPE_CHECKING:
    from pathlib import Path

NAME = "diverged"
_SHOWN_MAX = 400


def mark(folder: Path, why: str) -> None:
    """Write the mark durably, once. Raises OSError."""
    if read(folder) != why:
        write_synced(folder / NAME, why.encode())
        sync_folder(folder)


def clear(folder: Path) -> None:
    """Remove the mark. Raises OSError."""
    path = folder / NAME
    if path.exists():
        path.unlink()
        sync_folder(folder)


def read(folder: Path) -> str | None:
    """Return why the log is not the master's, None when there is no mark."""
    try:
        # A character has 4 bytes at most.
        text = read_stored(folder / NAME, 4 * _SHOWN_MAX).decode(errors="replace")
        return text[:_SHOWN_MAX]
    except FileNotFoundError:
        return None


def remedy(folder: Path) -> str:
    """Return what an operator types, with the broker stopped."""
    return f"mv {folder} {folder}.set-aside, and start the slave again: it copies the log anew"
