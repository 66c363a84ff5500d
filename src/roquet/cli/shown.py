"""A message as commands show it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from roquet.base.limits import safe

if TYPE_CHECKING:
    from roquet.model.message import StoredMessage


def message_text(message: StoredMessage) -> str:
    """Return the body for people: text without what a terminal would obey, else its bytes."""
    try:
        return safe(message.body.decode(), None)
    except UnicodeDecodeError:
        return repr(message.body)


def message_fields(message: StoredMessage) -> dict[str, Any]:
    """Return a message for programs."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.unique_key or message.msg_id,
        "stored_ms": message.store_timestamp,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return found
