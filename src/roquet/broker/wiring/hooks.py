"""Finding plugins: the entry points of installed packages."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Final

from roquet.base.errors import UsageError
from roquet.base.installed import entry_points
from roquet.broker.hooks import CONSUME_GROUP, RPC_GROUP, SEND_GROUP, Hooks

log = logging.getLogger(__name__)

METHODS: Final = {
    SEND_GROUP: ("before_send", "after_send"),
    CONSUME_GROUP: ("before_consume", "after_consume"),
    RPC_GROUP: ("before_request", "after_response"),
}
"""What is called of a hook of each group."""


def load_hooks() -> Hooks:
    """Return the hooks of all installed plugins. Raises UsageError for one that cannot be made."""
    hooks: dict[str, list[Any]] = {SEND_GROUP: [], CONSUME_GROUP: [], RPC_GROUP: []}
    # Asked once for all: every look goes through the folders of what is installed.
    for point in entry_points(*hooks):
        group = point.group
        try:
            made = point.load()()
            _check(made, METHODS[group])
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"plugin {point.name} of {group} ({point.value}): {why}") from error
        hooks[group].append(made)
        log.warning("plugin %s of %s is in use: no request takes the fast path", point.name, group)
    return Hooks(
        send=tuple(hooks[SEND_GROUP]),
        consume=tuple(hooks[CONSUME_GROUP]),
        rpc=tuple(hooks[RPC_GROUP]),
    )


def _check(hook: object, methods: tuple[str, ...]) -> None:
    """Raise TypeError for a hook that would be asked nothing, or not waited for.

    A guard that is not asked lets everything pass, and nobody would notice.
    """
    for name in methods:
        method = getattr(hook, name, None)
        if not callable(method):
            raise TypeError(f"it has no method {name}; it needs {' and '.join(methods)}")
        if inspect.iscoroutinefunction(method):
            raise TypeError(f"{name} is a coroutine, and nobody waits for one: make it a plain def")
