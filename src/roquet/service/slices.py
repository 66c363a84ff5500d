"""Long work in slices: between two of them the loop does what else is waiting.

A request may keep the event loop for some 20 ms. What can take longer, because a client chooses how
many items there are, goes over them in slices, or is done beside the loop (`bodies`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from roquet.service.background import give_way

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

T = TypeVar("T")


async def in_slices(items: Iterable[T], size: int) -> AsyncIterator[T]:
    """Yield the items; after each slice of `size` everybody else has a turn."""
    left = size
    for item in items:
        if left == 0:
            await give_way()
            left = size
        left -= 1
        yield item
