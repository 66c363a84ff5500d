"""Settings changed while running, written down behind what an operator wrote in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.durable import replace_file
from roquet.base.properties_file import read_properties, write_properties

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MARK = b"# Changed while running; the lines below win over those above."


def write_down(path: Path, changes: Mapping[str, str]) -> None:
    """Put changes at the end of a property file, where they win; what was above stays as it is.

    After a power cut the file is whole: the old one or the new one. Raises OSError, UsageError.
    """
    text = path.read_bytes() if path.exists() else b""
    before, mark, earlier = text.partition(MARK)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    known = read_properties(earlier) if mark else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, before + MARK + b"\n" + write_properties({**known, **changes}))
