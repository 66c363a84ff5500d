"""A pytest plug-in: one setting keeps its default, whatever a test gives it.

`ROQUET_IGNORED_SETTING=deleteWhen pytest -p tools.mutants.ignored_setting ...`. A test that passes
nevertheless does not show that setting's effect.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import typing
from typing import TYPE_CHECKING, Any

from roquet.base.config import Setting
from roquet.broker.config import BrokerConfig
from roquet.namesrv.config import NamesrvConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = os.environ.get("ROQUET_IGNORED_SETTING", "")


def classes(of: type[Any]) -> Iterator[type[Any]]:
    """Yield a dataclass of settings and those inside it."""
    yield of
    for kind in typing.get_type_hints(of).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from classes(kind)


def ignore(key: str) -> int:
    """Have a setting keep its default in all objects to come; return in how many classes."""
    found = 0
    for kind in {each for top in (BrokerConfig, NamesrvConfig) for each in classes(top)}:
        for field in dataclasses.fields(kind):
            about = next((it for it in field.metadata.values() if isinstance(it, Setting)), None)
            if about is not None and about.java == key:
                kind.__init__ = _keeping(kind.__init__, field.name, field.default)
                found += 1
    return found


def _keeping(begin: Callable[..., None], name: str, default: object) -> Callable[..., None]:
    @functools.wraps(begin)
    def init(self: object, *arguments: object, **given: object) -> None:
        begin(self, *arguments, **given)
        object.__setattr__(self, name, default)

    return init


if KEY and not ignore(KEY):
    raise LookupError(f"no server declares a setting {KEY}")
