"""What a job answers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The lines that sum a job up, the files and folders it wrote, and the exit code."""

    lines: tuple[str, ...]
    written: tuple[str, ...] = ()
    exit_code: int = 0
