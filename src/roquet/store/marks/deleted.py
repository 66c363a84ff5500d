"""Deleted topics as the log knows them, and as a copy of it learns of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet._native import StoreError, follow_deletions, log_deletions, take_renewed
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.store.store import MessageStore


def log_ends(store: MessageStore) -> dict[str, int]:
    """Return the deleted topics, each with the end of the log at that moment."""
    return dict(log_deletions(store.native))


async def delete(store: MessageStore, topic: str) -> None:
    """Delete the queues of a topic, durably. Raises StoreFault."""
    try:
        await asyncio.to_thread(store.native.delete_topic, topic)
    except StoreError as error:
        raise StoreFault(*error.args) from error


async def follow(store: MessageStore, ends: Sequence[tuple[str, int]]) -> list[str]:
    """Take messages of topics, each in front of an offset, out of the queues of a copy, durably.

    Returns the topics to which the copy does not reach yet. Raises StoreFault.
    """
    try:
        return await asyncio.to_thread(follow_deletions, store.native, ends)
    except StoreError as error:
        raise StoreFault(*error.args) from error


def renewed(store: MessageStore) -> list[str]:
    """Return the topics that began anew in what was copied since this was asked last."""
    return take_renewed(store.native)
