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
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint

_NAME = "roquet"


def release() -> str:
    """Return the installed version, `(from source)` when it is not installed."""
    for folder in _descriptions():
        name, _, version = folder.stem.partition("-")
        if name == _NAME and version:
            return version
    return "(from source)"


def entry_points(*groups: str) -> list[EntryPoint]:
    """Return the entry points of all these groups, by name."""
    if not _has_any(groups):
        return []
    from importlib import metadata  # noqa: PLC0415  (see above)

    found = (point for group in groups for point in metadata.entry_points(group=group))
    return sorted(found, key=lambda point: point.name)


def _has_any(groups: Iterable[str]) -> bool:
    """Tell whether an installed package may have entry points of one of the groups."""
    if any(Path(place).is_file() for place in sys.path):
        return True  # An archive: no folder shows what is in it.
    headers = [f"[{group}]".encode() for group in groups]
    for folder in _descriptions():
        try:
            text = (folder / "entry_points.txt").read_bytes()
        except OSError:
            continue
        if any(header in text for header in headers):
            return True
    return False


def _descriptions() -> Iterator[Path]:
    """Yield the folders that describe installed packages."""
    for place in sys.path:
        try:
            found = list(Path(place).iterdir())
        except OSError:
            continue
        yield from (folder for folder in found if folder.suffix in {".dist-info", ".egg-info"})
