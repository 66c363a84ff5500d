"""Objects of frozen dataclasses made quickly, for those that are made for each message.

`__init__` of a frozen dataclass sets each field by a call. A twin of the class that is not frozen
has the same slots and sets them at once; what it made then becomes an object of the class.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def row_maker(kind: Callable[..., T]) -> Callable[..., T]:
    """Return what `maker` does, but for values in the order of the fields, without names."""
    return cast("Callable[..., T]", _twin(cast("type[Any]", kind), keywords=False))


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """Return what makes objects of a frozen dataclass with slots, by the arguments of the class.

    Raises TypeError for a class that is none, has a base class or does more in `__init__`.
    """
    return cast("Callable[P, T]", _twin(cast("type[Any]", kind), keywords=True))


def _twin(made: type[Any], *, keywords: bool) -> type[Any]:
    if (
        not dataclasses.is_dataclass(made)
        or "__slots__" not in vars(made)
        or hasattr(made, "__post_init__")
        or made.__bases__ != (object,)
    ):
        raise TypeError(f"{made.__name__} is not a plain dataclass with slots")
    fields: list[tuple[str, Any, Any]] = []
    for its in dataclasses.fields(made):
        field: Any = dataclasses.field(
            default=its.default,
            default_factory=its.default_factory,
            kw_only=its.kw_only and keywords,
        )
        fields.append((its.name, its.type, field))

    def become(draft: Any) -> None:
        draft.__class__ = made

    return dataclasses.make_dataclass(
        made.__name__, fields, slots=True, eq=False, repr=False, namespace={"__post_init__": become}
    )
