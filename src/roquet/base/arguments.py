"""Arguments of public calls, which callers without a type checker may give any type.

Each function takes what an argument is called and what was given, and raises UsageError.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_C = TypeVar("_C")


def a_text(name: str, given: object) -> None:
    """Check that it is a str of valid Unicode."""
    if not isinstance(given, str):
        raise _wrong(name, "a str", given)
    if not given.isascii():
        try:
            given.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} has to be valid Unicode: {error}") from error


def an_instance(name: str, given: object, kind: type, *, optional: bool = False) -> None:
    """Check that it is of a class, or None where it is `optional`."""
    if not isinstance(given, kind) and not (optional and given is None):
        raise _wrong(name, f"a {kind.__name__}", given)


def a_function(name: str, given: object) -> None:
    """Check that it can be called, or is None."""
    if given is not None and not callable(given):
        raise _wrong(name, "a function", given)


def a_time_s(name: str, given: object) -> None:
    """Check that it is a number, of seconds mostly, or None."""
    if given is not None:
        a_number(name, given)


def a_number(name: str, given: object) -> None:
    """Check that it is a number."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or math.isnan(given):
        raise _wrong(name, "a number", given)


def texts(name: str, given: object) -> None:
    """Check that it is a str or has nothing but str in it; an iterator is not used up."""
    if isinstance(given, (list, tuple, set, frozenset, Mapping)):
        for it in cast("Iterable[object]", given):
            if not isinstance(it, str):
                raise _wrong(f"each of {name}", "a str", it)
    elif isinstance(given, (bytes, bytearray)) or not isinstance(given, Iterable):
        raise _wrong(name, "a str or several", given)


