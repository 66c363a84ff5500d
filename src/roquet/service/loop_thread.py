"""An event loop on a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. The thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        """Start the thread and its loop."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(  # noqa: TID251  (this is the place for it)
            target=self._serve, name=name, daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupt cancels it."""
        if threading.current_thread() is self._thread or self._loop.is_closed():
            work.close()
            raise UsageError("the blocking client is closed, or called from its own callback")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncGenerator[T]) -> Generator[T]:
        """Yield what an asynchronous generator does; leaving the loop early closes it."""

        async def following() -> tuple[T, ...]:
            try:
                return (await anext(source),)
            except StopAsyncIteration:
                return ()

        try:
            while found := self.run(following()):
                yield found[0]
        finally:
            if not self._loop.is_closed():
                self.run(source.aclose())

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function on the loop's thread and return its result."""

        async def calling() -> T:
            return function()

        return self.run(calling())

    def soon(self, function: Callable[[], None]) -> None:
        """Have a plain function called on the loop's thread, without waiting."""
        self._loop.call_soon_threadsafe(function)

    @property
    def is_closed(self) -> bool:
        """Whether nothing runs here any more."""
        return self._loop.is_closed()

    def close(self) -> None:
        """End the loop and the thread. Twice is once."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
