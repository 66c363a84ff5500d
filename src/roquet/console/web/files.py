"""Messages as a file: CSV for spreadsheets, one JSON object a line for programs.

Whoever sends messages chooses what is in them, and whoever opens the file must not run it: in CSV
an apostrophe stands before whatever a spreadsheet would take for a formula. JSON lines are exact.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMATS = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_MAX = 64
_FORMULA = re.compile(r"""(^|[;\t\r\n])(["' ]{0,8})(?=[=+\-@\uff1d\uff0b\uff0d\uff20])""")
"""Where a formula begins: in a cell, and behind what other settings take for the end of a cell."""
_MARK = "\ufeff"
"""Without it, spreadsheets do not read UTF-8."""


def file_name(*parts: str, ending: str) -> str:
    """Return a name of a file that is harmless in a header and on every disk."""
    return "-".join(_UNSAFE_NAME.sub("_", it)[:_NAME_MAX] for it in parts) + f".{ending}"


def body_fields(body: bytes) -> dict[str, str]:
    """Return a body as text and its encoding: `text`, or `base64` of what is no text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    # Spreadsheets end a cell at a zero character.
    if "\0" in text or (body and not text):
        return {"body": base64.b64encode(body).decode(), "encoding": "base64"}
    return {"body": text, "encoding": "text"}


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return an object a line, in ASCII."""
    return "".join(json.dumps(it) + "\n" for it in rows).encode()


def comma_separated(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a table with a head (RFC 4180, UTF-8 with a byte order mark)."""
    names = list(columns)
    written = io.StringIO(newline="")
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerow(names)
    writer.writerows([_cell(row.get(name, "")) for name in names] for row in rows)
    return (_MARK + written.getvalue()).encode(errors="replace")


def _cell(value: Any) -> str | int:
    if isinstance(value, int):
        return value
    if isinstance(value, list):
        value = " ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    elif isinstance(value, dict):
        value = json.dumps(value) if value else ""
    return _FORMULA.sub(r"\1\2'", str(value).replace("\0", "\ufffd"))
