"""An event loop on a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

T = TypeVar("T")
log = logging.getLogger(__name__)


class _Call(Generic[T]):
    """One coroutine on the loop and the thread that waits for it."""

    __slots__ = ("_ended", "_loop", "_task", "_work")

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None
        # A bare lock: a future of threads costs as much as all the rest of a call.
        self._ended = threading.Lock()
        self._ended.acquire()

    def begin(self) -> None:
        """Start, on the loop."""
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Cancel, on the loop."""
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        """Wait, on the other thread; return what the coroutine did or raise what it raised."""
        self._ended.acquire()
        assert self._task is not None
        return self._task.result()

    def _end(self, _: asyncio.Task[T]) -> None:
        self._ended.release()


class LoopThread:
    """Runs coroutines for other threads. The thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        """Start the thread and its loop."""
        self._loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], object]] = deque()
        self._is_awake = False
        """Whether the loop looks at what is posted soon."""
        self._process = os.getpid()
        self._thread = threading.Thread(  # noqa: TID251  (this is the place for it)
            target=self._serve, name=name, daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupt cancels it."""
        try:
            self.check()
        except UsageError:
            work.close()
            raise
        call = _Call(self._loop, work)
        self.post(call.begin)
        try:
            return call.result()
        except BaseException:
            with contextlib.suppress(UsageError):
                self.post(call.cancel)
            raise

    def check(self) -> None:
        """Raise UsageError where nothing can be waited for: closed, forked, or this very thread."""
        if os.getpid() != self._process:
            raise UsageError("the blocking client was made before a fork: make one in each process")
        if threading.current_thread() is self._thread or self._loop.is_closed():
            raise UsageError("the blocking client is closed, or called from its own callback")

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

    def post(self, function: Callable[[], object]) -> None:
        """Have a plain function called on the loop's thread, without waiting, in order of posts.

        Many that are posted while the loop is busy wake it once. `run` and `call` are posts, too.
        Raises UsageError when the loop is closed.
        """
        self._posted.append(function)
        if not self._is_awake:
            self._is_awake = True
            try:
                self._loop.call_soon_threadsafe(self._work)
            except RuntimeError:
                raise UsageError("the blocking client is closed") from None

    @property
    def is_closed(self) -> bool:
        """Whether nothing runs here any more."""
        return self._loop.is_closed()

    def close(self) -> None:
        """End the loop and the thread, which a forked process has not. Twice is once."""
        if self._loop.is_closed() or os.getpid() != self._process:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _work(self) -> None:
        # Before the look: what is posted after it wakes the loop again.
        self._is_awake = False
        for _ in range(len(self._posted)):
            try:
                self._posted.popleft()()
            except Exception:
                log.exception("a call on the loop's thread failed")

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