def table_of_texts(name: str, given: object) -> None:
    """Check that it is a mapping from str to str, or None."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise _wrong(name, "a mapping", given)
    for key, value in cast("Mapping[object, object]", given).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"{name} map str to str, not {key!r:.40} to {value!r:.40}")


def like_defaults(options: DataclassInstance) -> None:
    """Check that each number and flag of options is of the type of its default."""
    for field in dataclasses.fields(options):
        given: object = getattr(options, field.name)
        if isinstance(field.default, bool):
            an_instance(field.name, given, bool)
        elif isinstance(field.default, (int, float)):
            a_number(field.name, given)
            if isinstance(field.default, int) and not isinstance(given, int):
                raise _wrong(field.name, "an int", given)
        elif isinstance(field.default, str):
            a_text(field.name, given)


def _wrong(name: str, wanted: str, given: object) -> UsageError:
    return UsageError(f"{name} is {wanted}, not {type(given).__name__}")


# --- all calls of a class ----------------------------------------------------------------------


def checked(cls: type[_C]) -> type[_C]:
    """Have each public method of a class check what it is given by its annotations.

    They have to be texts (`from __future__ import annotations`). A method is left as it is when it
    takes nothing; what a name stands for that is imported for type checkers alone is told by the
    names of the given object's classes, so that nothing more is imported.
    """
    for name, member in vars(cls).copy().items():
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(cls, name, _checking(member))
    return cls


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    known = getattr(function, "__globals__", {})
    kinds = {it.name: _kind(ast.parse(it.annotation, mode="eval").body, known) for it in parameters}
    names = tuple(kinds)
    if not kinds:
        return function

    def check(given: tuple[object, ...], named: dict[str, object]) -> None:
        # What is too much, or named wrongly, is the TypeError of the call itself.
        for name, value in (*zip(names, given, strict=False), *named.items()):
            kind = kinds.get(name)
            if kind is not None and not kind.takes(value):
                raise _wrong(name, kind.text, value)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(self: object, /, *given: Any, **named: Any) -> Any:
            check(given, named)
            return await function(self, *given, **named)

        return awaited

    @functools.wraps(function)
    def called(self: object, /, *given: Any, **named: Any) -> Any:
        check(given, named)
        return function(self, *given, **named)

    return called


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """What an annotation allows: a test, and how it is said."""

    takes: Callable[[object], bool]
    text: str


def _is_number(given: object) -> bool:
    return isinstance(given, (int, float)) and not isinstance(given, bool) and given == given  # noqa: PLR0124


def _is_text(given: object) -> bool:
    try:
        return isinstance(given, str) and bool(given.encode() or True)
    except UnicodeEncodeError:
        return False


_SIMPLE: Mapping[str, _Kind] = {
    "None": _Kind(lambda it: it is None, "None"),
    "str": _Kind(_is_text, "a str of valid Unicode"),
    "bytes": _Kind(lambda it: isinstance(it, bytes), "bytes"),
    "bool": _Kind(lambda it: isinstance(it, bool), "True or False"),
    "int": _Kind(lambda it: isinstance(it, int) and not isinstance(it, bool), "an int"),
    "float": _Kind(_is_number, "a number"),
    "object": _Kind(lambda _: True, "anything"),
    "Any": _Kind(lambda _: True, "anything"),
}
_FUNCTIONS = frozenset({"Callable"})
_TABLES = frozenset({"Mapping", "dict"})


def _kind(node: ast.expr, known: Mapping[str, Any]) -> _Kind:
    """Return what an annotation allows."""
    if isinstance(node, ast.BinOp):
        left, right = _kind(node.left, known), _kind(node.right, known)
        return _Kind(lambda it: left.takes(it) or right.takes(it), f"{left.text} or {right.text}")
    if isinstance(node, ast.Subscript):
        return _generic(ast.unparse(node.value), node.slice, known)
    name = ast.unparse(node)
    if name in _SIMPLE:
        return _SIMPLE[name]
    alias = known.get(name)
    if typing.get_origin(alias) is typing.Literal:
        return _literal(typing.get_args(alias))
    if alias is not None and not isinstance(alias, type):
        return _kind(ast.parse(str(alias), mode="eval").body, known)
    short = name.rpartition(".")[2]
    return _Kind(lambda it: any(one.__name__ == short for one in type(it).__mro__), f"a {short}")


def _generic(name: str, inner: ast.expr, known: Mapping[str, Any]) -> _Kind:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name in _FUNCTIONS:
        return _Kind(callable, "a function")
    if name == "Literal":
        return _literal(tuple(ast.literal_eval(it) for it in parts))
    kinds = [_kind(it, known) for it in parts if not _is_ellipsis(it)]
    if name in _TABLES:
        key, value = kinds
        return _Kind(
            lambda it: (
                isinstance(it, Mapping)
                and all(
                    key.takes(k) and value.takes(v)
                    for k, v in cast("Mapping[object, object]", it).items()
                )
            ),
            f"a mapping from {key.text} to {value.text}",
        )
    if name == "tuple" and len(kinds) == len(parts):
        return _Kind(
            lambda it: (
                isinstance(it, tuple)
                and len(cast("tuple[object, ...]", it)) == len(kinds)
                and all(
                    kind.takes(one)
                    for kind, one in zip(kinds, cast("tuple[object, ...]", it), strict=True)
                )
            ),
            f"a tuple of {' and '.join(kind.text for kind in kinds)}",
        )
    (each,) = kinds
    text = f"several, as a list, each {each.text}"
    if name == "Sequence":
        return _Kind(lambda it: _are(it, each) and not isinstance(it, Mapping), text)
    return _Kind(lambda it: _are(it, each), text)


def _are(given: object, each: _Kind) -> bool:
    """Tell whether it is several of a kind; one str is not several, an iterator is not used up."""
    if isinstance(given, (str, bytes, bytearray)) or not isinstance(given, Iterable):
        return False
    if isinstance(given, (Collection, Mapping)):
        return all(each.takes(it) for it in cast("Collection[object]", given))
    return True


def _literal(values: tuple[object, ...]) -> _Kind:
    return _Kind(
        lambda it: isinstance(it, str) and it in values, " or ".join(repr(it) for it in values)
    )


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
