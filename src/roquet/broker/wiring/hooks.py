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
    hooks: dict[str, list[Any]] = {SEND_GROUP: [], CONSUME_GROUP: [], RPC_GROUP: []}
    # Asked once for all: every look goes through the folders of what is installed.
    for point in entry_points(*hooks):
        group = point.group
        try:
            hooks[group].append(point.load()())
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"plugin {point.name} of {group} ({point.value}): {why}") from error
        log.warning("plugin %s of %s is in use: no request takes the fast path", point.name, group)
    return Hooks(
        send=tuple(hooks[SEND_GROUP]),
        consume=tuple(hooks[CONSUME_GROUP]),
        rpc=tuple(hooks[RPC_GROUP]),
    )
