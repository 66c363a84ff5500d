"""SQL92 filters: grammar, three-valued logic, types, and what is refused at once."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet._native import Filter
from roquet.protocol import properties
from roquet.protocol.sql92.compiler import STEPS_MAX, compile_sql
from roquet.protocol.tags import ExpressionError
from sql92_cases import cases

GIVEN = {"price": "5", "color": "red", "name": "it's", "ratio": "2.5", "flag": "true"}


def evaluate(expression: str, given_properties: dict[str, str] | None = None) -> bool | None:
    text = properties.write(GIVEN if given_properties is None else given_properties)
    return Filter(compile_sql(expression)).evaluate(text.encode())


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("price > 3", True),
        ("price > 3 AND color = 'red'", True),
        ("price BETWEEN 5 AND 7", True),
        ("price NOT BETWEEN 5 AND 7", False),
        ("color IN ('blue', 'red')", True),
        ("color not in ('blue', 'red')", False),
        ("ratio >= 2.5 and ratio < 2.6", True),
        ("name = 'it''s'", True),
        ("color <> 'blue'", True),
        ("color CONTAINS 'e'", True),
        ("color NOT STARTSWITH 'b'", True),
        ("color ENDSWITH 'd'", True),
        ("flag = TRUE", True),
        ("none IS NULL", True),
        ("none IS NOT NULL", False),
        ("color IS NOT NULL", True),
        ("NOT (price = 5)", False),
        ("-price = 5", None),
        ("price = +5", True),
        ("flag", False),
        ("/* five */ price = 5", True),
        ("price = -- five\n5", True),
        ("price = 5 whatever follows is not looked at", True),
    ],
)
def test_an_expression_has_its_result(expression: str, result: bool | None) -> None:
    assert evaluate(expression) is result


THREE = {"t": "price = 5", "f": "price = 6", "n": "none = 5"}


@pytest.mark.parametrize("left", "tfn")
@pytest.mark.parametrize("right", "tfn")
def test_logic_has_three_values(left: str, right: str) -> None:
    values = {"t": True, "f": False, "n": None}
    both = {left, right}
    conjunction = False if "f" in both else None if "n" in both else True
    disjunction = True if "t" in both else None if "n" in both else False
    assert evaluate(f"{THREE[left]} AND {THREE[right]}") is conjunction
    assert evaluate(f"{THREE[left]} OR {THREE[right]}") is disjunction
    negation = {"t": False, "f": True, "n": None}[left]
    assert evaluate(f"NOT ({THREE[left]})") is negation
    assert values[left] is evaluate(THREE[left])


def test_a_text_that_is_no_number_spoils_the_whole_unless_it_is_not_reached() -> None:
    with pytest.raises(ValueError, match="no number"):
        evaluate("color > 5 OR price = 5")
    assert evaluate("price = 5 OR color > 5") is True
    with pytest.raises(ValueError, match="no number"):
        evaluate("price > 3", {"price": "2147483648"})
    assert evaluate("price < 2147483649", {"price": "2147483648"}) is True


@pytest.mark.parametrize(
    "expression",
    [
        *("", "   ", "price >", "> 3", "price = ", "price = NULL", "5", "'x'", "price == 5"),
        *("price IN ()", "price IN (5)", "5 IN ('5')", "price BETWEEN 7 AND 5", "price BETWEEN 5"),
        *(
            "price > 'x'",
            "price > TRUE",
            "TRUE = 5",
            "color = 'red",
            "price = 0.0",
            "price = 1e999",
        ),
        *("price = 9223372036854775808", "(price = 5", "price NOT 5", "color CONTAINS red", "#"),
    ],
)
def test_b11_what_does_not_parse_is_refused_with_the_place(expression: str) -> None:
    with pytest.raises(ExpressionError):
        compile_sql(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 2_000 + "a = 1" + ")" * 2_000,
        "NOT " * 1_000 + "a",
        " OR ".join(["a = 1"] * 400),
        "-" * 4_000 + "1 = a",
        "a = '" + "x" * (1 << 20) + "'",
        "a IN (" + ",".join(["'x'"] * 1_000) + ")",
        "a = " + "9" * 4_000,
        "/*" * 2_000,
    ],
)
def test_b11_monstrous_expressions_are_refused_quickly(expression: str) -> None:
    begun = time.process_time()
    with pytest.raises(ExpressionError):
        compile_sql(expression)
    assert time.process_time() - begun < 1


def test_steps_are_checked_again_by_the_native_side() -> None:
    for steps in (
        [],
        [("not", 0)],
        [("property", b"a"), ("and", 0, 2)],
        [("property", b"a")] * (STEPS_MAX + 1),
        [("property", b"a")] + [("not", at) for at in range(100)],
        [("nonsense", 1)],
    ):
        with pytest.raises(ValueError, match=r"step|nested|called"):
            Filter(steps)


def test_a_retry_filter_looks_at_the_topic_of_origin() -> None:
    chosen = Filter.by_origin({"orders": compile_sql("price > 3")})
    for origin, price, wanted in (("orders", "5", True), ("orders", "2", False), ("x", "2", True)):
        text = properties.write({"RETRY_TOPIC": origin, "price": price})
        assert chosen.matches(text.encode()) is wanted
    assert chosen.matches(b"")


@settings(deadline=None)
@given(text=st.text(alphabet="ab()'=<>0123456789.eELl -+/*\n,ANDORNOTIS", max_size=60))
def test_any_text_either_compiles_or_is_refused(text: str) -> None:
    try:
        steps = compile_sql(text)
    except ExpressionError:
        return
    assert Filter(steps).matches(b"a\x015\x02b\x01x\x02") in (True, False)


def test_generated_expressions_cover_every_outcome() -> None:
    seen: set[object] = set()
    for case in cases(3, 400):
        try:
            seen.add(evaluate(case.expression, case.properties))
        except ExpressionError:
            seen.add("X")
        except ValueError:
            seen.add("E")
    assert seen == {True, False, None, "X", "E"}
