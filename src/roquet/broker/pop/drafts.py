"""Records of the revive topic as messages about to be stored. Pure.

The timer wheel takes what is due later; a record that is due already goes to the revive topic at
once. So a record is appended like any message of the broker's own, behind the put hooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.store.results import Draft, PutStatus

if TYPE_CHECKING:
    from roquet.protocol.pop.records import PopAck, PopCheckpoint
    from roquet.store.results import PutResult

CHECKPOINTS, ACKS = "CK", "ACK"
"""Kinds of records, as RocketMQ's metrics name them."""


def put_status(result: PutResult) -> str:
    """Return what became of a record, by Java's name."""
    return PutStatus(result.status).name


def checkpoint_draft(
    checkpoint: PopCheckpoint, topic: str, revive_queue: int, now_ms: int, host: bytes
) -> Draft:
    """Return the record of a checkpoint. `topic` is the revive topic, `host` the store host."""
    return Draft(
        topic=topic,
        queue_id=revive_queue,
        body=checkpoint.encode(),
        properties=checkpoint.properties(),
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )


def ack_draft(
    ack: PopAck,
    topic: str,
    revive_queue: int,
    now_ms: int,
    host: bytes,
    *,
    revive_ms: int,
    of_buffer: bool = False,
) -> Draft:
    """Return the record of an acknowledgement.

    `revive_ms` is when the checkpoint would bring the message back. `of_buffer`: the merge buffer
    stores it, which names batches in another way.
    """
    return Draft(
        topic=topic,
        queue_id=revive_queue,
        body=ack.encode(),
        properties=ack.properties(revive_ms, of_buffer=of_buffer),
        born_timestamp=now_ms,
        born_host=host,
        store_host=host,
    )
