"""Messages as the core takes them; short batches on the loop, long ones by a thread."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from roquet.protocol import properties as props

if TYPE_CHECKING:
    from roquet._native import Store as NativeStore
    from roquet.store.results import BatchDraft, Draft, NewMessage

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


def new_message(draft: Draft) -> NewMessage:
    """Return a message as the core takes it. Raises ValueError for properties it cannot have."""
    return (
        draft.topic,
        draft.queue_id,
        draft.body,
        props.write(draft.properties).encode(),
        draft.flag,
        draft.sys_flag,
        draft.born_timestamp,
        draft.born_host,
        draft.store_host,
        *(draft.reconsume_times, draft.prepared_transaction_offset, draft.accepted),
    )
