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
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from roquet.protocol.fastjson_reader import JsonError, ObjectKey, is_object, read_tolerant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

T = TypeVar("T")

__all__ = [
    "JsonError",
    "Made",
    "ObjectKey",
    "is_object",
    "items",
    "java",
    "java_pieces",
    "parts",
    "pretty",
    "pretty_pieces",
    "quoted",
    "read",
    "read_keyed",
    "read_object",
    "standard",
]

DEPTH_MAX = 64
STRICT_SIZE_MAX = 64 * 1024 * 1024
TOLERANT_SIZE_MAX = 1024 * 1024
"""Bytes that the slow reader takes; files of a broker's own may ask for more."""

COMMAS_MAX = 128 * 1024
"""Commas in an object that is read part by part: making that many parts takes some 15 ms."""

ITEM_SIZE_MAX = 64 * 1024
"""Bytes of one item of an array that is read part by part."""

SORTED_MAX = 4_096
"""Rows of a table that are sorted: sorting more keeps the interpreter from other threads."""

PIECE_SIZE = 32 * 1024
"""Characters of a piece of a long text: some 0.5 ms of work."""
ITEMS_AT_ONCE = 1_024
"""Texts of a list that are written at once."""

REQUEST_SIZE_MAX = 64 * 1024
"""Bytes that it takes of a request that is read beside an event loop: clients send strict JSON."""

