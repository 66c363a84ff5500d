"""Which part of the relay answers what: packets, messages and web calls, each registered once."""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Generic, TypeVar

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

H = TypeVar("H")


@dataclasses.dataclass(frozen=True, slots=True)
class Registration(Generic[H]):
    """One row."""

    name: str
    owner: str
    handler: H


class Registry(Generic[H]):
    """Handlers by id. `kind` (`packet`, say) is what a row is called in errors."""

    def __init__(self, kind: str) -> None:
        """Know nobody yet."""
        self.kind = kind
        self._rows: dict[object, Registration[H]] = {}

    def add(self, key: object, name: str, owner: str, handler: H) -> None:
        """Register a handler. Raises UsageError that names both owners when the id is taken."""
        taken = self._rows.get(key)
        if taken is not None:
            raise UsageError(
                f"{self.kind} {name} is registered twice: by {taken.owner} and by {owner}"
            )
        self._rows[key] = Registration(name, owner, handler)

    def get(self, key: object) -> H | None:
        """Return the handler of an id."""
        row = self._rows.get(key)
        return None if row is None else row.handler

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[object, Registration[H]]]:
        return iter(self._rows.items())

    def explain(self) -> str:
        """Return the table as text."""
        lines = [
            f"{row.name:<28} {row.owner:<18} {_about(row.handler)}" for row in self._rows.values()
        ]
        return "\n".join((f"{self.kind:<28} {'owner':<18} handler", *lines))


def _about(handler: object) -> str:
    text = inspect.getdoc(handler)
    return text.splitlines()[0] if text and callable(handler) else type(handler).__name__
