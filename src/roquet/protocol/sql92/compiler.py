"""From a filter expression to steps for the native filter (spec: wire §17.2).

A recursive descent with bounds on length, depth and size. Each rule writes its step behind those of
its operands, so that the steps are in the order in which they are worked out. What may be compared
with what is checked here, as Java does when it parses.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from typing import TYPE_CHECKING, TypeAlias

from roquet.protocol.sql92.lexer import Kind, Word, words
from roquet.protocol.tags import EXPRESSION_LENGTH_MAX, ExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_MAX = 512
DEPTH_MAX = 64
_LONG_MAX = (1 << 63) - 1
_DOUBLE_MIN = math.ulp(0.0)

Literal: TypeAlias = bool | int | float | bytes | None
Step: TypeAlias = (
    tuple[str, Literal]
    | tuple[str, int, int]
    | tuple[str, int, bytes, bool]
    | tuple[str, int, tuple[bytes, ...], bool]
)
"""A step: its name and what it needs; numbers are indexes of earlier steps."""


class _Is(enum.Enum):
    """What an operand is, as far as it matters to what may be done with it."""

    CONSTANT = enum.auto()
    PROPERTY = enum.auto()
    CONDITION = enum.auto()
    NUMBER = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class _Operand:
    step: int
    what: _Is
    depth: int
    value: Literal = None

    @property
    def is_condition(self) -> bool:
        """Whether it can stand alone: conditions, TRUE, FALSE and NULL."""
        return self.what is _Is.CONDITION or (
            self.what is _Is.CONSTANT and (self.value is None or isinstance(self.value, bool))
        )


def compile_sql(expression: str) -> tuple[Step, ...]:
    """Return the steps of an expression, the last one its result.

    What follows a complete expression is not looked at, as in Java. Raises ExpressionError, whose
    text says what is wrong and where.
    """
    if len(expression.encode("utf-8", "surrogatepass")) > EXPRESSION_LENGTH_MAX:
        raise ExpressionError(f"expression is longer than {EXPRESSION_LENGTH_MAX} bytes")
    return _Compiler(expression).compile()


class _Compiler:
    def __init__(self, expression: str) -> None:
        self._words = words(expression)
        self._seen: list[Word] = []
        self._steps: list[Step] = []
        self._depth = 0

    def compile(self) -> tuple[Step, ...]:
        self._condition(self._or())
        return tuple(self._steps)

    # --- words ----------------------------------------------------------------------------------

    def _look(self, ahead: int = 0) -> Word:
        while len(self._seen) <= ahead:
            self._seen.append(next(self._words))
        return self._seen[ahead]

    def _take(self) -> Word:
        word = self._look()
        if word.kind is not Kind.END:
            self._seen.pop(0)
        return word

    def _at(self, *texts: str, ahead: int = 0) -> bool:
        word = self._look(ahead)
        return word.kind in (Kind.KEYWORD, Kind.SYMBOL) and word.text in texts

    def _takes(self, text: str) -> bool:
        if not self._at(text):
            return False
        self._take()
        return True

    def _need(self, text: str) -> None:
        if not self._takes(text):
            raise self._unexpected(f"{text} is expected")

    def _unexpected(self, wanted: str) -> ExpressionError:
        word = self._look()
        found = "the expression ends" if word.kind is Kind.END else f"{word.text!r} stands"
        return ExpressionError(f"{wanted} where {found} (at {word.at})")

    # --- steps ----------------------------------------------------------------------------------

    def _write(self, step: Step, what: _Is, *operands: _Operand, value: Literal = None) -> _Operand:
        depth = 1 + max((operand.depth for operand in operands), default=-1)
        if depth > DEPTH_MAX:
            raise ExpressionError(f"expression is nested more than {DEPTH_MAX} deep")
        if len(self._steps) >= STEPS_MAX:
            raise ExpressionError(f"expression has more than {STEPS_MAX} parts")
        self._steps.append(step)
        return _Operand(len(self._steps) - 1, what, depth, value)

    def _constant(self, value: Literal) -> _Operand:
        return self._write(("literal", value), _Is.CONSTANT, value=value)

    def _condition(self, operand: _Operand) -> _Operand:
        if operand.is_condition:
            return operand
        if operand.what is _Is.PROPERTY:
            return self._write(("cast", operand.step, 0), _Is.CONDITION, operand)
        raise ExpressionError("a number or a text stands where a condition is expected")

    def _not(self, operand: _Operand) -> _Operand:
        return self._write(("not", operand.step, 0), _Is.CONDITION, operand)

    def _joined(self, name: str, left: _Operand, right: _Operand) -> _Operand:
        return self._write((name, left.step, right.step), _Is.CONDITION, left, right)

    def _ordered(self, name: str, left: _Operand, right: _Operand) -> _Operand:
        for operand in (left, right):
            number = isinstance(operand.value, int | float) and not isinstance(operand.value, bool)
            if operand.is_condition or (operand.what is _Is.CONSTANT and not number):
                raise ExpressionError(f"{name} compares numbers and properties only")
        return self._joined(name, left, right)

    def _equal(self, left: _Operand, right: _Operand) -> _Operand:
        for operand in (left, right):
            if operand.what is _Is.CONSTANT and operand.value is None:
                raise ExpressionError("NULL is compared by IS NULL and IS NOT NULL")
        both = left.what is _Is.CONSTANT and right.what is _Is.CONSTANT
        if both and left.is_condition and not right.is_condition:
            raise ExpressionError("TRUE and FALSE are not compared with a number or a text")
        return self._joined("=", left, right)

    # --- rules ----------------------------------------------------------------------------------

    def _or(self) -> _Operand:
        left = self._and()
        while self._takes("OR"):
            right = self._and()
            left = self._joined("or", *self._conditions(left, right))
        return left

    def _and(self) -> _Operand:
        left = self._equality()
        while self._takes("AND"):
            right = self._equality()
            left = self._joined("and", *self._conditions(left, right))
        return left

    def _conditions(self, left: _Operand, right: _Operand) -> tuple[_Operand, _Operand]:
        return self._condition(left), self._condition(right)

    def _equality(self) -> _Operand:
        left = self._comparison()
        while True:
            if self._takes("="):
                left = self._equal(left, self._comparison())
            elif self._takes("<>"):
                left = self._not(self._equal(left, self._comparison()))
            elif self._takes("IS"):
                negated = self._takes("NOT")
                self._need("NULL")
                left = self._joined("=", left, self._constant(None))
                left = self._not(left) if negated else left
            else:
                return left

    def _comparison(self) -> _Operand:
        left = self._unary()
        while True:
            if self._at(">", ">=", "<", "<="):
                left = self._ordered(self._take().text, left, self._unary())
                continue
            negated = self._at("NOT")
            special = self._special_at(1 if negated else 0)
            if negated:
                self._take()
                if special is None:
                    raise self._unexpected("IN, BETWEEN or a search is expected after NOT")
            if special is None:
                return left
            left = special(left, negated)

    def _special_at(self, ahead: int) -> Callable[[_Operand, bool], _Operand] | None:
        if self._at("CONTAINS", "STARTSWITH", "ENDSWITH", ahead=ahead):
            return self._search
        if self._at("BETWEEN", ahead=ahead):
            return self._between
        if self._at("IN", ahead=ahead):
            return self._in
        return None

    def _search(self, left: _Operand, negated: bool) -> _Operand:
        name = self._take().text.lower()
        step = (name, left.step, self._text(), negated)
        return self._write(step, _Is.CONDITION, left)

    def _between(self, left: _Operand, negated: bool) -> _Operand:
        self._take()
        low = self._unary()
        self._need("AND")
        high = self._unary()
        if negated:
            names, joint = ("<", ">"), "or"
        else:
            names, joint = (">=", "<="), "and"
            _check_range(low, high)
        return self._joined(
            joint, self._ordered(names[0], left, low), self._ordered(names[1], left, high)
        )

    def _in(self, left: _Operand, negated: bool) -> _Operand:
        self._take()
        self._need("(")
        texts = [self._text()]
        while self._takes(","):
            texts.append(self._text())
        self._need(")")
        if left.what is not _Is.PROPERTY:
            raise ExpressionError("IN stands behind a property only")
        if len(texts) > STEPS_MAX:
            raise ExpressionError(f"IN has more than {STEPS_MAX} texts")
        return self._write(("in", left.step, tuple(texts), negated), _Is.CONDITION, left)

    def _text(self) -> bytes:
        if self._look().kind is not Kind.TEXT:
            raise self._unexpected("a text in single quotes is expected")
        return self._take().text.encode("utf-8", "surrogatepass")

    def _unary(self) -> _Operand:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"expression is nested more than {DEPTH_MAX} deep")
        try:
            if self._takes("+"):
                return self._unary()
            if self._takes("-"):
                operand = self._unary()
                return self._write(("negate", operand.step, 0), _Is.NUMBER, operand)
            if self._takes("NOT"):
                return self._not(self._condition(self._unary()))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> _Operand:
        if self._takes("("):
            inner = self._or()
            self._need(")")
            return inner
        if self._at("TRUE", "FALSE", "NULL"):
            return self._constant({"TRUE": True, "FALSE": False, "NULL": None}[self._take().text])
        kind = self._look().kind
        if kind is Kind.NAME:
            name = self._take().text.encode()
            return self._write(("property", name), _Is.PROPERTY)
        if kind is Kind.TEXT:
            return self._constant(self._text())
        if kind is Kind.WHOLE:
            return self._constant(_whole(self._take()))
        if kind is Kind.DOUBLE:
            return self._constant(_double(self._take()))
        raise self._unexpected("a property, a number or a text is expected")


def _whole(word: Word) -> int:
    # Nineteen digits are the longest that fit; Python would read any number of them.
    if len(word.text) > len(str(_LONG_MAX)) or int(word.text) > _LONG_MAX:
        raise ExpressionError(f"{word.text[:24]} is greater than {_LONG_MAX}")
    return int(word.text)


def _double(word: Word) -> float:
    number = float(word.text)
    if math.isinf(number):
        raise ExpressionError(f"{word.text[:24]} is too great a number")
    if number < _DOUBLE_MIN:
        raise ExpressionError(f"{word.text[:24]} is too small a number: write 0")
    return number


def _check_range(low: _Operand, high: _Operand) -> None:
    if low.what is not _Is.CONSTANT or high.what is not _Is.CONSTANT:
        return
    if low.value is None or high.value is None:
        raise ExpressionError("BETWEEN has NULL as a bound")
    numbers = all(
        isinstance(bound, int | float) and not isinstance(bound, bool)
        for bound in (low.value, high.value)
    )
    if numbers and _number(high.value) < _number(low.value):
        raise ExpressionError("the lower bound of BETWEEN is above the upper one")


def _number(value: Literal) -> float | int:
    return value if isinstance(value, int | float) else 0
