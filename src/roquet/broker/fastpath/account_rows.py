"""Accounts as rows of the native ingest: the guard's rules for sends and pulls, as data.

What these rows do not permit is refused by nobody here: it goes to the handlers, behind the
guard, which says exactly why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.acl.accounts import Perm
from roquet.protocol import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.acl.accounts import Account, Table
    from roquet.acl.addresses import Pattern
    from roquet.remoting.connections.fast_ingest import Rows

    _White = tuple[bool, list[list[tuple[int, int]]]]
    Names = tuple[dict[str, int], dict[str, int], int]
    """Rights by name, by prefix, and with all other names."""


class Source(Protocol):
    """Has the accounts in force."""

    @property
    def table(self) -> Table:
        """The accounts as they are now."""
        ...


class WhoMay(Protocol):
    """Writes who may send and pull, and what."""

    @property
    def is_stale(self) -> bool:
        """Whether something else is in force than what was written."""
        ...

    def write(self, rows: Rows) -> None:
        """Write everything."""
        ...


class AccountRows:
    """Knows whether the rows are those of the accounts in force, and writes them."""

    def __init__(self, source: Source, revive_topic: str) -> None:
        """Count as stale until they are written for the first time.

        `revive_topic` has the checkpoints of this broker.
        """
        self._source = source
        self._rooms = dict.fromkeys((*names.WAITING_ROOMS, revive_topic), 0)
        self._written: Table | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the accounts in force are others than those written."""
        # The table itself, not the news of it: the guard looks at the same one.
        return self._source.table is not self._written

    def write(self, rows: Rows) -> None:
        """Write all accounts."""
        table = self._source.table
        rows.set_accounts(
            [_white(pattern) for pattern in table.white],
            [_row(account, self._rooms) for account in table.accounts.values()],
        )
        self._written = table


def _row(
    account: Account, rooms: Mapping[str, int]
) -> tuple[str, bytes, _White, bool, Names, Names]:
    others = _rights(account.default_topic)
    # The default never means the topics in which messages of others wait.
    topics = {**rooms} | _all_rights(account.topics)
    # Everybody with an account may publish message traces.
    topics[names.TRACE_TOPIC] = topics.get(names.TRACE_TOPIC, others) | Perm.PUB
    return (
        account.access_key,
        account.secret,
        _white(account.white),
        account.is_unlimited,
        (topics, {}, others),
        (_all_rights(account.groups), {}, _rights(account.default_group)),
    )


def _white(pattern: Pattern) -> _White:
    return pattern.everyone, [list(ranges) for ranges in pattern.alternatives]


def _all_rights(perms: Mapping[str, Perm]) -> dict[str, int]:
    return {name: _rights(perm) for name, perm in perms.items()}


def _rights(perm: Perm) -> int:
    """Return the bits that allow something: none where anything is denied."""
    return 0 if perm & Perm.DENY else int(perm & Perm.BOTH)
