"""Functions that handle messages, registered by decorators and run together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.client._consuming.push_consumer import Consumer


class Subscribers:
    """Consumers with what runs them; they are started by `serve`."""

    def __init__(self) -> None:
        """Begin empty."""
        self._all: list[tuple[Consumer, Callable[[], Awaitable[None]]]] = []

    def add(self, consumer: Consumer, run: Callable[[], Awaitable[None]]) -> None:
        """Keep a consumer and what gives its messages to the application."""
        self._all.append((consumer, run))

    def __bool__(self) -> bool:
        """Tell whether there is one."""
        return bool(self._all)

    async def serve(self) -> None:
        """Consume until all are stopped; the first failure ends the others and is raised."""
        if not self._all:
            raise UsageError("there is no subscriber: decorate functions with `mq.subscriber`")

        async def one(consumer: Consumer, run: Callable[[], Awaitable[None]]) -> None:
            async with consumer:
                await run()

        try:
            async with asyncio.TaskGroup() as group:
                for consumer, run in self._all:
                    group.create_task(one(consumer, run))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
