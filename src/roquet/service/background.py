"""Tasks that belong to somebody: begun here, ended here, never orphaned."""

from __future__ import annotations

import asyncio
import logging
import types
from typing import TYPE_CHECKING, Any

from roquet.base.errors import is_of_the_system

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one owner. A task that fails is logged; `stop` leaves none behind."""

    def __init__(self) -> None:
        """Own nothing yet."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside the caller until it ends or the owner stops."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def repeat(
        self,
        action: Callable[[], Awaitable[None] | None],
        clock: Clock,
        *,
        name: str,
        every_s: float,
        first_after_s: float,
    ) -> None:
        """Run `action` again and again; a failed run is logged and the next still happens."""
        self.spawn(_repeat(action, clock, every_s, first_after_s, name), name)

    async def stop(self, within_s: float = 0.0) -> None:
        """Let the tasks end by themselves for `within_s`, then cancel what is left."""
        tasks = set(self._tasks)
        if tasks and within_s > 0:
            _, tasks = await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _tell(task.get_name(), error)


def _tell(name: str, error: BaseException) -> None:
    if isinstance(error, Exception) and is_of_the_system(error):
        log.error("%s failed: %s", name, error)
    else:
        log.error("%s failed", name, exc_info=error)


async def _repeat(
    action: Callable[[], Awaitable[None] | None],
    clock: Clock,
    every_s: float,
    first_after_s: float,
    name: str,
) -> None:
    pause_s = first_after_s
    while True:
        await clock.sleep(pause_s)
        try:
            waited = action()
            if waited is not None:
                await waited
        except Exception as error:  # noqa: BLE001
            _tell(name, error)
        pause_s = every_s


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Let the loop do what else is waiting; no time passes."""
    yield
