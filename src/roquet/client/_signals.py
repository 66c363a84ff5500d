"""SIGTERM and SIGINT end an application in good order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
    from types import FrameType

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def until_signal(
    work: Sequence[Awaitable[object]], stop: Callable[[], None], drain_s: float
) -> None:
    """Wait for all `work`; at the first signal call `stop` and give the work `drain_s` to end.

    The first failure cancels the other work and is raised.
    """
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    def arrived(number: signal.Signals) -> None:
        log.info("%s: stopping", number.name)
        if signalled.is_set():
            _cancel(tasks)
        signalled.set()

    async def end() -> None:
        await signalled.wait()
        stop()
        _, late = await asyncio.wait(tasks, timeout=drain_s)
        _cancel(late)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        loop.add_signal_handler(number, arrived, number)
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(_awaited(one)) for one in work or (signalled.wait(),)]
            ending = group.create_task(end())
            await asyncio.wait(tasks)
            ending.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextlib.contextmanager
def stop_at_signal(stop: Callable[[], None]) -> Generator[None]:
    """Call `stop` at the first signal within the block, raise KeyboardInterrupt at the second."""
    signalled = False

    def arrived(number: int, frame: FrameType | None) -> None:
        nonlocal signalled
        del number, frame
        if signalled:
            raise KeyboardInterrupt
        signalled = True
        stop()

    before = {number: signal.signal(number, arrived) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _awaited(work: Awaitable[object]) -> None:
    await work


def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
