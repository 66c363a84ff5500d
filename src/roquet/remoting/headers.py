"""Typed headers of requests that come with every message, read by the compiled core.

It reads what is plain; the rules of what is missing or wrong are those of `protocol.header`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from roquet._native import HeaderPlan
from roquet.protocol.header import Header

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command

_H = TypeVar("_H", bound=Header)


def reader(cls: type[_H], *, short: bool = False) -> Callable[[Command], _H]:
    """Return what reads a request's fields as `cls.decode` does; `short` are one-letter names.

    What is returned raises HeaderError.
    """
    plan = HeaderPlan(cls.rows(short=short))
    of = cls.of

    def read(command: Command) -> _H:
        ext = command.ext
        values = None if ext is None else plan.read(ext)
        return cls.decode(ext, short=short) if values is None else of(values)

    return read
