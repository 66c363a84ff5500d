"""What is installed: this package's release, and plugins found by entry points.

The standard library's `importlib.metadata` knows it all, and brings a mail parser and an archive
reader with it, which would be a good part of the time that a broker's imports need. So the folders
are looked at first, and it is asked only where they do not suffice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

_NAME = "roquet"


def release() -> str:
    """Return the installed version, `(from source)` when it is not installed."""
    for folder in _descriptions():
        name, _, version = folder.stem.partition("-")
        if name == _NAME and version:
            return version
    return "(from source)"


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group, by name."""
    if not _has_group(group):
        return []
    from importlib import metadata  # noqa: PLC0415  (see above)

    return sorted(metadata.entry_points(group=group), key=lambda point: point.name)


def _has_group(group: str) -> bool:
    """Tell whether an installed package may have entry points of a group."""
    if any(Path(place).is_file() for place in sys.path):
        return True  # An archive: no folder shows what is in it.
    header = f"[{group}]".encode()
    for folder in _descriptions():
        try:
            if header in (folder / "entry_points.txt").read_bytes():
                return True
        except OSError:
            continue
    return False


def _descriptions() -> Iterator[Path]:
    """Yield the folders that describe installed packages."""
    for place in sys.path:
        try:
            found = list(Path(place).iterdir())
        except OSError:
            continue
        yield from (folder for folder in found if folder.suffix in {".dist-info", ".egg-info"})
