"""Names within a namespace: `orders` of `shop` is `shop%orders` on the wire (client.md). Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.model.message import Message, StoredMessage

_GOOD = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_MARK = "%"
_PREFIXES = (names.RETRY_PREFIX, names.DLQ_PREFIX)


class Namespace:
    """What a client puts before names of topics and groups, and takes off again."""

    def __init__(self, name: str = "") -> None:
        """Take the name; an empty one changes nothing. Raises UsageError."""
        if name and not _GOOD.fullmatch(name):
            raise UsageError(f"namespace {name[:80]!r} is not 1 to 64 of A-Z a-z 0-9 _ and -")
        self._prefix = name and name + _MARK

    def topic(self, topic: str) -> str:
        """Return the name that brokers know; those of the system and those that have it stay."""
        return (
            topic if names.is_system_topic(topic) or names.is_lmq(topic) else self._wrapped(topic)
        )

    def group(self, group: str) -> str:
        """Return the name that brokers know."""
        return group if names.is_system_group(group) else self._wrapped(group)

    def bare(self, name: str) -> str:
        """Return a topic's or group's name as the application knows it."""
        kind, rest = _split(name)
        return kind + rest.removeprefix(self._prefix) if self._prefix else name

    def message(self, message: Message) -> Message:
        """Return the message as it is sent."""
        topic = self.topic(message.topic)
        return message if topic == message.topic else dataclasses.replace(message, topic=topic)

    def shown(self, message: StoredMessage) -> StoredMessage:
        """Return a message that came as the application knows it."""
        if not self._prefix:
            return message
        kind, rest = _split(message.topic)
        if not rest.startswith(self._prefix):
            return message
        return dataclasses.replace(message, topic=kind + rest.removeprefix(self._prefix))

    def _wrapped(self, name: str) -> str:
        if not self._prefix:
            return name
        kind, rest = _split(name)
        return name if rest.startswith(self._prefix) else f"{kind}{self._prefix}{rest}"


def _split(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
