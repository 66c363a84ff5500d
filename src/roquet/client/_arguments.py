"""Arguments of public calls, which callers without a type checker may give any type.

Each function takes what an argument is called and what was given, and raises UsageError.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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
