"""Blocking administration of accounts: written by `python -m tools.sync_admin`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet import admin
    from roquet.admin.accounts import AccountInfo
    from roquet.service.loop_thread import LoopThread


class Accounts:
    """Accounts of a cluster."""

    def __init__(self, inner: admin.Accounts, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def list_of(self, broker: str) -> tuple[AccountInfo, ...]:
        """Return the accounts that a broker has. Raises UsageError, Refused, Unreachable."""
        return self._loop.run(self._inner.list_of(broker))

    def is_known(self, broker: str) -> bool:
        """Tell whether a broker takes what this client signs: a heartbeat of nobody, which any may.

        One that checks nobody takes it, too. Raises UsageError, Unreachable, OutcomeUnknown.
        """
        return self._loop.run(self._inner.is_known(broker))

    def put(self, ext: Mapping[str, str]) -> None:
        """Make or change an account; `ext` has the fields of `mqadmin updateAclConfig`.

        accessKey, secretKey, admin, defaultTopicPerm, defaultGroupPerm, topicPerms, groupPerms,
        whiteRemoteAddress. Raises Refused, Unreachable, OutcomeUnknown.
        """
        self._loop.run(self._inner.put(ext))

    def delete(self, access_key: str) -> None:
        """Delete an account. Raises Refused with code 210 where there is none, as `put` else."""
        self._loop.run(self._inner.delete(access_key))

    def set_white_list(self, addresses: tuple[str, ...]) -> None:
        """Replace the addresses that need no account. Raises as `put` does."""
        self._loop.run(self._inner.set_white_list(addresses))
