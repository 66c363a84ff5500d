"""What somebody may do in the console, and which role the groups of an identity come to."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Role(enum.IntEnum):
    """What somebody may do; each role may do all that those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        """The name for people."""
        return self.name.lower()


def role_of(text: str) -> Role:
    """Return the role of a name. Raises UsageError."""
    try:
        return Role[text.upper()]
    except KeyError:
        there = ", ".join(it.word for it in Role)
        raise UsageError(f"{text[:40]!r} is no role: {there}") from None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RoleMap:
    """The groups of each role; by default a group has the name of its role."""

    groups: dict[str, Role] = dataclasses.field(
        default_factory=lambda: {it.word: it for it in Role}
    )
    others: Role | None = None
    """The role of who is in none of the groups; None: no access."""

    def of(self, groups: Iterable[str]) -> Role | None:
        """Return the highest role of these groups."""
        found = [self.groups[it] for it in groups if it in self.groups]
        if self.others is not None:
            found.append(self.others)
        return max(found, default=None)
