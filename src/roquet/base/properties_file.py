"""Java's `.properties` files, read and written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

from roquet.base.errors import UsageError

FILE_SIZE_MAX = 1024 * 1024
_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_LINE_END = re.compile(r"\r\n|\n|\r")


def read_properties(data: bytes) -> dict[str, str]:
    r"""Read a file's bytes: `#` and `!` comments, `=` `:` or space, continuation, `\uXXXX`.

    UTF-8, or Latin-1 where it is none. The last of equal keys counts. Raises UsageError.
    """
    if len(data) > FILE_SIZE_MAX:
        raise UsageError(f"a property file of {len(data)} bytes: the limit is {FILE_SIZE_MAX}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    found: dict[str, str] = {}
    for number, line in enumerate(_logical_lines(text), 1):
        end = _key_end(line)
        rest = line[end:].lstrip(_SPACE)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_SPACE)
        try:
            found[_unescape(line[:end])] = _unescape(rest).rstrip()
        except UsageError as error:
            # The value may be a secret: the error says where it is, not what it is.
            raise UsageError(f"entry {number}, {line[:end][:60]!r}: {error}") from None
    return found


def write_properties(values: Mapping[str, str]) -> bytes:
    """Write one `key=value` a line; nothing in a value can start a second key."""
    lines = [f"{_escape(key, key=True)}={_escape(values[key], key=False)}\n" for key in values]
    return "".join(lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    joined = ""
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_SPACE)
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield joined + line
        joined = ""
    if joined:
        yield joined


def _key_end(line: str) -> int:
    at = 0
    while at < len(line):
        if line[at] == "\\":
            at += 2
            continue
        if line[at] in "=:" or line[at] in _SPACE:
            return at
        at += 1
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            parts.append(char)
            continue
        char = text[at : at + 1]
        at += 1
        if char == "u":
            match = _HEX4.match(text, at)
            if match is None:
                raise UsageError("bad \\u escape: four hex digits are expected")
            parts.append(chr(int(match[0], 16)))
            at += 4
        else:
            parts.append(_ESCAPES.get(char, char))
    joined = "".join(parts)
    return joined.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(text: str, *, key: bool) -> str:
    parts: list[str] = []
    for index, char in enumerate(text):
        if char in "\\=:#!" or (char == " " and (key or index == 0)):
            parts.append("\\" + char)
        elif " " <= char <= "~":
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[n : n + 2].hex().upper()}" for n in range(0, len(units), 2)]
    return "".join(parts)
