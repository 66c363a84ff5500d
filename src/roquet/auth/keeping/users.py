"""The users and policies in force: a service that keeps them, and the one way to change them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.auth.directory import AuthFault, Directory, UserChange
from roquet.auth.model import UserType
from roquet.base.errors import UsageError
from roquet.service.ratelog import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.auth.keeping.store import AuthFile

    Edit = Callable[[Directory], Directory]

log = logging.getLogger(__name__)


class Followed(Protocol):
    """Copies the users of a master."""

    async def refresh(self) -> str | None:
        """Copy what changed, now. Return the master whose users these are; None: they are own."""
        ...


class Users:
    """Keeps users and policies. A service: it starts before a port is opened.

    Invariant: what is in force has been written and synced before, so that nothing is acknowledged
    or decided by what a power cut could take back.
    """

    def __init__(self, file: AuthFile, seeds: Sequence[Edit] = ()) -> None:
        """Read nothing yet. `seeds` add at the start what is absent, each given what is there."""
        self._file = file
        self._seeds = tuple(seeds)
        self._changing = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._followed: Followed | None = None
        self.now = Directory()
        """What is in force."""

    def follow(self, followed: Followed) -> None:
        """Be copies of a master's users whenever `followed` says so."""
        self._followed = followed

    async def of_master(self) -> str | None:
        """Return the master whose users these are, by now; None where they are this server's."""
        return None if self._followed is None else await self._followed.refresh()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener()` called as soon as something else is in force."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Read the file and add what is absent. Raises Corrupt, UsageError, OSError."""
        found = await asyncio.to_thread(self._file.load)
        if found is None and (folder := await asyncio.to_thread(lambda: self._file.unread)):
            log.warning(
                "%s has users of RocketMQ that cannot be read here: clients that sign with them are"
                " refused until roquet auth import, or a copy of users.auth, brings them",
                folder,
            )
        self.now = found or Directory()
        before = self.now
        try:
            await self.change(self._seeded)
        except AuthFault as fault:
            raise UsageError(f"users cannot be made at the start: {fault}") from fault
        self._warn_at_start(before)
        log.info("%d users, %d with policies", len(self.now.users), len(self.now.acls))

    async def stop(self) -> None:
        """Nothing to do: every change was written at once."""

    async def change(self, edit: Edit) -> None:
        """Put in force what `edit` makes of what is there, once it is on disk.

        Raises what `edit` raises, AuthFault and OSError; then everything is as it was.
        """
        async with self._changing:
            wanted = edit(self.now)
            if wanted is self.now:
                return
            await asyncio.to_thread(self._file.save, wanted)
            self.now = wanted
            for listener in self._listeners:
                listener()

    def _warn_at_start(self, before: Directory) -> None:
        """Warn of what an operator may not expect of a start that found `before`."""
        if not self.now.users:
            log.warning("there is no user, so nobody can get in: set initAuthenticationUser")
        if not before.users:
            return
        for name, user in self.now.users.items():
            if user.is_super and name not in before.users:
                log.warning(
                    "User:%s was made at the start with type Super beside %d other users: when it"
                    " was deleted on purpose, delete it again and take it out of the settings",
                    *(one_line(name), len(before.users)),
                )

    def _seeded(self, directory: Directory) -> Directory:
        for seed in self._seeds:
            directory = seed(directory)
        return directory


def super_user(pair: tuple[str, str] | None) -> Edit:
    """Return a seed that makes a super user of a name and a password, where there is no such."""

    def seed(directory: Directory) -> Directory:
        if pair is None or pair[0] in directory.users:
            return directory
        return directory.with_user(UserChange(pair[0], pair[1], UserType.SUPER))

    return seed
