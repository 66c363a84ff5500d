"""Whose log a store has: this broker's own, or a copy of another broker's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet._native import StoreError, follow_another_log, lead_log
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from roquet.store.store import MessageStore


async def lead(store: MessageStore) -> None:
    """Have a store take messages and no copies from now on; what was copied is dispatched first.

    Raises StoreFault; the log takes neither then.
    """
    native = store.native
    try:
        await asyncio.to_thread(lead_log, native)
    except StoreError as error:
        raise StoreFault(*error.args) from error


def follow_another(store: MessageStore) -> int:
    """Have a store take copies and no messages from now on; return where its log ends.

    Raises StoreFault.
    """
    try:
        return follow_another_log(store.native)
    except StoreError as error:
        raise StoreFault(*error.args) from error
