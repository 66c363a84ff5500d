"""Blocking administration of name servers: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet import admin
    from roquet.service.loop_thread import LoopThread


class NameServers:
    """The name servers of a cluster. Each has its own tables: changes go to all of them."""

    def __init__(self, inner: admin.NameServers, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, the one in use first."""
        return self._inner.addresses

    def config(self) -> dict[str, dict[str, str]]:
        """Return address -> settings by Java name. Raises Refused, Unreachable, OutcomeUnknown."""
        return self._loop.run(self._inner.config())

    def config_of(self, address: str) -> dict[str, str]:
        """Return the settings of one name server. Raises as `config` does."""
        return self._loop.run(self._inner.config_of(address))

    def set_config(self, changes: Mapping[str, str]) -> None:
        """Change settings of every running name server, all or none at each.

        Raises UsageError for no change, else as `config` does.
        """
        self._loop.run(self._inner.set_config(changes))

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value of the key-value table. Raises Refused with code 22 for none."""
        return self._loop.run(self._inner.get(namespace, key))

    def items(self, namespace: str) -> dict[str, str]:
        """Return all of a namespace. Raises Refused with code 22 for an unknown one."""
        return self._loop.run(self._inner.items(namespace))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value at every name server. Raises Refused, Unreachable, OutcomeUnknown."""
        self._loop.run(self._inner.put(namespace, key, value))

    def delete(self, namespace: str, key: str) -> None:
        """Delete one value at every name server. Raises Refused, Unreachable, OutcomeUnknown."""
        self._loop.run(self._inner.delete(namespace, key))
