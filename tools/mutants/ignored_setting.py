"""One setting keeps its default, whatever a test gives it.

A test that passes nevertheless does not show that setting's effect. `environment` has a process
and its children import this module when they start, by `child/sitecustomize.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.config import Setting
from roquet.broker.config import BrokerConfig
from roquet.namesrv.config import NamesrvConfig
from roquet.remoting import tls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VARIABLE = "IGNORED_SETTING"
KEY = os.environ.get(VARIABLE, "")
ROOT = Path(__file__).parents[2]
TLS_FILE = tls.FILE_KEY


def environment(key: str, home: str) -> dict[str, str]:
    """Return the environment of a process that is to ignore a setting.

    What is kept by default in the user's home goes to `home`. Options of the pytest around it do
    not hold for it: its failures are wanted, and in that run's report they would count.
    """
    kept = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
    path = os.pathsep.join((str(Path(__file__).parent / "child"), str(ROOT)))
    return {**kept, VARIABLE: key, "PYTHONPATH": path, "HOME": home}


def classes(of: type[Any]) -> Iterator[type[Any]]:
    """Yield a dataclass of settings and those inside it."""
    yield of
    for kind in typing.get_type_hints(of).values():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from classes(kind)


def ignore(key: str) -> int:
    """Have a setting keep its default in all objects to come; return in how many classes."""
    found = 0
    if key == TLS_FILE:
        # It is read before there is a configuration: with another name nobody asks for it.
        tls.FILE_KEY = f"{key}.ignored"
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
