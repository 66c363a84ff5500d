"""Light queues (LMQ): which a message is in, and where, as its properties say.

A light queue has the queue id 0 alone. The sender names the queues; the store gives the message an
offset in each, and the core has the same rules once more (spec: store §5.4, wire §7.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Mapping

SEPARATOR = ","
NAMES_MAX = 128
"""Light queues of one message."""
NAME_SIZE_MAX = 255
"""Bytes of a name: it is that of a folder."""


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
        if not is_name or "/" in name or "\0" in name or len(name.encode()) > NAME_SIZE_MAX:
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


def _split(text: str) -> list[str]:
    """Return the parts of a list, without the empty ones at its end, as Java splits it."""
    parts = text.split(SEPARATOR)
    while parts and not parts[-1]:
        parts.pop()
    return parts
