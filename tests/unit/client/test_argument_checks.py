"""Every public method of consumers and of `admin` checks what it is given, by its signature."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

import roquet
import roquet.sync
from roquet import admin
from roquet.base.arguments import checked
from roquet.base.errors import UsageError
from roquet.client import Consumer, PullConsumer, Received, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import Iterable

FAMILIES = [type(it) for it in vars(admin.Admin(None)).values()]  # type: ignore[arg-type]
CLASSES = [*FAMILIES, Consumer, PullConsumer, SimpleConsumer, Received]
ANYTHING = {"Any", "object"}
METHODS = [
    (kind, name)
    for kind in CLASSES
    for name, member in vars(kind).items()
    if inspect.isfunction(member) and not name.startswith("_")
]
ARGUMENTS = [
    (kind, name, parameter)
    for kind, name in METHODS
    for parameter in list(inspect.signature(getattr(kind, name)).parameters.values())[1:]
]


def nobody(kind: Any) -> Any:
    """Return an object that has no connection: nothing may be asked before the check."""
    return kind.__new__(kind)


def refusal(kind: type, name: str, argument: str, value: object) -> str:
    async def ask() -> None:
        result = getattr(nobody(kind), name)(**{argument: value})
        if inspect.isawaitable(result):
            await result

    with pytest.raises(UsageError) as caught:
        asyncio.run(ask())
    return str(caught.value)


def test_families_and_consumers_are_all_walked() -> None:
    assert len(FAMILIES) == 11
    assert len(METHODS) > 100
    assert len(ARGUMENTS) > 190


@pytest.mark.parametrize(("kind", "name", "parameter"), ARGUMENTS, ids=str)
def test_argument_of_a_wrong_type_is_named_with_what_to_give(
    kind: type, name: str, parameter: inspect.Parameter
) -> None:
    assert parameter.annotation not in ANYTHING, "an argument that takes anything"
    for wrong in (object(), 1j, [object()], {1: object()}):
        text = refusal(kind, name, parameter.name, wrong)
        assert text.startswith(f"{parameter.name} is ")
        assert text.endswith(f", not {type(wrong).__name__}")


@pytest.mark.parametrize(("kind", "name", "parameter"), ARGUMENTS, ids=str)
def test_flags_texts_and_numbers_are_not_taken_for_one_another(
    kind: type, name: str, parameter: inspect.Parameter
) -> None:
    wrong: dict[str, Iterable[object]] = {
        "str": (5, True, b"t", "\ud800", None),
        "int": ("5", True, 1.5, None),
        "float": ("5", True, float("nan"), None),
        "bool": (1, "yes", None),
        "Iterable[str] | None": ("orders", [5], b"orders", {1: 2}),
    }
    for value in wrong.get(parameter.annotation, ()):
        assert refusal(kind, name, parameter.name, value).startswith(f"{parameter.name} is ")


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        ("str | None", ["a", None, "\u00e4"], [5]),
        ("int | Literal['earliest', 'latest'] | None", [0, "latest", None], ["newest", True]),
        ("Mapping[str, int] | None", [{}, {"a": 1}, None], [{"a": "1"}, {1: 1}, [("a", 1)]]),
        ("tuple[str, int] | None", [("a", 1), None], [("a",), ("a", "1"), ["a", 1], ("a", 1, 2)]),
        ("tuple[str, ...]", [(), ("a", "b")], [("a", 1), "ab"]),
        ("Iterable[str]", [["a"], ("a",), {"a"}, iter([5])], ["a", b"a", 5, [5]]),
        ("float", [1, 1.5, float("inf")], ["1", None, False]),
        ("Callable[[int], bool] | None", [len, None], ["len"]),
        ("UsageError", [UsageError("x")], [ValueError("x"), UsageError]),
    ],
)
def test_annotation_takes_what_it_says(
    annotation: str, good: list[object], bad: list[object]
) -> None:
    def method(self: object, given: Any) -> object:
        del self
        return given

    method.__annotations__["given"] = annotation
    kind: Any = checked(type("Use", (), {"method": method}))
    use = kind().method
    for value in good:
        assert use(value) is value
        assert use(given=value) is value
    for value in bad:
        with pytest.raises(UsageError, match="given is "):
            use(value)


def test_what_is_missing_or_too_much_stays_a_type_error() -> None:
    topics = nobody(FAMILIES[0])
    with pytest.raises(TypeError, match="missing 1 required"):
        asyncio.run(topics.route())
    with pytest.raises(TypeError, match="unexpected keyword"):
        asyncio.run(topics.route("t", nope=1))


def test_blocking_calls_check_as_the_others_do() -> None:
    with roquet.sync.connect("rmq://127.0.0.1:1") as mq:
        with pytest.raises(UsageError, match="topic is a str"):
            mq.admin().topics.route(5)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="brokers is several"):
            mq.admin().groups.get("g", brokers="broker-a")
        with (
            mq.pull_consumer("g") as consumer,
            pytest.raises(UsageError, match="max_messages is an int"),
        ):
            consumer.poll("5")  # type: ignore[arg-type]
