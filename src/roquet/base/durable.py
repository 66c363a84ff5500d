"""Files that are whole after a power cut: the old content or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file through a side file; content and name are durable then. Raises OSError.

    With a `mode` the file has these permissions from its first byte on, as one with secrets needs.
    After a failure no side file takes up room on a disk that may be full.
    """
    side = path.with_name(path.name + ".tmp")
    try:
        if mode is not None:
            side.unlink(missing_ok=True)
            os.close(os.open(side, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        write_synced(side, data)
        side.replace(path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            side.unlink()
        raise


def write_synced(path: Path, data: bytes) -> None:
    """Write a file in place; return when its content is durable. Raises OSError."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_front(path: Path, size_max: int) -> bytes:
    """Return at most so many bytes from the start of a file, whatever its length. Raises OSError.

    For files that are small unless they are damaged.
    """
    with path.open("rb") as file:
        return file.read(size_max)


def read_stored(path: Path, size_max: int) -> bytes:
    """Return the same of a file that only we write. Raises OSError, also for what is no file.

    A pipe in its place would keep the reader waiting for somebody who writes into it.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return read_front(path, size_max)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
