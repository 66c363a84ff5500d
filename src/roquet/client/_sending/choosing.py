"""Which queue a message goes to, where the sender says so. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from roquet.base.arguments import a_function, a_text, an_instance
from roquet.base.errors import UsageError
from roquet.model.queue import MessageQueue
from roquet.protocol.java_hash import java_hash

if TYPE_CHECKING:
    from roquet.model.message import Message

Chooser = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses among the queues of a topic, of which there is at least one."""


def choose_by(
    message: Message,
    order_key: str | None,
    queue: MessageQueue | None,
    selector: Callable[[Sequence[MessageQueue], Message], MessageQueue] | None,
) -> Chooser | None:
    """Return what chooses the queue, None where any will do. Raises UsageError."""
    if (order_key is not None) + (queue is not None) + (selector is not None) > 1:
        raise UsageError("give one of order_key, queue and selector")
    an_instance("queue", queue, MessageQueue, optional=True)
    a_function("selector", selector)
    if order_key is not None:
        a_text("order_key", order_key)
    if queue is not None:
        if queue.topic != message.topic:
            raise UsageError(f"{queue} is no queue of topic {message.topic}")
        return lambda _: queue
    if selector is not None:
        return lambda queues: selector(queues, message)
    if order_key is not None:
        number = java_hash(order_key)
        return lambda queues: queues[number % len(queues)]
    return None
