"""What commands print: tables for people, JSON lines for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns as wide as their content; numbers to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [bool(rows) and all(isinstance(row[n], int) for row in rows) for n in range(len(head))]
    for row in [list(head), *texts]:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        line("  ".join(cells).rstrip())


def line(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")


def json_line(value: Mapping[str, Any]) -> None:
    """Print an object on one line, at once: a program may wait for it."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
