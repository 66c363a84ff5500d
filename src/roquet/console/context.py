"""What a view or an action works with."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, TypeVar

from roquet.base.errors import OutcomeUnknown, RoquetError, Unreachable
from roquet.console.denied import Denied

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from roquet.admin import Admin
    from roquet.admin.calls import Calls
    from roquet.base.clock import Clock
    from roquet.client import MQ
    from roquet.console.alerts.watch import Watch
    from roquet.console.audit import AuditLog
    from roquet.console.cluster_accounts.clients import AccountClients
    from roquet.console.config import ConsoleConfig, Limits
    from roquet.console.sampler import Sampler
    from roquet.console.sessions import Session, Sessions
    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all requests share."""

    config: ConsoleConfig
    limits: Limits
    clock: Clock
    mq: MQ
    sessions: Sessions
    audit: AuditLog
    sampler: Sampler
    watch: Watch
    said: Callable[[str], None]
    """Prints a line where the console was started."""
    clients: AccountClients | None = None
    """Of sessions with accounts of this cluster; None: none of them is let in here."""

    @contextlib.asynccontextmanager
    async def client_of(self, session: Session) -> AsyncGenerator[MQ]:
        """Have the client that asks for a session: its own account's, or the console's.

        Raises Denied where a session's account is not one of this cluster.
        """
        if not session.is_account:
            yield self.mq
            return
        if self.clients is None:
            text = "the account that signed in is one of another cluster: it may see nothing here"
            raise Denied(403, text)
        async with self.clients.of(session) as mq:
            yield mq


class Bounded:
    """Requests of one page: few at a time, and brokers that do not answer are left out."""

    def __init__(self, calls: Calls, at_once: int, away: dict[str, str]) -> None:
        """Write the brokers that are left out to `away`, with the reason."""
        self._calls = calls
        self._slots = asyncio.Semaphore(at_once)
        self._away = away
        self._silent: dict[str, Unreachable | OutcomeUnknown] = {}

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._calls.clock

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers."""
        return self._calls.name_servers

    def left_out(self, name: str, error: RoquetError) -> None:
        """Keep who is left out, for the banner of partial results."""
        self._away[name] = str(error)

    async def ask(self, address: str, command: Command) -> Command:
        """Ask one peer; one that was silent is not waited for again.

        Raises Refused, Unreachable, OutcomeUnknown.
        """
        async with self._slots:
            if address in self._silent:
                raise Unreachable(str(self._silent[address]))
            try:
                return await self._calls.ask(address, command)
            except (Unreachable, OutcomeUnknown) as error:
                self._silent[address] = error
                raise

    async def ask_name_server(self, command: Command) -> Command:
        """Ask until one answers. Raises Refused, Unreachable."""
        async with self._slots:
            return await self._calls.ask_name_server(command)

    async def route(self, topic: str) -> TopicRoute:
        """Ask for a topic's route. Raises Refused, Unreachable."""
        async with self._slots:
            return await self._calls.route(topic)

    def forget_topic(self, topic: str) -> None:
        """Keep no route of this topic."""
        self._calls.forget_topic(topic)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a view or an action has for one request."""

    parts: Parts
    session: Session
    mq: MQ
    """What asks the cluster for this request."""
    admin: Admin
    address: str
    """Of who asks."""
    away: dict[str, str]
    """Brokers that did not answer."""

    @property
    def limits(self) -> Limits:
        """The bounds."""
        return self.parts.limits

    def now_ms(self) -> int:
        """Return the time, Unix milliseconds."""
        return self.parts.clock.now_ms()


def context_of(parts: Parts, session: Session, address: str, mq: MQ) -> Context:
    """Make the context of a request; `mq` is what `Parts.client_of` gave."""
    away: dict[str, str] = {}

    def around(calls: Calls) -> Calls:
        return Bounded(calls, parts.limits.questions, away)

    admin = mq.admin(around)
    return Context(parts=parts, session=session, mq=mq, admin=admin, address=address, away=away)


async def each(work: Iterable[Awaitable[T]]) -> list[T | RoquetError]:
    """Await all; an error of ours stands in the place of its result. Others are raised."""
    found: list[T | RoquetError] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, RoquetError):
            raise result
        found.append(result)
    return found
