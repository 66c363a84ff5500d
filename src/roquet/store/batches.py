"""Batches handed to the core: short ones on the loop, long ones by a thread."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet._native import Store as NativeStore
    from roquet.store.results import BatchDraft

BATCH_ON_LOOP = 2_000
"""Messages: ten thousand would keep everybody else from the loop for some 10 ms."""


async def append_batch(
    native: NativeStore, batch: BatchDraft
) -> tuple[int, list[int], int, int, int]:
    """Append the messages of a batch, all or none.

    Returns (status, physical offsets, end in the log, first queue offset, store time). Raises
    StoreError, StoreFault and ValueError as the core does.
    """
    put = functools.partial(
        native.put_batch,
        batch.topic,
        batch.queue_id,
        batch.elements,
        sys_flag=batch.sys_flag,
        born_timestamp=batch.born_timestamp,
        born_host=batch.born_host,
        store_host=batch.store_host,
        reconsume_times=batch.reconsume_times,
    )
    return put() if len(batch.elements) <= BATCH_ON_LOOP else await asyncio.to_thread(put)
