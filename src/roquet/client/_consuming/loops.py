"""Handlers at work: one message or one batch at a time, several tasks side by side."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Sequence

    from roquet.client._received import Received

log = logging.getLogger(__name__)

BATCH_MAX = 1024


async def handle_each(
    messages: AsyncIterable[Received],
    handler: Callable[[Received], Awaitable[None]],
    concurrency: int,
) -> None:
    """Give each message to `handler` until the consumer ends. Raises as its loop does."""

    async def work() -> None:
        async for received in messages:
            async with received.process():
                await handler(received)

    await _side_by_side(work, concurrency)


async def handle_batches(
    receive: Callable[[], Awaitable[Sequence[Received]]],
    handler: Callable[[Sequence[Received]], Awaitable[None]],
    concurrency: int,
) -> None:
    """Give batches to `handler` until the consumer ends. Raises as its loop does."""

    async def work() -> None:
        while batch := await receive():
            try:
                await handler(batch)
            except Exception:
                log.exception("a batch of %d messages failed", len(batch))
                for received in batch:
                    received.retry()
            else:
                for received in batch:
                    received.ack()

    await _side_by_side(work, concurrency)


def check_count(count: int) -> None:
    """Check how many messages are asked for at once. Raises UsageError."""
    if not 1 <= count <= BATCH_MAX:
        raise UsageError(f"{count} messages at once: must be from 1 to {BATCH_MAX}")


async def _side_by_side(work: Callable[[], Awaitable[None]], concurrency: int) -> None:
    if concurrency < 1:
        raise UsageError(f"concurrency = {concurrency}: must be at least 1")

    async def one() -> None:
        await work()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(one())
    except ExceptionGroup as errors:
        # All of them end by the same reason.
        raise errors.exceptions[0] from None
