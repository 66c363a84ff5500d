"""A message by an id of either kind."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages.message_id import is_offset_id

if TYPE_CHECKING:
    from roquet.admin import Admin
    from roquet.model.message import StoredMessage

TOPICS_MAX = 2_000
"""Topics that are asked for an id without a topic."""
_AT_ONCE = 8
_PASSED = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION)


async def found_by_id(admin: Admin, topic: str | None, name: str) -> list[StoredMessage]:
    """Return the copies of a message, one at least.

    The id that a producer makes names no broker and no topic, and indexes are by topic: without one
    each topic of users is asked, TOPICS_MAX at most. Raises UsageError, Refused with code 22.
    """
    if topic is not None:
        found = await admin.messages.by_id(topic, name)
        if not found and is_offset_id(name):
            # Both kinds of id may look alike; an address that is none of ours is no finding.
            with contextlib.suppress(UsageError):
                found = [await admin.messages.by_offset_id(name)]
    elif is_offset_id(name):
        try:
            found = [await admin.messages.by_offset_id(name)]
        except UsageError:
            return await _in_any_topic(admin, name)
    else:
        return await _in_any_topic(admin, name)
    if not found:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"{topic} has no message {name[:80]}")
    return found


async def _in_any_topic(admin: Admin, name: str) -> list[StoredMessage]:
    topics = await admin.topics.names(system=False)
    if len(topics) > TOPICS_MAX:
        raise UsageError(f"there are {len(topics)} topics, more than are asked: give --topic")
    forbidden: list[str] = []

    async def of(topic: str) -> list[StoredMessage]:
        try:
            return await admin.messages.by_id(topic, name)
        except Refused as refusal:
            if refusal.code not in _PASSED:
                raise
            if refusal.code == ResponseCode.NO_PERMISSION:
                forbidden.append(topic)
            return []

    for begin in range(0, len(topics), _AT_ONCE):
        asked = await asyncio.gather(*map(of, topics[begin : begin + _AT_ONCE]))
        found = [message for part in asked for message in part]
        if found:
            return found
    asked_count = len(topics) - len(forbidden)
    text = (
        f"no message {name[:80]} is in the index of {asked_count} topic{'s' * (asked_count != 1)};"
        " one that waits for its time is there when it is due"
    )
    if forbidden:
        text += f"; {len(forbidden)} may not be read, {forbidden[0]} for one"
    raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
