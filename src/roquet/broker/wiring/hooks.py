"""Finding plugins: the entry points of installed packages."""

from __future__ import annotations

import logging
from typing import Any

from roquet.base.errors import UsageError
from roquet.base.installed import entry_points
from roquet.broker.hooks import CONSUME_GROUP, RPC_GROUP, SEND_GROUP, Hooks

log = logging.getLogger(__name__)


def load_hooks() -> Hooks:
    """Return the hooks of all installed plugins. Raises UsageError for one that cannot be made."""
    return Hooks(
        send=tuple(_load(SEND_GROUP)),
        consume=tuple(_load(CONSUME_GROUP)),
        rpc=tuple(_load(RPC_GROUP)),
    )


def _load(group: str) -> list[Any]:
    hooks: list[Any] = []
    for point in entry_points(group):
        try:
            hooks.append(point.load()())
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"plugin {point.name} of {group} ({point.value}): {why}") from error
        log.warning("plugin %s of %s is in use: no request takes the fast path", point.name, group)
    return hooks
