"""What commands print: tables for people, JSON lines for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from roquet.base.limits import safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


NONE = "0 found"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns as wide as their content; numbers to the right."""
    texts = [[_cell(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [bool(rows) and all(_is_number(row[n]) for row in rows) for n in range(len(head))]
    for row in [list(head), *texts]:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        line("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    """Return a value as people read it in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        named = cast("dict[str, object]", value)
        return " ".join(f"{key}={it}" for key, it in named.items()) or "-"
    return str(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def listed(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    form: str,
    about: Mapping[str, object] | None = None,
    *,
    none: str = NONE,
) -> None:
    """Print rows in the form asked for: `table`, `json` (an object a line) or `yaml`.

    `about` holds what is the same for every row: a table leaves it out. A single column has no
    head: other programs read it line by line. Where a table has no rows, the error output gets
    `none`.
    """
    if form == "table" and not rows and none:
        # Not among the rows: those are for the program behind a pipe, if there is one.
        note(none)
    if form == "table" and len(head) == 1:
        for row in rows:
            line(str(row[0]))
        return
    if form == "table":
        if rows:
            table(head, rows)
        return
    names = [name.replace(" ", "_") for name in head]
    found = [{**(about or {}), **dict(zip(names, row, strict=True))} for row in rows]
    if form == "json":
        for each in found:
            json_line(each)
    else:
        _yaml(found)


def pairs(values: Mapping[str, str], form: str) -> None:
    """Print names with their values, in order."""
    ordered = dict(sorted(values.items()))
    if form == "table":
        width = max(map(len, ordered), default=0)
        for name, value in ordered.items():
            line(f"{name:<{width}}  {plain(value)}".rstrip())
    else:
        one(ordered, form)


def one(value: Mapping[str, Any], form: str) -> None:
    """Print one object as JSON or YAML."""
    if form == "json":
        json_line(value)
    else:
        _yaml([dict(value)])


def _yaml(rows: list[dict[str, Any]]) -> None:
    import yaml  # noqa: PLC0415  (few ask for it)

    sys.stdout.write(yaml.safe_dump(rows, allow_unicode=True, sort_keys=False))


def plain(text: str) -> str:
    """Return a text on one line, without what a terminal would obey."""
    return safe(text, None)


def flush() -> None:
    """Print what waits to be printed."""
    sys.stdout.flush()


def line(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Print a line that is none of the rows, on the error output."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def error(text: str) -> None:
    """Say in one line why a command ends, whatever the text has in it."""
    shown = " ".join(text.split()).encode("utf-8", "backslashreplace").decode()
    with contextlib.suppress(OSError):
        sys.stderr.write(f"roquet: {shown}\n")
        sys.stderr.flush()


_BEGAN_S = time.monotonic()
PROGRESS_AFTER_S = 2.0
_progress_said_s = _BEGAN_S


def progress(text: str) -> None:
    """Say at a terminal how far a command is, every two seconds from the second one on."""
    global _progress_said_s  # noqa: PLW0603  (there is one terminal)
    now_s = time.monotonic()
    if now_s - _progress_said_s >= PROGRESS_AFTER_S and sys.stderr.isatty():
        _progress_said_s = now_s
        sys.stderr.write(f"roquet: {text} ...\n")


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
