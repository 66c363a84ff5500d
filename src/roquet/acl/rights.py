"""What an account may do, asked once more when a request has shown what it is about.

The guard judges a request by its header. Some headers do not say which topic they are about: a
place in the log, the end of a transaction. Their handlers ask here when they know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roquet.acl.needs import Need
    from roquet.protocol.command import Command


class Caller(NamedTuple):
    """Who sent a request that the guard let pass."""

    access_key: str
    """Empty where nobody needs an account."""
    address: str
    """`ip:port`."""


class Asking(Protocol):
    """Whoever asks, as far as rights go by it."""

    @property
    def access_key(self) -> str:
        """The account, verified; empty where nobody needs one."""
        ...

    @property
    def address(self) -> str:
        """`ip:port`."""
        ...


class Rights(Protocol):
    """Knows what callers may do."""

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Account -> what it signs with, of those in force; a change makes another mapping."""
        ...

    def check(self, command: Command, address: str) -> bool:
        """Raise Refused unless a request of the peer `ip:port` may be carried out.

        Return whether its sender is known.
        """
        ...

    def check_waiting(
        self, code: int, caller: Asking, secret: bytes | None, needs: Sequence[Need]
    ) -> None:
        """Raise Refused unless a request that waited may still be answered.

        `secret` is what its account signed with when it came.
        """
        ...

    def caller(self, command: Command, address: str) -> Caller:
        """Return who sent a request that the guard let pass."""
        ...

    def require(self, caller: Asking, needs: Sequence[Need]) -> None:
        """Raise Refused unless the caller has all of the permissions."""
        ...

    def require_admin(self, caller: Asking, what: str) -> None:
        """Raise Refused unless the caller is an administrator; `what` is what it wants to do."""
        ...

    def has(self, caller: Asking, needs: Sequence[Need]) -> bool:
        """Tell whether the caller has all of the permissions."""
        ...


class RequestGuard(Rights, Protocol):
    """Looks at requests before they are carried out, and answers for services afterwards."""

    def verify(self, key: str, is_by: Callable[[bytes], bool], address: str) -> None:
        """Raise Refused unless a request of another front may be that account's.

        `is_by` tells whether a secret made the signature that the request has.
        """
        ...


class Everybody:
    """The rights where no accounts are asked for: everybody may do everything."""

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Nobody signs."""
        return {}

    def check(self, command: Command, address: str) -> bool:
        """Refuse nothing."""
        del command, address
        return True

    def check_waiting(
        self, code: int, caller: Asking, secret: bytes | None, needs: Sequence[Need]
    ) -> None:
        """Refuse nothing."""

    def caller(self, command: Command, address: str) -> Caller:
        """Return the address alone: what a request says of its account is not checked."""
        del command
        return Caller("", address)

    def require(self, caller: Asking, needs: Sequence[Need]) -> None:
        """Refuse nothing."""

    def require_admin(self, caller: Asking, what: str) -> None:
        """Refuse nothing."""

    def has(self, caller: Asking, needs: Sequence[Need]) -> bool:
        """Allow everything."""
        del caller, needs
        return True


EVERYBODY = Everybody()
