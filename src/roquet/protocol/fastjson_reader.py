"""The slow half of the JSON reader: everything that fastjson accepts beyond the standard.

Bare and single-quoted keys, objects as keys, comments, trailing commas, single-quoted text.
NaN and infinities, deep nesting, long numbers and text after the value are refused.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, Self, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER_LENGTH_MAX = 40
ITEMS_MAX = 200_000

_SPACE = re.compile(r"(?:[ \t\r\n\f\b\ufeff]++|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_NUMBER = re.compile(r"-?[0-9]++(\.[0-9]++)?+([eE][+-]?[0-9]++)?+")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*+")
_CHUNKS = {'"': re.compile(r'[^"\\]*+'), "'": re.compile(r"[^'\\]*+")}
_HEX4 = re.compile(r"[0-9A-Fa-f]{4}")
_HEX2 = re.compile(r"[0-9A-Fa-f]{2}")
_ESCAPES = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
    '"': '"',
    "'": "'",
    "/": "/",
    "\\": "\\",
}
_WORDS = {"true": True, "false": False, "null": None}


class JsonError(ValueError):
    """The text is not JSON that we read; the message says where and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectKey:
    """A map key that is itself an object, such as a message queue."""

    items: tuple[tuple[str, str | int], ...]
    """Its fields in the order of their names."""

    @classmethod
    def of(cls, values: Mapping[str, str | int]) -> Self:
        """Make the key of an object with these fields."""
        return cls(tuple(sorted(values.items())))

    def as_dict(self) -> dict[str, str | int]:
        """Return the fields."""
        return dict(self.items)


def is_object(value: object) -> TypeGuard[dict[Any, Any]]:
    """Tell whether a decoded value is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Tell whether a decoded value is an array."""
    return isinstance(value, list)


def read_tolerant(text: str, depth_max: int) -> Any:
    """Read one value that takes up the whole text. Raises JsonError."""
    reader = _Reader(text, depth_max)
    value = reader.value(depth_max)
    reader.end()
    return value


class _Reader:
    def __init__(self, text: str, depth_max: int) -> None:
        self._text = text
        self._at = 0
        self._depth_max = depth_max
        self._items = 0

    def value(self, depth: int) -> Any:
        if depth == 0:
            raise self._error(f"deeper than {self._depth_max}")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char in {'"', "'"}:
            return self._string()
        if char.isascii() and (char.isdigit() or char == "-"):
            return self._number()
        return self._word()

    def end(self) -> None:
        self._skip()
        if self._at != len(self._text):
            raise self._error("text after the value")

    def _error(self, why: str) -> JsonError:
        return JsonError(f"at character {self._at}: {why}")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _peek(self) -> str:
        self._skip()
        if self._at >= len(self._text):
            raise self._error("the text ends early")
        return self._text[self._at]

    def _take(self, char: str) -> bool:
        if self._peek() == char:
            self._at += 1
            return True
        return False

    def _count(self) -> None:
        self._items += 1
        if self._items > ITEMS_MAX:
            raise self._error(f"more than {ITEMS_MAX} items")

    def _object(self, depth: int) -> dict[Any, Any]:
        self._at += 1
        found: dict[Any, Any] = {}
        while not self._take("}"):
            if self._take(","):
                continue
            self._count()
            key = self._key(depth)
            if not self._take(":"):
                raise self._error("':' is expected")
            found[key] = self.value(depth - 1)
            if self._peek() not in ",}":
                raise self._error("',' or '}' is expected")
        return found

    def _array(self, depth: int) -> list[Any]:
        self._at += 1
        found: list[Any] = []
        while not self._take("]"):
            if self._take(","):
                continue
            self._count()
            found.append(self.value(depth - 1))
            if self._peek() not in ",]":
                raise self._error("',' or ']' is expected")
        return found

    def _key(self, depth: int) -> str | ObjectKey:
        char = self._peek()
        if char in {'"', "'"}:
            return self._string()
        if char == "{":
            fields = self.value(depth - 1)
            if not all(isinstance(item, (str, int)) for item in fields.values()):
                raise self._error("a key object may hold only text and numbers")
            return ObjectKey.of({str(name): item for name, item in fields.items()})
        if char.isascii() and (char.isdigit() or char == "-"):
            number = self._number()
            if isinstance(number, int):
                return str(number)
            raise self._error("a fraction cannot be a key")
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._error("a key is expected")
        self._at = match.end()
        return match[0]

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self._error("a number is expected")
        if len(match[0]) > NUMBER_LENGTH_MAX:
            raise self._error(f"a number longer than {NUMBER_LENGTH_MAX} characters")
        self._at = match.end()
        if match[1] is None and match[2] is None:
            return int(match[0])
        number = float(match[0])
        if number in (float("inf"), float("-inf")):
            raise self._error("a number out of range")
        return number

    def _word(self) -> bool | None:
        match = _NAME.match(self._text, self._at)
        if match is None or match[0] not in _WORDS:
            raise self._error("a value is expected")
        self._at = match.end()
        return _WORDS[match[0]]

    def _string(self) -> str:
        quote = self._text[self._at]
        chunk = _CHUNKS[quote]
        self._at += 1
        parts: list[str] = []
        while True:
            match = chunk.match(self._text, self._at)
            if match is not None:
                parts.append(match[0])
                self._at = match.end()
            if self._at >= len(self._text):
                raise self._error("text without its end quote")
            self._at += 1
            if self._text[self._at - 1] == quote:
                break
            parts.append(self._escape())
        return _paired("".join(parts))

    def _escape(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in {"u", "x"}:
            match = (_HEX4 if char == "u" else _HEX2).match(self._text, self._at)
            if match is None:
                raise self._error("a bad escape")
            self._at = match.end()
            return chr(int(match[0], 16))
        if char not in _ESCAPES:
            raise self._error("a bad escape")
        return _ESCAPES[char]


def _paired(text: str) -> str:
    """Join surrogate pairs that came as two escapes; refuse half ones."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise JsonError("half a surrogate pair in a text") from error
