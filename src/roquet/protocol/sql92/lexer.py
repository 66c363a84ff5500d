"""Words of a filter expression (spec: wire §17.2).

One pass, one character at a time, without patterns: an expression comes from a stranger, and its
cost must not grow faster than its length.
"""

from __future__ import annotations

import dataclasses
import enum
import string
from typing import TYPE_CHECKING

from roquet.protocol.tags import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANKS = frozenset(" \t\n\r\f")
_DIGITS = frozenset(string.digits)
_NAME_BEGINS = frozenset(string.ascii_letters + "_$")
_NAME_GOES_ON = _NAME_BEGINS | _DIGITS
_SYMBOLS = ("<>", ">=", "<=", "=", ">", "<", "(", ")", ",", "+", "-")
KEYWORDS = frozenset(
    (
        *("AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "IN", "BETWEEN"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)


class Kind(enum.Enum):
    """What a word is."""

    KEYWORD = "keyword"
    NAME = "property"
    TEXT = "text"
    WHOLE = "whole number"
    DOUBLE = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """A word and where it begins; keywords are in capitals, texts without their quotes."""

    kind: Kind
    text: str
    at: int


def words(expression: str) -> Iterator[Word]:
    """Yield the words, END last. Raises ExpressionError at what begins none."""
    at = _skip(expression, 0)
    while at < len(expression):
        word, at = _word(expression, at)
        yield word
        at = _skip(expression, at)
    yield Word(Kind.END, "", len(expression))


def _skip(text: str, at: int) -> int:
    """Pass over blanks and closed comments; an open one is no comment, as in Java."""
    while at < len(text):
        if text[at] in _BLANKS:
            at += 1
        elif text.startswith("--", at) and (end := _line_end(text, at)) >= 0:
            at = end + 1
        elif text.startswith("/*", at) and (end := text.find("*/", at + 2)) >= 0:
            at = end + 2
        else:
            break
    return at


def _line_end(text: str, at: int) -> int:
    return min((end for end in (text.find("\n", at), text.find("\r", at)) if end >= 0), default=-1)


def _word(text: str, at: int) -> tuple[Word, int]:
    first = text[at]
    if first in _NAME_BEGINS:
        end = _run(text, at, _NAME_GOES_ON)
        name = text[at:end]
        if name.upper() in KEYWORDS:
            return Word(Kind.KEYWORD, name.upper(), at), end
        return Word(Kind.NAME, name, at), end
    if first == "'":
        return _text(text, at)
    if first in _DIGITS or (first == "." and text[at + 1 : at + 2] in _DIGITS):
        return _number(text, at)
    for symbol in _SYMBOLS:
        if text.startswith(symbol, at):
            return Word(Kind.SYMBOL, symbol, at), at + len(symbol)
    raise ExpressionError(f"character {first!r} at {at} begins nothing")


def _run(text: str, at: int, among: frozenset[str]) -> int:
    while at < len(text) and text[at] in among:
        at += 1
    return at


def _text(text: str, begin: int) -> tuple[Word, int]:
    """Read the longest text; a pair of quotes within it is one, unless no text would end."""
    pieces: list[str] = []
    at, last = begin + 1, -1
    while (end := text.find("'", at)) >= 0:
        pieces.append(text[at:end])
        last = end
        if not text.startswith("''", end):
            break
        at = end + 2
    if not pieces:
        raise ExpressionError(f"the text that begins at {begin} has no end")
    return Word(Kind.TEXT, "'".join(pieces), begin), last + 1


def _number(text: str, begin: int) -> tuple[Word, int]:
    """Read the longest number; a whole one has no leading zero (`007` is three words)."""
    digits_end = _run(text, begin, _DIGITS)
    end = digits_end
    if text[end : end + 1] == ".":
        end = _run(text, end + 1, _DIGITS)
    if text[end : end + 1] in ("e", "E"):
        sign = 1 if text[end + 1 : end + 2] in ("+", "-") else 0
        exponent_end = _run(text, end + 1 + sign, _DIGITS)
        if exponent_end > end + 1 + sign:
            end = exponent_end
    if end > digits_end:
        return Word(Kind.DOUBLE, text[begin:end], begin), end
    if text[begin] == "0":
        return Word(Kind.WHOLE, "0", begin), begin + 1
    if text[end : end + 1] in ("l", "L"):
        return Word(Kind.WHOLE, text[begin:end], begin), end + 1
    return Word(Kind.WHOLE, text[begin:end], begin), end
