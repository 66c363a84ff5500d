"""Messages on their way to the application's loops, and the end of these loops."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.errors import RoquetError
    from roquet.client._received import Received


class Handout:
    """A queue of messages that ends: closed, stopped, or with a failure that its readers raise."""

    def __init__(
        self,
        is_ours: Callable[[Received], bool],
        given: Callable[[Received], None] | None = None,
    ) -> None:
        """`is_ours` tells whether a message is still to be given out; `given` hears of each."""
        self._is_ours = is_ours
        self._given = given
        self._here: deque[Received] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()
        """Loops that wait for a message."""
        self._ended = False
        """Whether nothing comes after what is here."""
        self._stopping = False
        self._failure: RoquetError | None = None

    def open(self) -> None:
        """Begin anew, with nothing of before: neither messages nor their end."""
        self._stopping = self._ended = False
        self._failure = None
        self._here.clear()

    def put(self, received: Received) -> None:
        """Add a message."""
        self._here.append(received)
        if self._readers:
            self._wake(1)

    def end(self) -> None:
        """Wake all readers: there will be nothing more after what is here."""
        self._ended = True
        self._wake(len(self._readers))

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
            received = self._taken()
            if received is not None:
                return self._shown(received)
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return None
            await self._news()

    def ready(self) -> Received | None:
        """Return a message that is here already, None when there is none; any thread may ask.

        With something that hears of each message nothing is ready: that is for the loop alone.
        """
        return self._taken() if self._given is None else None

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
        left, self._here = self._here, deque()
        return [received for received in left if self._is_ours(received)]

    def waiting(self, count: int) -> list[Received]:
        """Return up to `count` messages that are here already."""
        found: list[Received] = []
        while len(found) < count and (received := self._taken()) is not None:
            found.append(self._shown(received))
        return found

    # --- inside ------------------------------------------------------------------------------

    def _taken(self) -> Received | None:
        """Take the next message that is ours, None when there is none now."""
        while not self._stopping:
            try:
                received = self._here.popleft()  # another thread may be quicker
            except IndexError:
                return None
            if self._is_ours(received):
                return received
        return None

    def _shown(self, received: Received) -> Received:
        if self._given is not None:
            self._given(received)
        return received

    async def _news(self) -> None:
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            await reader
        except asyncio.CancelledError:
            if reader.done() and not reader.cancelled() and self._here:
                self._wake(1)  # what this one was woken for is another's
            raise
        finally:
            if reader in self._readers:
                self._readers.remove(reader)

    def _wake(self, count: int) -> None:
        while self._readers and count > 0:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                count -= 1
