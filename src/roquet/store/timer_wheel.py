"""The timer wheel of an open message store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet._native import StoreError, TimerWheel
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.store.store import MessageStore

CHECK_SIZE = 56
"""Bytes of a checkpoint that other brokers know."""

__all__ = ["TimerWheel", "close_wheel", "drop_wheel", "open_wheel", "read_checkpoint", "recount"]


async def open_wheel(
    store: MessageStore,
    *,
    log_file_size: int,
    precision_ms: int,
    window: int,
    flush_ms: int,
    key_has_topic: bool,
) -> TimerWheel:
    """Load and recover the wheel, which may take long; it stands still. Raises StoreFault.

    Sizes are bytes, `window` counts steps of `precision_ms`.
    """

    def load() -> TimerWheel:
        return TimerWheel.open(
            store.native,
            log_file_size=log_file_size,
            precision_ms=precision_ms,
            window=window,
            flush_ms=flush_ms,
            key_has_topic=key_has_topic,
        )

    try:
        return await asyncio.to_thread(load)
    except StoreError as error:
        raise StoreFault(*error.args) from error


async def recount(wheel: TimerWheel, below: int) -> list[tuple[str, int, int]] | None:
    """Count the waiting messages of topics with fewer than `below` in the log, while it turns.

    Returns topic, old and new count of each that was wrong and is corrected now; None when the log
    was made anew meanwhile, or a slot fired all the time. It may take seconds.
    """
    return await asyncio.to_thread(wheel.recount, below)


async def close_wheel(wheel: TimerWheel) -> None:
    """Stop the wheel and make it durable. Raises StoreFault; the next start then makes it anew."""
    try:
        await asyncio.to_thread(wheel.close)
    except StoreError as error:
        raise StoreFault(*error.args) from error


def read_checkpoint(folder: Path) -> bytes | None:
    """Return what a wheel that stands still saved last in a config folder; None without any.

    A file that cannot be read counts as none.
    """
    try:
        return TimerWheel.saved_checkpoint(str(folder))
    except StoreError:
        return None


def drop_wheel(folder: Path) -> None:
    """Delete wheel and timer log of a store whose wheel stands still. Raises OSError.

    The next start makes them anew from the timer topic.
    """
    log, wheels = (folder / "timerlog").glob("*"), folder.glob("timerwheel.*")
    # Snapshots first: they name positions of the log.
    for path in (*sorted(wheels), *sorted(log), folder / "timerwheel"):
        path.unlink(missing_ok=True)
