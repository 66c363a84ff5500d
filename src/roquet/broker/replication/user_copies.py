"""A slave's copy of its master's users and policies (access control 2.0).

Each half second the slave says which digest it has; the master answers that nothing changed, or
with the whole, in pieces (`auth/keeping/snapshots.py`). What came is put in force only when it is
whole, and is on disk by then, so that a slave that becomes a master has it. What fails is tried
again; the slave goes on with what it has. A master that does not know the request (RocketMQ's, or
one without users) is asked again each minute, and this broker's users are its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.auth.directory import AuthFault
from roquet.auth.keeping.fetching import fetch
from roquet.auth.keeping.snapshots import Snapshots
from roquet.base.errors import Refused, RoquetError
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.auth.directory import Directory
    from roquet.auth.keeping.users import Users
    from roquet.base.clock import Clock
    from roquet.broker.network.registration import Caller

log = logging.getLogger(__name__)

EVERY_S = 0.5
UNKNOWN_S = 60.0
"""After how long a master that does not know the request is asked again."""
CALL_S = 5.0


class Followed(Protocol):
    """Knows whom this broker follows."""

    @property
    def is_slave(self) -> bool:
        """Whether the broker follows a master."""
        ...


class UserCopies:
    """Asks the master, and puts in force what it says. A service."""

    def __init__(
        self,
        users: Users,
        caller: Caller,
        state: Followed,
        master: Callable[[], str | None],
        clock: Clock,
    ) -> None:
        """`master` returns the master's address for clients; None where it is not known."""
        self._users = users
        self._caller = caller
        self._state = state
        self._master = master
        self._clock = clock
        self._log = RateLog(log, clock)
        self._own = Snapshots(users)
        self._copying = asyncio.Lock()
        self._unknown: tuple[str, int] | None = None
        self._since_ms: int | None = None
        self._was_equal = False
        self.timers = (Timer("copy the master's users", self.tick, EVERY_S, EVERY_S),)

    async def start(self) -> None:
        """Begin to count how old the copy is."""
        self._since_ms = self._clock.steady_ms()
        self._was_equal = False

    async def stop(self) -> None:
        """Have no copy any more: these users are this broker's own."""
        self._since_ms = None

    @property
    def age_s(self) -> float:
        """Seconds since this slave had its master's users; 0 where nothing is copied."""
        since = self._since_ms
        if since is None or self._unknown is not None:
            return 0.0
        return (self._clock.steady_ms() - since) / 1000

    async def tick(self) -> None:
        """Copy what changed: the action of a timer."""
        await self.refresh()

    async def refresh(self) -> str | None:
        """Copy what changed, now. Return the master whose users these are; None: they are own."""
        master = self._following()
        if master is None:
            return None
        async with self._copying:
            try:
                is_copy = await self._copy(master)
            except (RoquetError, ValueError, OSError) as error:
                self._was_equal = False
                self._log.warning(
                    "users",
                    f"users and policies of the master at {master} are not copied, those of"
                    f" before stay in force: {error}",
                )
                return None
        return master if is_copy else None

    def _following(self) -> str | None:
        """Return the master to ask now."""
        master = self._master() if self._state.is_slave else None
        if master is None or self._unknown is None:
            return master
        known_by, until_ms = self._unknown
        return None if known_by == master and self._clock.steady_ms() < until_ms else master

    async def _copy(self, master: str) -> bool:
        """Tell whether users are the master's now. Raises RoquetError, ValueError, OSError."""
        fetched = await fetch(lambda ext: self._ask(master, ext), await self._own.digest())
        if fetched is None:
            return False
        if fetched.directory is None:
            self._mark_equal(master)
        else:
            await self._take(fetched.directory, master)
        return True

    async def _ask(self, master: str, ext: dict[str, str]) -> Command | None:
        """Return an answer; None from a master that keeps no users. Raises RoquetError."""
        answer = await self._caller.call(master, Command(RequestCode.GET_USERS, ext=ext), CALL_S)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            if self._unknown is None or self._unknown[0] != master:
                log.warning(
                    "the master at %s gives no users and policies (it is RocketMQ's, or runs"
                    " without authenticationEnabled=true): this broker keeps its own",
                    master,
                )
            self._unknown = master, self._clock.steady_ms() + int(UNKNOWN_S * 1000)
            return None
        self._unknown = None
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, answer.remark or "")
        return answer

    async def _take(self, found: Directory, master: str) -> None:
        def replaced(now: Directory) -> Directory:
            is_followed = self._state.is_slave and self._master() == master
            return found if is_followed else now

        try:
            await self._users.change(replaced)
        except AuthFault as fault:
            raise ValueError(str(fault)) from fault
        if self._users.now is found:
            log.info(
                "users and policies of the master at %s are in force: %d users, %d with policies",
                *(master, len(found.users), len(found.acls)),
            )
            self._mark_equal(master, told=True)

    def _mark_equal(self, master: str, *, told: bool = False) -> None:
        if not self._was_equal and not told:
            log.info("users and policies are those of the master at %s", master)
        self._was_equal = True
        self._since_ms = self._clock.steady_ms()
