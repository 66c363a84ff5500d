"""What a view or an action of the console is, and how what people and programs give it is read.

One row makes the page, the call of the JSON API, its line in the OpenAPI document, the role that
is asked for and the entry of the audit log.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from roquet.console.context import Context
    from roquet.console.roles import Role

Data: TypeAlias = "dict[str, Any]"
"""What a view shows: values that JSON has."""
_NUMBER_MAX = 2**53
_KINDS = {
    "text": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
    "texts": "a list of texts",
}
_YES = ("true", "on", "1", "yes")
_NO = ("false", "off", "0", "no", "")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One value that is given."""

    name: str
    about: str
    kind: str = "text"
    """`text`, `integer`, `boolean`, or `texts`: several."""
    required: bool = False
    default: Any = None
    low: int = 0
    high: int = _NUMBER_MAX
    size_max: int = 300
    """Characters of a text."""
    choices: tuple[str, ...] = ()
    secret: bool = False
    """Left out of the audit log."""


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What an action did, and where its page goes on."""

    text: str
    goto: str = "/"
    """Path below the console's root, with its query."""
    more: Data = dataclasses.field(default_factory=dict[str, Any])
    """What programs get beside the text."""
    told: str = ""
    """A secret for the eyes of who asked: shown once, and in no log."""
    results: Sequence[Mapping[str, str]] = ()
    """What became of each of several: `id` and `result`, for the next page."""


@dataclasses.dataclass(frozen=True, slots=True)
class File:
    """What a browser saves."""

    name: str
    kind: str
    """Its media type."""
    data: bytes = dataclasses.field(repr=False)
    rows: int
    missing: str = ""
    """What is not in it, and how to get it; empty when all is."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Something to look at: `GET path`, and `GET /api` + path."""

    path: str
    title: str
    role: Role
    show: Callable[[Context, Data], Awaitable[Data]]
    template: str
    fields: tuple[Field, ...] = ()
    is_own: bool = False
    """Whether it is of the console itself, or what it looks at by its own account."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do: `POST path` of a form, and `POST /api` + path of a JSON object."""

    path: str
    title: str
    role: Role
    do: Callable[[Context, Data], Awaitable[Done]]
    fields: tuple[Field, ...] = ()
    is_change: bool = True
    """Whether a console that is read-only refuses it."""
    is_own: bool = False
    """Whether accounts of the cluster may not do it.

    It is about the console itself, or changes name servers, which check nobody in access control
    1.0: what they carry out for an account says nothing about its rights.
    """


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Something to take along: `GET path`, or `POST path` of a form; `GET /api` + path."""

    path: str
    title: str
    role: Role
    make: Callable[[Context, Data], Awaitable[File]]
    fields: tuple[Field, ...] = ()
    is_own: bool = False


def of_form(fields: Sequence[Field], given: Mapping[str, Sequence[str]]) -> Data:
    """Read the values of a form or a query. Raises UsageError."""
    unknown = [name for name in given if name not in {it.name for it in fields}]
    if unknown:
        raise UsageError(f"{unknown[0][:40]!r} is no field here")
    found: Data = {}
    for field in fields:
        values = [it for it in given.get(field.name, ()) if it != ""]
        if field.kind == "texts":
            found[field.name] = [_text(field, it) for it in _few(field, values)]
        elif not values:
            found[field.name] = _absent(field)
        elif len(values) > 1:
            raise UsageError(f"{field.name} is given twice")
        else:
            found[field.name] = _value(field, values[0])
    return found


def of_json(fields: Sequence[Field], given: Mapping[str, Any]) -> Data:
    """Read the values of a JSON object, each of the kind that the document names.

    Raises UsageError.
    """
    known = {it.name: it for it in fields}
    texts: dict[str, list[str]] = {}
    for name, value in given.items():
        kind = known[name].kind if name in known else "text"
        values = cast("Sequence[Any]", value) if kind == "texts" else [value]
        least = list if kind == "texts" else object
        if not isinstance(value, least) or not all(_is_of(kind, it) for it in values):
            raise UsageError(f"{name[:40]!r} should be {_KINDS[kind]}")
        texts[name] = [str(it).lower() if isinstance(it, bool) else str(it) for it in values]
    return of_form(fields, texts)


def _is_of(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, str)


def shown(fields: Sequence[Field], given: Data) -> dict[str, str]:
    """Return what of the values an audit log may have."""
    return {
        it.name: "***" if it.secret else str(given[it.name])
        for it in fields
        if given.get(it.name) not in (None, "", [])
    }


def _absent(field: Field) -> Any:
    if field.required:
        raise UsageError(f"{field.name} is missing: {field.about}")
    return field.default


def _few(field: Field, values: list[str]) -> list[str]:
    if field.required and not values:
        raise UsageError(f"{field.name} is missing: {field.about}")
    if len(values) > field.high:
        raise UsageError(f"{field.name}: at most {field.high} at once")
    return values


def _value(field: Field, text: str) -> Any:
    if field.kind == "integer":
        return _integer(field, text.strip())
    if field.kind == "boolean":
        if text.lower() not in _YES + _NO:
            raise UsageError(f"{field.name}: {text[:40]!r} is neither true nor false")
        return text.lower() in _YES
    return _text(field, text)


def _integer(field: Field, text: str) -> int:
    digits = text[1:] if text[:1] == "-" else text
    high = min(field.high, _NUMBER_MAX)
    if digits.isascii() and digits.isdigit() and len(digits) <= 16:
        number = int(text)
        if field.low <= number <= high:
            return number
    raise UsageError(f"{field.name}: {text[:40]!r} is no whole number of {field.low} to {high}")


def _text(field: Field, text: str) -> str:
    if len(text) > field.size_max:
        raise UsageError(f"{field.name} has {len(text)} characters, at most {field.size_max}")
    if "\0" in text:
        raise UsageError(f"{field.name} has a zero character")
    if field.choices and text not in field.choices:
        raise UsageError(f"{field.name}: {text[:40]!r} is none of {', '.join(field.choices)}")
    return text
