"""JSON as Java's fastjson writes it, read and written (spec: wire §18, store §8).

Reading gives plain Python values. Integer map keys become text whether they were quoted or not;
a map key that is an object becomes an `ObjectKey`. Strict JSON goes through msgspec at C speed;
only what msgspec refuses is looked at again, within tighter limits.

Writing sorts keys, leaves None out, and comes in three forms: `java` (integer keys bare, objects
as keys), `standard` (integer keys quoted, ASCII only) and `pretty` (Java's config files).
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from roquet.protocol.fastjson_reader import JsonError, ObjectKey, is_object, read_tolerant

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "JsonError",
    "ObjectKey",
    "is_object",
    "java",
    "pretty",
    "read",
    "read_object",
    "standard",
]

DEPTH_MAX = 64
STRICT_SIZE_MAX = 64 * 1024 * 1024
TOLERANT_SIZE_MAX = 1024 * 1024
"""Bytes that the slow reader takes; files of a broker's own may ask for more."""

REQUEST_SIZE_MAX = 64 * 1024
"""Bytes that it takes of a request that is read beside an event loop: clients send strict JSON."""

# Strings are matched first, so that only keys outside of them are seen. Possessive, with an
# optional end quote: one pass whatever the input.
_BARE_KEY = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([{,]\s*+)(-?[0-9]{1,19}+)(\s*+:)', re.DOTALL)
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_quote = json.encoder.encode_basestring
_plain_encoder = msgspec.json.Encoder(order="sorted")


def read(data: bytes, *, tolerant_size_max: int = TOLERANT_SIZE_MAX) -> Any:
    """Read one JSON value in strict or fastjson form. Raises JsonError."""
    if len(data) > STRICT_SIZE_MAX:
        raise JsonError(f"{len(data)} bytes are more than {STRICT_SIZE_MAX}")
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise JsonError(f"deeper than {DEPTH_MAX}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return msgspec.json.decode(_BARE_KEY.sub(_quoted, data))
    except RecursionError:
        raise JsonError(f"deeper than {DEPTH_MAX}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    if len(data) > tolerant_size_max:
        raise JsonError(f"not strict JSON and longer than {tolerant_size_max} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8: {error}") from error
    return read_tolerant(text, DEPTH_MAX)


def read_object(data: bytes, *, tolerant_size_max: int = TOLERANT_SIZE_MAX) -> dict[str, Any]:
    """Read one JSON object. Raises JsonError when it is something else."""
    value = read(data, tolerant_size_max=tolerant_size_max)
    if not is_object(value):
        raise JsonError("an object is expected")
    return value


def _quoted(match: re.Match[bytes]) -> bytes:
    if match[2] is None:
        return match[0]
    return match[1] + b'"' + match[2] + b'"' + match[3]


def java(value: Any) -> bytes:
    """Write as Java does by default: on one line, integer keys bare, objects as keys."""
    if _is_plain(value, DEPTH_MAX):
        return _plain_encoder.encode(value)
    parts: list[str] = []
    _write(value, parts.append, None, DEPTH_MAX)
    return "".join(parts).encode()


def standard(value: Any) -> bytes:
    """Write strict JSON: integer keys quoted and sorted as text, non-ASCII escaped."""
    text = _plain_encoder.encode(_text_keys(value, DEPTH_MAX))
    if text.isascii():
        return text
    return _NON_ASCII.sub(_escape, text.decode()).encode()


def pretty(value: Any) -> bytes:
    """Write as Java writes its config files: a tab a level, no space, integer keys bare."""
    parts: list[str] = []
    _write(value, parts.append, "\n", DEPTH_MAX)
    return "".join(parts).encode()


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04X}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04X}\\u{0xDC00 + (code & 0x3FF):04X}"


def _is_plain(value: Any, depth: int) -> bool:
    """Tell whether strict JSON is what Java would write, nothing to leave out."""
    if depth == 0:
        raise JsonError(f"deeper than {DEPTH_MAX}")
    if is_object(value):
        for key, item in value.items():
            if type(key) is not str or item is None or not _is_plain(item, depth - 1):
                return False
        return True
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(_is_plain(item, depth - 1) for item in cast("list[Any]", value))
    return True


def _text_keys(value: Any, depth: int) -> Any:
    if depth == 0:
        raise JsonError(f"deeper than {DEPTH_MAX}")
    if is_object(value):
        out: dict[str, Any] = {}
        for key, item in value.items():
            if item is not None:
                out[_text_key(key)] = _text_keys(item, depth - 1)
        return out
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_text_keys(item, depth - 1) for item in cast("list[Any]", value)]
    return value


def _text_key(key: Any) -> str:
    return java(key.as_dict()).decode() if isinstance(key, ObjectKey) else str(key)


def _write(value: Any, out: Any, indent: str | None, depth: int) -> None:
    if depth == 0:
        raise JsonError(f"deeper than {DEPTH_MAX}")
    if isinstance(value, str):
        out(_quote(value))
    elif value is None or isinstance(value, (bool, int, float)):
        out(_scalar(value))
    elif is_object(value):
        _write_dict(value, out, indent, depth)
    elif isinstance(value, (list, tuple, set, frozenset)):
        _write_list(list(cast("list[Any]", value)), out, indent, depth)
    else:
        raise JsonError(f"{type(value).__name__} cannot be written")


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or not math.isfinite(value):
        return "null"
    return repr(value)


def _sort_key(item: tuple[Any, Any]) -> tuple[int, int, str]:
    key = item[0]
    if isinstance(key, int):
        return (0, key, "")
    return (1, 0, key if isinstance(key, str) else repr(key))


def _write_dict(value: Mapping[Any, Any], out: Any, indent: str | None, depth: int) -> None:
    items = sorted(((k, v) for k, v in value.items() if v is not None), key=_sort_key)
    deeper = None if indent is None else indent + "\t"
    out("{")
    for index, (key, item) in enumerate(items):
        if index:
            out(",")
        if deeper is not None:
            out(deeper)
        if isinstance(key, ObjectKey):
            _write(key.as_dict(), out, None, depth - 1)
        else:
            out(_quote(key) if isinstance(key, str) else str(key))
        out(":")
        _write(item, out, deeper, depth - 1)
    if items and indent is not None:
        out(indent)
    out("}")


def _write_list(value: list[Any], out: Any, indent: str | None, depth: int) -> None:
    out("[")
    for index, item in enumerate(value):
        if index:
            out(",")
        if indent is not None:
            out(indent + "\t")
        _write(item, out, None if indent is None else indent + "\t", depth - 1)
    if value and indent is not None:
        out(indent)
    out("]")
