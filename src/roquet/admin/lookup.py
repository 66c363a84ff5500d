"""A message by an id of either kind."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages.message_id import is_offset_id

if TYPE_CHECKING:
    from roquet.admin import Admin
    from roquet.model.message import StoredMessage


async def found_by_id(admin: Admin, topic: str | None, name: str) -> list[StoredMessage]:
    """Return the copies of a message, one at least. Raises UsageError, Refused with code 22."""
    if topic is not None:
        found = await admin.messages.by_id(topic, name)
        if not found and is_offset_id(name):
            # Both kinds of id may look alike; an address that is none of ours is no finding.
            with contextlib.suppress(UsageError):
                found = [await admin.messages.by_offset_id(name)]
    elif is_offset_id(name):
        found = [await admin.messages.by_offset_id(name)]
    else:
        raise UsageError(f"{name[:80]!r} is the id of a producer: give --topic with it")
    if not found:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"{topic} has no message {name[:80]}")
    return found
