"""What commands print: tables for people, JSON lines for programs."""

from __future__ import annotations

import contextlib
import json
import os
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


def error(text: str) -> None:
    """Say in one line why a command ends, whatever the text has in it."""
    shown = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    with contextlib.suppress(OSError):
        sys.stderr.write(f"roquet: {shown}\n")
        sys.stderr.flush()


def drop_output() -> None:
    """Send what is still to be printed nowhere: it must not be tried again at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123


def json_line(value: Mapping[str, Any]) -> None:
    """Print an object on one line, at once: a program may wait for it."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()
