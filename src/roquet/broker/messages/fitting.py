"""Room for what the broker writes into the copy of a message. Pure.

A message may be stored with properties that fill a record to the last byte. Its copy for another
try, among the dead letters or for another check of a transaction has a few more; where these do
not fit, the copy does without those that nobody needs to handle it, in the order of `SPARE`. The
sender's own properties are never left out, and properties that fit are not touched.

RocketMQ refuses such a copy and tries it again for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

SPARE = (
    props.TIMER_ENQUEUE_MS,
    props.TIMER_DEQUEUE_MS,
    props.TIMER_ROLL_TIMES,
    props.TIMER_OUT_MS,
    props.DLQ_ORIGIN_MESSAGE_ID,
    props.DLQ_ORIGIN_TOPIC,
    props.WAIT,
    props.CLUSTER,
    props.MSG_REGION,
    props.TRACE_ON,
    props.ORIGIN_MESSAGE_ID,
    props.FIRST_POP_TIME,
)
"""What brokers write for information alone, the least useful first."""
SPARE_OF_DEAD = (*SPARE, props.RETRY_TOPIC, props.LMQ_ORIGIN_TOPIC)
"""The same of a dead letter, whose topic says enough. Without the last two no account may read one
of light queues by its topic's right, as `light_queues.owner` says."""
SPARE_OF_HALF = (props.CLUSTER, props.MSG_REGION, props.TRACE_ON)
"""Of the copy of a half message, which is not in its topic yet."""


def fits(properties: MutableMapping[str, str], spare: Iterable[str] = SPARE) -> bool:
    """Take properties out until the rest fits a record; tell whether it does.

    Only those in `spare` are taken out, in that order, and only as many as have to be.
    """
    over = props.size(props.write(properties)) - props.SIZE_MAX
    for name in spare:
        if over <= 0:
            break
        if name in properties:
            over -= props.size(props.write({name: properties.pop(name)}))
    return over <= 0
