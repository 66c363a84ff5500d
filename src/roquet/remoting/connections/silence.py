"""Connections that were accepted and have said nothing yet: who they are and when to close them.

A client may connect long before it has anything to say: some open one connection for each queue
and first speak half a minute later. Such a connection costs a descriptor and little else, so it
may be as silent as any idle one. Only under pressure, when places or descriptors run short, do
strangers have to speak soon.
"""

from __future__ import annotations

import asyncio


class SilentConnections:
    """Connections that wait for their peer's first byte, in the order of their arrival."""

    def __init__(self) -> None:
        """Begin with none."""
        self._waiting: dict[int, tuple[int, asyncio.Future[bool]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def readable(self, key: int, descriptor: int, now_ms: int) -> bool:
        """Wait until there is something to read; False: the peer was silent for too long."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting[key] = now_ms, waiter
        loop.add_reader(descriptor, _settle, waiter, True)
        try:
            return await waiter
        finally:
            loop.remove_reader(descriptor)
            del self._waiting[key]

    def give_up(self, before_ms: int) -> int:
        """Give up those that were accepted before a time; return how many."""
        late: list[asyncio.Future[bool]] = []
        for accepted_ms, waiter in self._waiting.values():
            if accepted_ms >= before_ms:
                break
            late.append(waiter)
        for waiter in late:
            _settle(waiter, readable=False)
        return len(late)

    def clock_was_set(self, by_ms: int) -> None:
        """Move the times of arrival with the clock, so that nobody is closed for its jump."""
        for key, (accepted_ms, waiter) in self._waiting.items():
            self._waiting[key] = accepted_ms + by_ms, waiter


def _settle(waiter: asyncio.Future[bool], readable: bool) -> None:
    if not waiter.done():
        waiter.set_result(readable)
