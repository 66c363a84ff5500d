"""The records of a transaction, made of each other; bytes as Java writes them (spec: store §18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.messages import fitting
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.store.results import Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.store.records import Record

GROUP = "CID_RMQ_SYS_TRANS"
"""Whose committed offsets say how far the half queue and the op queue are settled."""
HALF_TOPIC = names.TRANS_HALF_TOPIC
OP_TOPIC = names.TRANS_OP_HALF_TOPIC
QUEUE_ID = 0
OP_TAG = "d"

_I32_MAX = 2**31 - 1
_OURS = (
    props.REAL_TOPIC,
    props.REAL_QUEUE_ID,
    props.TRANSACTION_CHECK_TIMES,
    props.TRANSACTION_PREPARED_QUEUE_OFFSET,
)
"""Properties that no producer may set on a half message (B7)."""


def to_half(draft: Draft, producer_group: str) -> None:
    """Send a draft to the half queue instead of its own."""
    properties = draft.properties
    for name in _OURS:
        properties.pop(name, None)
    if producer_group:
        # Without it nobody could ever be asked what became of the transaction.
        properties.setdefault(props.PRODUCER_GROUP, producer_group)
    if properties.get(props.UNIQ_KEY):
        properties.setdefault(props.TRANSACTION_ID, properties[props.UNIQ_KEY])
    properties[props.REAL_TOPIC] = draft.topic
    properties[props.REAL_QUEUE_ID] = str(draft.queue_id)
    draft.topic, draft.queue_id = HALF_TOPIC, QUEUE_ID
    draft.sys_flag = sys_flag.with_transaction(draft.sys_flag, sys_flag.TRANSACTION_NONE)


def real_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return where a half message is for, None when its record does not say."""
    topic, queue = properties.get(props.REAL_TOPIC), properties.get(props.REAL_QUEUE_ID, "")
    if not topic or not (queue.isascii() and queue.isdigit() and len(queue) <= 10):
        return None
    return (topic, int(queue)) if int(queue) <= _I32_MAX else None


def commit_draft(record: Record, half: Mapping[str, str]) -> Draft | None:
    """Make the message that consumers see; `half` are the half message's properties, read.

    Returns None when they name no place for it.
    """
    place = real_place(half)
    if place is None:
        return None
    properties = dict(half)
    del properties[props.REAL_TOPIC], properties[props.REAL_QUEUE_ID]
    draft = Draft.again(record, *place, properties)
    draft.sys_flag = sys_flag.with_transaction(record.sys_flag, sys_flag.TRANSACTION_COMMIT)
    draft.prepared_transaction_offset = record.physical_offset
    return draft


def checked_copy(record: Record, checks: int) -> Draft:
    """Make the copy of a half message that is written before its producer is asked."""
    properties = props.read(record.properties)
    properties[props.TRANSACTION_CHECK_TIMES] = str(checks)
    fitting.fits(properties, fitting.SPARE_OF_HALF)
    draft = Draft.again(record, HALF_TOPIC, QUEUE_ID, properties)
    draft.reconsume_times = 0
    return draft


def put_aside(record: Record) -> Draft:
    """Make the copy of a half message that nobody settled in time."""
    properties = props.read(record.properties)
    return Draft.again(record, names.TRANS_CHECK_MAX_TIME_TOPIC, QUEUE_ID, properties)


def op_draft(halves: Iterable[int], store_host: bytes, now_ms: int) -> Draft:
    """Make the op record that says of these half offsets that they are settled."""
    return Draft(
        topic=OP_TOPIC,
        queue_id=QUEUE_ID,
        body="".join(f"{offset}," for offset in halves).encode(),
        properties={props.WAIT: "true", props.TAGS: OP_TAG},
        born_timestamp=now_ms,
        born_host=store_host,
        store_host=store_host,
    )


def op_offsets(body: bytes) -> list[int]:
    """Return the half offsets that an op record names; what is no number is passed over."""
    return [int(word) for word in body.split(b",") if word.isdigit() and len(word) <= 19]
