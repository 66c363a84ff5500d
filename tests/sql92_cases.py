"""Seeded SQL92 expressions and properties, right ones and nearly right ones."""

from __future__ import annotations

import dataclasses
import random

NAMES = ("a", "b", "price", "TAGS", "None")
VALUES = (
    *("1", "5", "-3", "10", "3.5", "1e3", "0", "-0.0", "2147483648", "9223372036854775807"),
    *("x", "xyz", "abc", "true", "FALSE", " 7 ", "7d", "+4", "NaN", "Infinity", "", "1_0", "é"),
)
LITERALS = (
    *("1", "5", "10L", "0", "007", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("3.5", ".5", "5.", "1e3", "0.0", "1e400", "'x'", "'it''s'", "''", "'5'", "TRUE", "false"),
    "NULL",
)


@dataclasses.dataclass(frozen=True)
class Case:
    expression: str
    properties: dict[str, str]


def cases(seed: int, count: int) -> list[Case]:
    chance = random.Random(seed)
    return [Case(_spoilt(_condition(chance, 3), chance), _properties(chance)) for _ in range(count)]


def _properties(chance: random.Random) -> dict[str, str]:
    found = {name: chance.choice(VALUES) for name in NAMES if chance.random() < 0.7}
    # An empty value is no property on the wire.
    return {name: value for name, value in found.items() if value}


def _spoilt(text: str, chance: random.Random) -> str:
    if chance.random() < 0.9:
        return text
    at = chance.randrange(len(text) + 1)
    return (
        text[:at]
        + chance.choice(("(", ")", "=", "'", " and ", "-", "/* c */", "#", " "))
        + text[at:]
    )


def _operand(chance: random.Random) -> str:
    drawn = chance.random()
    if drawn < 0.55:
        return chance.choice(NAMES)
    if drawn < 0.9:
        return chance.choice(LITERALS)
    return chance.choice("-+") + _operand(chance)


def _text(chance: random.Random) -> str:
    return chance.choice(("'x'", "'5'", "''", "'y'", "'it''s'", "'true'"))


def _condition(chance: random.Random, depth: int) -> str:
    drawn = chance.random()
    if depth and drawn < 0.35:
        joint = chance.choice((" AND ", " or ", " Or "))
        return _condition(chance, depth - 1) + joint + _condition(chance, depth - 1)
    if depth and drawn < 0.5:
        return chance.choice(("NOT (", "(")) + _condition(chance, depth - 1) + ")"
    one = _operand(chance)
    maybe_not = chance.choice(("", "", "NOT "))
    search = chance.choice(("CONTAINS", "startswith", "EndsWith"))
    return chance.choice(
        (
            f"{one} {chance.choice(('=', '<>', '>', '>=', '<', '<='))} {_operand(chance)}",
            f"{one} {maybe_not}BETWEEN {_operand(chance)} AND {_operand(chance)}",
            f"{one} {maybe_not}IN ({_text(chance)}, {_text(chance)})",
            f"{one} IS {maybe_not}NULL",
            f"{one} {maybe_not}{search} {_text(chance)}",
            one,
        )
    )
