"""Messages on their way to the application's loops, and the end of these loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.errors import RoquetError
    from roquet.client._received import Received


class Handout:
    """A queue of messages that ends: closed, stopped, or with a failure that its readers raise."""

    def __init__(self, is_ours: Callable[[Received], bool]) -> None:
        """`is_ours` tells whether a message is still to be given out."""
        self._is_ours = is_ours
        self._ready: asyncio.Queue[Received | None] = asyncio.Queue()
        self._stopping = False
        self._failure: RoquetError | None = None

    def open(self) -> None:
        """Begin anew, with nothing of before: neither messages nor their end."""
        self._stopping, self._failure = False, None
        while not self._ready.empty():
            self._ready.get_nowait()

    def put(self, received: Received) -> None:
        """Add a message."""
        self._ready.put_nowait(received)

    def end(self) -> None:
        """Wake all readers: there will be nothing more after what is here."""
        self._ready.put_nowait(None)

    def stop(self) -> None:
        """Give out nothing more, not even what is here."""
        self._stopping = True
        self.end()

    def fail(self, error: RoquetError) -> bool:
        """End with an error, unless there is one; return whether this is it."""
        if self._failure is not None:
            return False
        self._failure = error
        self.end()
        return True

    async def next(self) -> Received | None:
        """Return the next message that is ours, None at the end. Raises the failure."""
        while True:
            received = None if self._stopping else await self._ready.get()
            if received is None or self._stopping:
                self.end()  # for the other loops
                if self._failure is not None:
                    raise self._failure
                return None
            if self._is_ours(received):
                return received

    async def next_many(
        self, count: int, timeout_s: float | None, linger_s: float
    ) -> list[Received]:
        """Return up to `count` messages: the first within `timeout_s`, others until `linger_s` on.

        An empty list at the end, or when none came in time. Raises the failure.
        """
        found: list[Received] = []
        try:
            async with asyncio.timeout(timeout_s) as limit:
                first = await self.next()
                if first is None:
                    return []
                # Nothing is awaited between here and the append: a time-out loses no message.
                found.append(first)
                found += self.waiting(count - 1)
                limit.reschedule(asyncio.get_running_loop().time() + linger_s)
                while linger_s > 0.0 and len(found) < count:
                    more = await self.next()
                    if more is None:
                        break
                    found.append(more)
        except TimeoutError:
            pass
        return found

    def withdraw(self) -> list[Received]:
        """Give out nothing more, and return what was not given out."""
        self.stop()
        found: list[Received] = []
        while not self._ready.empty():
            received = self._ready.get_nowait()
            if received is not None and self._is_ours(received):
                found.append(received)
        self.end()
        return found

    def waiting(self, count: int) -> list[Received]:
        """Return up to `count` messages that are here already."""
        found: list[Received] = []
        while len(found) < count and not self._stopping and not self._ready.empty():
            received = self._ready.get_nowait()
            if received is None:
                self.end()
                break
            if self._is_ours(received):
                found.append(received)
        return found
