"""Light topics (Java: lite topics): the light queues of a parent topic, one for each name.

The light topic `chat-7` of parent `chats` is the light queue `%LMQ%$chats$chat-7`. Topic names have
no `$`, so the name of the queue says which parent it belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

SEPARATOR = "$"
PREFIX = names.LMQ_PREFIX + SEPARATOR
QUEUE_ID = 0
"""A light queue has this queue alone."""
_NEVER_IN_A_NAME = frozenset("$,/")
_MULTIPLIER = 2862933555777941757
_MASK = 2**64 - 1


def queue_of(parent: str, name: str) -> str:
    """Return the light queue of a light topic."""
    return f"{PREFIX}{parent}{SEPARATOR}{name}"


def split(queue: str) -> tuple[str, str] | None:
    """Return (parent topic, name) of a light topic's queue; None for any other queue."""
    if not queue.startswith(PREFIX):
        return None
    parent, _, name = queue[len(PREFIX) :].partition(SEPARATOR)
    return (parent, name) if parent and name and SEPARATOR not in name else None


def belongs_to(queue: str, parent: str) -> bool:
    """Tell whether a queue is that of a light topic of this parent."""
    return queue.startswith(f"{PREFIX}{parent}{SEPARATOR}") and split(queue) is not None


def is_name(name: str) -> bool:
    """Tell whether a light topic can be called so; the size of its queue's name is not judged.

    A blank name is none: requests that settle messages say with it that they mean the parent.
    """
    return bool(name.strip()) and name.isprintable() and _NEVER_IN_A_NAME.isdisjoint(name)


def name_queue(topic: str, properties: MutableMapping[str, str]) -> None:
    """Have a new message name the queue of its light topic, if it has one.

    Whatever else it names does not count, as in Java. Raises ValueError for a name that no light
    topic can have: one with a comma would name queues of other topics.
    """
    name = properties.get(props.LITE_TOPIC)
    if name is None:
        return
    if not is_name(name):
        raise ValueError(f"{name[:80]!r} is no name of a light topic")
    properties[props.INNER_MULTI_DISPATCH] = queue_of(topic, name)


def wrong_parent(topic: str, queues: Sequence[str]) -> str | None:
    """Return a light topic's queue among these that is not of this topic; None without one.

    Only messages of the parent are put into its light topics: who may send to another topic may
    not send to them.
    """
    for queue in queues:
        if queue.startswith(PREFIX) and not belongs_to(queue, topic):
            return queue
    return None


def bucket(name: str, buckets: int) -> int:
    """Return which of `buckets` > 0 queues of the parent, in order, a light topic belongs to.

    The same as Guava's consistent hash of Java's hash code of the name, which clients use.
    """
    state = java_hash(name) & _MASK
    found = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        draw = ((state >> 33) + 1) / 2**31
        following = int((found + 1) / draw)
        if not 0 <= following < buckets:
            return found
        found = following
