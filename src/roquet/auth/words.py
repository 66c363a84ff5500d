"""The words of policy entries as people write them, checked before a broker is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.auth.bodies import read_resource, word
from roquet.auth.model import Action, Match, ResourceType
from roquet.auth.sources import Source
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

ACTIONS = tuple(it.value for it in Action if it is not Action.ANY)
"""What an entry may name."""
_KINDS = ", ".join(it.value for it in ResourceType if it is not ResourceType.ANY)


def check(resources: Sequence[str], actions: Sequence[str], sources: Sequence[str]) -> None:
    """Raise UsageError for a word that brokers refuse, or pass over (an unknown action)."""
    for text in actions:
        if word(Action, text) in (None, Action.ANY):
            raise UsageError(f"actions: {text[:40]!r} is none of {', '.join(ACTIONS)}")
    for text in resources:
        found = read_resource(text)
        if found is None or (found.match is not Match.ANY and not found.name):
            raise UsageError(
                f"{text[:80]!r} should look like Topic:orders, Topic:or*, Topic:* or *;"
                f" kinds are {_KINDS}"
            )
    for text in sources:
        try:
            Source(text)
        except UsageError:
            raise UsageError(
                f"from: {text[:80]!r} should be an IP address or a block, as 10.0.0.0/8"
            ) from None
