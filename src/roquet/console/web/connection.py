"""One connection of the console, and how long its peer may keep it.

Invariant: a connection works for an answer, or waits for its peer for a bounded time, whatever
the peer dribbles meanwhile. It waits when no whole request is there, when the rest of a body is
missing that nobody reads any more, and when an answer is written faster than it is read. Where
there are too many connections, the one that has waited longest goes: nobody is kept out by those
who say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

KEEP_ALIVE_S = 10
"""For another request to begin."""
FIRST_S = 10.0
"""For the head of a connection's first request to arrive."""
NEXT_S = KEEP_ALIVE_S + FIRST_S
"""For that of another one, from the end of the answer before it."""
READ_S = 30.0
"""For the peer to take what the connection has buffered of an answer."""
LOOK_S = 1.0


class Connection(H11Protocol):
    """Closes itself when its peer keeps it waiting."""

    _since_s: float
    """Since when it waits for the same as now."""

    # typing.override came with Python 3.12.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[explicit-override,override]
        """Begin to wait."""
        super().connection_made(transport)
        self._caught_up = 0
        self._awaited = self._awaits()
        self._since_s = self.loop.time()
        self._make_room()
        self._watch = self.loop.call_later(LOOK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:  # type: ignore[explicit-override]
        """Wait no more."""
        self._watch.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:  # type: ignore[explicit-override]
        """Note that the peer has read."""
        self._caught_up += 1
        super().resume_writing()

    def _awaits(self) -> tuple[float, Hashable] | None:
        """Return how long the peer may take for what it owes, and what tells that from the next."""
        # None before the first request, whatever its type says.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None:
            return FIRST_S, None
        if cycle.response_complete:
            return NEXT_S, cycle
        return (READ_S, (cycle, self._caught_up)) if self.flow.write_paused else None

    def _look(self) -> None:
        now_s, awaited = self.loop.time(), self._awaits()
        if awaited != self._awaited:
            self._awaited, self._since_s = awaited, now_s
        elif awaited is not None and now_s - self._since_s >= awaited[0]:
            # What the peer does not read would keep an orderly end waiting.
            self.transport.abort()
            return
        self._watch = self.loop.call_later(LOOK_S, self._look)

    def _make_room(self) -> None:
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        # Each connection of the server is one of these.
        others: set[Connection] = set(cast("set[Connection]", self.connections))
        others.discard(self)
        waiting = (it for it in others if it.waits_since_s is not None)
        oldest = min(waiting, key=lambda it: it.waits_since_s or 0.0, default=None)
        if oldest is not None:
            oldest.transport.abort()

    @property
    def waits_since_s(self) -> float | None:
        """Since when it waits for its peer; None when it does not, or is closed already."""
        awaited = self._awaits()
        if awaited is None or awaited != self._awaited or self.transport.is_closing():
            return None
        return self._since_s
