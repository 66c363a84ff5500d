"""Files of the console that nobody else may read, since secrets are in them."""

from __future__ import annotations

import os
import stat
import tomllib
from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def read(where: str, file: Path, size_max: int) -> dict[str, Any]:
    """Return the tables of a file of so many bytes at most; `where` begins what is wrong.

    Raises UsageError, also where the file's mode lets others read it.
    """
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            data = opened.read(size_max + 1)
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from error
    if mode & 0o077:
        raise UsageError(f"{where} may be read by others: chmod 600 {file}")
    if len(data) > size_max:
        raise UsageError(f"{where} has more than {size_max} bytes")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {error}") from error
