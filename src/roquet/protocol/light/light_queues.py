"""Light queues (LMQ): which a message is in, and where, as its properties say.

A light queue has the queue id 0 alone. The sender names the queues; the store gives the message an
offset in each, and the core has the same rules once more (spec: store §5.4, wire §7.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.pop.topics import normal_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

SEPARATOR = ","
NAMES_MAX = 128
"""Light queues of one message."""
NAME_SIZE_MAX = 255
"""Bytes of a name: it is that of a folder."""
_NAMES_QUEUES = props.INNER_MULTI_DISPATCH.encode()
_NAMES_GROUP = props.ORIGIN_GROUP.encode()


def is_given(topic: str) -> bool:
    """Tell whether messages of a topic get their light queues when they are stored."""
    return not (
        names.is_retry(topic)
        or names.is_dlq(topic)
        or topic == names.SCHEDULE_TOPIC
        or topic.startswith(("rmq_sys_", "RMQ_SYS_"))
    )


def named(properties: Mapping[str, str]) -> list[str]:
    """Return the light queues that a message names. Raises ValueError when one cannot be."""
    found = _split(properties.get(props.INNER_MULTI_DISPATCH, ""))
    if not found or len(found) > NAMES_MAX:
        raise ValueError(f"it names {len(found)} light queues, must be 1 to {NAMES_MAX}")
    for name in found:
        is_name = names.is_lmq(name) and len(name) > len(names.LMQ_PREFIX)
        is_name = is_name and name.isprintable() and "/" not in name
        if not is_name or len(name.encode()) > NAME_SIZE_MAX:
            raise ValueError(f"{name[:NAME_SIZE_MAX]!r} is no name of a light queue")
    return found


def offset_in(name: str, properties: Mapping[str, str]) -> int | None:
    """Return the offset of a stored message in a light queue; None when it is not there."""
    queues = _split(properties.get(props.INNER_MULTI_DISPATCH, ""))
    offsets = _split(properties.get(props.INNER_MULTI_QUEUE_OFFSET, ""))
    if len(queues) != len(offsets) or name not in queues:
        return None
    text = offsets[queues.index(name)]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None


def is_of_others(topic: str) -> bool:
    """Tell whether messages of other topics may lie in a topic: its name alone gives no right."""
    return names.is_lmq(topic) or names.is_retry(topic) or names.is_dlq(topic)


def note_origin(topic: str, properties: MutableMapping[str, str]) -> None:
    """Have a copy of a topic's message name that topic, if the message is of light queues.

    What the message itself says counts only where it is such a copy already.
    """
    if names.is_retry(topic) or names.is_dlq(topic):
        return
    properties.pop(props.LMQ_ORIGIN_TOPIC, None)
    if props.INNER_MULTI_DISPATCH in properties:
        properties[props.LMQ_ORIGIN_TOPIC] = topic


def owner(topic: str, properties: bytes) -> str:
    """Return the topic whose readers may read a stored message, by its own topic and properties.

    A copy of a message of light queues is its first topic's. One that does not say which (a client
    sent it) is that of a topic that no account reads unless it is named. What a group popped is its
    topic's: `%RETRY%a_b` is also the name under which the group `a_b` gets its own back.
    """
    if not (names.is_retry(topic) or names.is_dlq(topic)):
        return topic
    if _NAMES_QUEUES not in properties and _NAMES_GROUP not in properties:
        return topic
    found = props.read(properties)
    if props.INNER_MULTI_DISPATCH not in found:
        popped = normal_topic(topic, found.get(props.ORIGIN_GROUP, ""))
        return popped if popped and not is_of_others(popped) else topic
    origin = found.get(props.LMQ_ORIGIN_TOPIC) or found.get(props.RETRY_TOPIC) or ""
    return origin if origin and not is_of_others(origin) else names.SCHEDULE_TOPIC


def _split(text: str) -> list[str]:
    """Return the parts of a list, without the empty ones at its end, as Java splits it."""
    parts = text.split(SEPARATOR)
    while parts and not parts[-1]:
        parts.pop()
    return parts
