"""Connections of forwarded requests to brokers: one for each broker, beside those of the front."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.service.background import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.base.clock import Clock
    from roquet.remoting.connections.connection import Connection

    Dial = Callable[[str], Awaitable[Connection]]
    Made = Callable[[str, Connection], None]

log = logging.getLogger(__name__)

AGAIN_MS = 1000
"""How long after one try to connect to a broker the next one begins, whatever came of it."""
_BROKERS_MAX = 10_000


class Lines:
    """Connects to brokers in the background, with at most one try a second for each.

    A broker that takes connections and closes them at once gets no more of them than one that is
    away. Whoever asks for a line does without it meanwhile, and hears of no failure.
    """

    def __init__(self, dial: Dial, made: Made, clock: Clock) -> None:
        """`dial` connects to an address; `made` takes a broker's name and its new connection."""
        self._dial = dial
        self._made = made
        self._clock = clock
        self._connecting: set[str] = set()
        self._not_before_ms: dict[str, int] = {}
        """Steady time of the next try, by broker."""
        self._tasks = Tasks()

    async def stop(self) -> None:
        """End what is being connected; connections end with their client."""
        await self._tasks.stop()

    def want(self, broker: str, address: str) -> None:
        """Begin to connect to a broker, if it is time for that."""
        now_ms = self._clock.steady_ms()
        if broker in self._connecting or now_ms < self._not_before_ms.get(broker, 0):
            return
        if len(self._not_before_ms) >= _BROKERS_MAX:
            self._not_before_ms.clear()
        self._not_before_ms[broker] = now_ms + AGAIN_MS
        self._connecting.add(broker)
        self._tasks.spawn(self._connect(broker, address), "connect to a broker")

    async def _connect(self, broker: str, address: str) -> None:
        try:
            connection = await self._dial(address)
        except (OutcomeUnknown, Unreachable) as error:
            # Those who ask meanwhile are told by whoever asks in place of the line.
            log.debug("%s has no line: %s", broker, error)
            return
        finally:
            self._connecting.discard(broker)
        self._made(broker, connection)
