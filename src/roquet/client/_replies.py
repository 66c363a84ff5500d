"""Request-reply: who waits for which answer. Answers come from brokers as requests (326)."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.protocol import names
from roquet.protocol import properties as props

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from roquet.model.message import StoredMessage

WAITING_MAX = 65_536
"""Requests that may wait for their answer at a time."""


class Replies:
    """The requests of one client that have no answer yet."""

    def __init__(self, rng: random.Random) -> None:
        """Wait for none."""
        self._rng = rng
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}

    def expect(self) -> tuple[str, asyncio.Future[StoredMessage]]:
        """Make a correlation id, and the future of its answer. Raises UsageError over the limit."""
        if len(self._waiting) >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX} requests wait for an answer already")
        id_ = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = future
        return id_, future

    def forget(self, correlation_id: str) -> None:
        """Wait no longer."""
        self._waiting.pop(correlation_id, None)

    def arrived(self, message: StoredMessage) -> bool:
        """Take an answer; tell whether somebody waited for it."""
        future = self._waiting.pop(message.properties.get(props.CORRELATION_ID, ""), None)
        if future is None or future.done():
            return False
        future.set_result(message)
        return True


def request_properties(correlation_id: str, client_id: str, timeout_s: float) -> dict[str, str]:
    """Return what makes a message a request."""
    return {
        props.CORRELATION_ID: correlation_id,
        props.REPLY_TO_CLIENT: client_id,
        props.TTL: str(max(1, int(timeout_s * 1000))),
    }


def reply_properties(asked: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the topic of an answer to a message, and what makes it one. Raises UsageError."""
    cluster = asked.get(props.CLUSTER)
    if not cluster or not asked.get(props.REPLY_TO_CLIENT):
        raise UsageError("the message is no request: it does not say who waits for an answer")
    copied = (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL)
    system = {name: asked[name] for name in copied if name in asked}
    return names.reply_topic(cluster), {**system, props.MSG_TYPE: "reply"}