# Strings are matched first, so that only keys outside of them are seen. Possessive, with an
# optional end quote: one pass whatever the input.
_BARE_KEY = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|([{,]\s*+)(-?[0-9]{1,19}+)(\s*+:)', re.DOTALL)
# An object without objects in it that stands where a key does.
_OBJECT_KEY = re.compile(
    rb'"(?:[^"\\]++|\\.)*+"?|([{,]\s*+)(\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\})(\s*+:)',
    re.DOTALL,
)
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_quote = json.encoder.encode_basestring
_plain_encoder = msgspec.json.Encoder(order="sorted")
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items_decoder = msgspec.json.Decoder(list[msgspec.Raw])


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


def read_keyed(data: bytes) -> dict[str, Any]:
    """Read an object with tables whose keys are objects, such as queues, of any number of rows.

    In long ones such a key is the text of its object; `fields.queue_items` takes both. Raises
    JsonError.
    """
    if TOLERANT_SIZE_MAX < len(data) <= STRICT_SIZE_MAX:
        try:
            value = msgspec.json.decode(_OBJECT_KEY.sub(_as_text, data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        else:
            if is_object(value):
                return value
    return read_object(data)


def parts(data: bytes | msgspec.Raw) -> dict[str, Any] | None:
    """Read the fields of an object in strict JSON, arrays as parts that `items` reads one by one.

    None means that it is another value, or not strict: `read` tells. Raises JsonError for one with
    more than COMMAS_MAX commas.
    """
    if bytes(data).count(b",") > COMMAS_MAX:
        raise JsonError(f"more than {COMMAS_MAX} values")
    try:
        fields = _fields_decoder.decode(data)
        return {
            name: _items_decoder.decode(raw) if _is_array(raw) else _decoded(raw)
            for name, raw in fields.items()
        }
    except RecursionError:
        raise JsonError(f"deeper than {DEPTH_MAX}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def items(array: list[Any], *, in_parts: bool = False) -> Iterator[tuple[Any, int]]:
    """Yield the items of an array and their bytes (0: not known). Raises JsonError.

    Those that `parts` left are decoded now, `in_parts` those of any length with arrays as parts.
    """
    for item in array:
        if not isinstance(item, msgspec.Raw):
            yield item, 0
            continue
        size = memoryview(item).nbytes
        found = parts(item) if in_parts and not _is_array(item) else None
        if found is None and size > ITEM_SIZE_MAX:
            raise JsonError(f"a value of {size} bytes: one has at most {ITEM_SIZE_MAX}")
        yield _decoded(item) if found is None else found, size


def _is_array(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"["


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise JsonError(f"deeper than {DEPTH_MAX}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JsonError(str(error)) from error


def quoted(text: str) -> str:
    """Write a text as `java` does: between quotes, not ASCII alone."""
    return _quote(text)


def _quoted(match: re.Match[bytes]) -> bytes:
    if match[2] is None:
        return match[0]
    return match[1] + b'"' + match[2] + b'"' + match[3]


def _as_text(match: re.Match[bytes]) -> bytes:
    if match[2] is None:
        return match[0]
    # Surrogates stand for bytes that are no UTF-8: the decoder refuses them.
    text = match[2].decode(errors="surrogateescape")
    return match[1] + _quote(text).encode(errors="surrogateescape") + match[3]


class Made:
    """An object of many rows that are made when they are written, and gone when the next one is.

    A large table as dictionaries keeps the garbage collector busy for long. Above SORTED_MAX rows
    stand in the order of the table.
    """

    __slots__ = ("make", "source")

    def __init__(self, source: Mapping[str, T], make: Callable[[T], Any]) -> None:
        """Write `make(value)` of each value."""
        self.source = source
        self.make = make

    def names(self) -> Iterable[str]:
        """Return the keys in the order in which they are written."""
        return sorted(self.source) if len(self.source) <= SORTED_MAX else self.source


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


def pretty_pieces(value: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield what `pretty` writes of an object, some PIECE_SIZE bytes at a time.

    So tables of many rows (`Made`) can be written with others having their turn between.
    """
    return _pieces(value, "\n")


def java_pieces(value: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield what `java` writes of an object with tables (`Made`), as `pretty_pieces` does."""
    return _pieces(value, None)


def _pieces(value: Mapping[str, Any], indent: str | None) -> Iterator[bytes]:
    deeper = None if indent is None else indent + "\t"
    texts: list[str] = []
    size, before = 0, "{" + (deeper or "")
    for name in sorted(name for name, item in value.items() if item is not None):
        texts.append(f"{before}{_quote(name)}:")
        before = "," + (deeper or "")
        item = value[name]
        if not isinstance(item, Made):
            _write(item, texts.append, deeper, DEPTH_MAX - 1)
            continue
        for text in _rows(item, deeper, DEPTH_MAX - 1):
            texts.append(text)
            size += len(text)
            if size >= PIECE_SIZE:
                yield "".join(texts).encode()
                texts, size = [], 0
    texts.append((indent or "") + "}" if value else "{}")
    yield "".join(texts).encode()


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
    return not isinstance(value, Made)


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
    elif isinstance(value, Made):
        _write_made(value, out, indent, depth)
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


def _write_made(value: Made, out: Any, indent: str | None, depth: int) -> None:
    for text in _rows(value, indent, depth):
        out(text)


def _rows(value: Made, indent: str | None, depth: int) -> Iterator[str]:
    """Yield the texts of an object of many rows: one a row, several of a long list of texts."""
    deeper = None if indent is None else indent + "\t"
    before = "{" if deeper is None else "{" + deeper
    for name in value.names():
        yield f"{before}{_quote(name)}:"
        row = value.make(value.source[name])
        is_table = is_object(row)
        if is_table and (text := _numbers(row, deeper)) is not None:
            yield text
        elif deeper is None and _is_plain(row, DEPTH_MAX):
            yield _plain_encoder.encode(row).decode()
        elif isinstance(row, (list, tuple)) and _all_texts(cast("list[Any]", row)):
            yield from _texts(cast("list[str]", row), deeper)
        else:
            # One text a row: a list of all parts of a large table is long.
            parts: list[str] = []
            write: Callable[[Any, Any, str | None, int], None]
            write = _write_fields if is_table else _write
            write(cast("Any", row), parts.append, deeper, depth - 1)
            yield "".join(parts)
        before = "," if deeper is None else "," + deeper
    yield "{}" if not value.source else "}" if indent is None else indent + "}"


def _write_dict(value: Mapping[Any, Any], out: Any, indent: str | None, depth: int) -> None:
    if (text := _numbers(value, indent)) is not None:
        out(text)
    else:
        _write_fields(value, out, indent, depth)


def _write_fields(value: Mapping[Any, Any], out: Any, indent: str | None, depth: int) -> None:
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


def _numbers(value: Mapping[Any, Any], indent: str | None) -> str | None:
    """Write a dictionary whose values are numbers, as big tables are; None for another."""
    start = "" if indent is None else indent + "\t"
    if len(value) == 1:
        ((key, item),) = value.items()
        if type(key) is int and type(item) is int:
            return f"{{{start}{key}:{item}{indent or ''}}}"
    if not value or set(map(type, value.values())) != {int}:
        return None
    keys = set(map(type, value))
    if keys == {int}:
        rows = [f"{key}:{value[key]}" for key in sorted(value)]
    elif keys == {str}:
        rows = [f"{_quote(key)}:{value[key]}" for key in sorted(value)]
    else:
        return None
    return f"{{{start}{(',' + start).join(rows)}{indent or ''}}}"


def _write_list(value: list[Any], out: Any, indent: str | None, depth: int) -> None:
    if value and _all_texts(value):
        for text in _texts(value, indent):
            out(text)
        return
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


def _all_texts(value: list[Any]) -> bool:
    return all(type(item) is str for item in value)


def _texts(value: list[str], indent: str | None) -> Iterator[str]:
    """Yield the text of a list of texts, ITEMS_AT_ONCE of them at a time."""
    start = "" if indent is None else indent + "\t"
    before = "[" + start
    for at in range(0, len(value), ITEMS_AT_ONCE):
        yield before + ("," + start).join(map(_quote, value[at : at + ITEMS_AT_ONCE]))
        before = "," + start
    yield (indent or "") + "]" if value else "[]"
