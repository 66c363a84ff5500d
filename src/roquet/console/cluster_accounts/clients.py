"""Clients of sessions that signed in with an account of the cluster: each signs with its own.

The invariant: what such a session asks, and what it is shown, the cluster has granted to its own
account; the console's client never asks for it. A client is opened when it is needed, closed when
it is idle or its session has ended, and there are few: the one that was idle for longest goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from roquet.console.denied import Denied

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from roquet.acl.credentials import Credentials
    from roquet.base.clock import Clock
    from roquet.client import MQ
    from roquet.console.config import Limits
    from roquet.console.sessions import Session, Sessions

EVERY_S = 5.0


@dataclasses.dataclass(slots=True)
class _Open:
    session: Session
    mq: MQ
    used_s: float
    users: int = 0


class AccountClients:
    """The open clients. A part: its timer closes those that are idle or whose session is over."""

    def __init__(
        self, make: Callable[[Credentials], MQ], sessions: Sessions, clock: Clock, limits: Limits
    ) -> None:
        """Have none open; `make` makes one that is not started."""
        self._make = make
        self._sessions = sessions
        self._clock = clock
        self._limits = limits
        self._open: dict[int, _Open] = {}
        self._changing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._open)

    async def start(self) -> None:
        """Begin with none."""

    async def stop(self) -> None:
        """Close all."""
        for one in tuple(self._open.values()):
            await self._close(one)

    @contextlib.asynccontextmanager
    async def of(self, session: Session) -> AsyncGenerator[MQ]:
        """Have a session's client for a block.

        Raises Denied when the session is over, or all places are in use.
        """
        async with self._changing:
            if session.account is None or not self._sessions.is_alive(session, self._now_s()):
                raise Denied(401, "this session has ended: sign in again")
            one = self._open.get(id(session)) or await self._opened(session, session.account)
            one.users += 1
        try:
            yield one.mq
        finally:
            one.users -= 1
            one.used_s = self._now_s()

    async def tick(self) -> None:
        """Close clients that are idle, or whose session is over, once nobody uses them."""
        now_s = self._now_s()
        self._sessions.drop_over(now_s)
        async with self._changing:
            for one in tuple(self._open.values()):
                is_idle = now_s - one.used_s >= self._limits.account_idle_s
                is_over = not self._sessions.is_alive(one.session, now_s)
                if not one.users and (is_idle or is_over):
                    await self._close(one)

    async def _opened(self, session: Session, account: Credentials) -> _Open:
        if len(self._open) >= self._limits.account_clients:
            unused = [it for it in self._open.values() if not it.users]
            if not unused:
                raise Denied(503, "too many accounts use this console at the same time; try again")
            await self._close(min(unused, key=lambda it: it.used_s))
        mq = self._make(account)
        await mq.start()
        made = self._open[id(session)] = _Open(session, mq, self._now_s())
        return made

    async def _close(self, one: _Open) -> None:
        self._open.pop(id(one.session), None)
        await one.mq.close()

    def _now_s(self) -> float:
        return self._clock.steady_ms() / 1000
