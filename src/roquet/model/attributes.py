"""Attributes of topics and groups: which there are, their values, and how they change.

A change is asked for one attribute at a time, by its key and a sign (Java: AttributeUtil).
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from roquet.model.topic import MESSAGE_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MESSAGE_TYPE = "message.type"
PRIORITY_FACTOR = "priority.factor"
"""Share of a group's pops, per cent, that go by priority."""
PRIORITY_FACTOR_DEFAULT = 100
LIGHT = "LITE"
"""The message type of parents of light topics."""
LIGHT_EXPIRATION = "lite.topic.expiration"
"""Minutes after its last message at which a light topic goes; -1: never."""
LIGHT_BIND_TOPIC = "lite.bind.topic"
LIGHT_MODEL = "lite.sub.model"
LIGHT_RESET_EXCLUSIVE = "lite.sub.reset.offset.exclusive"
LIGHT_RESET_UNSUBSCRIBE = "lite.sub.reset.offset.unsubscribe"
LIGHT_CLIENT_QUOTA = "lite.sub.client.quota"
LIGHT_EVENTS_MAX = "lite.sub.client.max.event.cnt"
LIGHT_WILDCARD = "lite.sub.wildcard"
LONG_MAX = 2**63 - 1
TEXT_LENGTH_MAX = 255
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}|\+?9223372036854775807", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttributeChange:
    """Sets an attribute of a topic or group, or removes it."""

    key: str
    value: str = ""
    removes: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """What one attribute may say: text, one of some values, or a number."""

    may_change: bool = True
    values: frozenset[str] | None = None
    low: int = 0
    high: int = LONG_MAX
    is_text: bool = False
    is_boolean: bool = False

    def wrong(self, key: str, value: str) -> str | None:
        """Return why `value` cannot be set, None if it can."""
        if self.values is not None:
            good = value in self.values
            return None if good else f"value is not in set: {sorted(self.values)}"
        if self.is_boolean:
            good = value.lower() in ("true", "false")
            return None if good else "boolean attribute format is wrong."
        if self.is_text:
            good = len(value) <= TEXT_LENGTH_MAX and value.isprintable()
            return None if good else f"value is not a text of {TEXT_LENGTH_MAX} characters. {key}"
        if _NUMBER.fullmatch(value) is None:
            return f"value is not a number. key: {key}"
        if not self.low <= int(value) <= self.high:
            return f"value is not in range({self.low}, {self.high})"
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Attributes:
    """All attributes of one kind of object."""

    known: Mapping[str, Attribute]
    planned: Mapping[tuple[str, str], str]
    """Key, and value or "" for all, that RocketMQ 5.5.0 has and we lack -> the feature."""

    def altered(
        self, current: Mapping[str, str] | None, changes: Sequence[AttributeChange]
    ) -> dict[str, str]:
        """Return attributes after changes; `current` is None for an object that is made now.

        Raises ValueError with the reason when one of them is not possible.
        """
        attributes = dict(current or {})
        seen: set[str] = set()
        for change in changes:
            problem = self._wrong(change, current)
            if problem is None and change.key in seen:
                problem = f"alter duplication key. key: {change.key}"
            if problem is not None:
                raise ValueError(problem)
            seen.add(change.key)
            if change.removes:
                del attributes[change.key]
            else:
                attributes[change.key] = change.value
        return attributes

    def _wrong(self, change: AttributeChange, current: Mapping[str, str] | None) -> str | None:
        """Return why a change is not possible, None if it is."""
        key, value = change.key, change.value
        feature = self.planned.get((key, "")) or self.planned.get((key, value))
        if feature is not None:
            return f"not supported by this broker yet: {feature} ({key}={value[:80]})"
        attribute = self.known.get(key)
        if attribute is None:
            return f"unsupported key: {key[:80]}"
        if current is not None and not attribute.may_change:
            return f"attempt to update an unchangeable attribute. key: {key}"
        if change.removes:
            return _wrong_removal(key, current)
        return attribute.wrong(key, value)


def _wrong_removal(key: str, current: Mapping[str, str] | None) -> str | None:
    if current is None:
        return f"only add attribute is supported while creating topic. key: {key}"
    return None if key in current else f"attempt to delete a nonexistent key: {key}"


TOPIC_ATTRIBUTES = Attributes(
    known={
        MESSAGE_TYPE: Attribute(values=MESSAGE_TYPES),
        "queue.type": Attribute(values=frozenset({"SimpleCQ"}), may_change=False),
        "cleanup.policy": Attribute(values=frozenset({"DELETE"}), may_change=False),
        "topic.reserve.time": Attribute(),
        LIGHT_EXPIRATION: Attribute(low=-1, high=43_200),
    },
    planned={
        ("queue.type", "BatchCQ"): "batch consume queues",
        ("queue.type", "RocksDBCQ"): "consume queues in RocksDB",
        ("cleanup.policy", "COMPACTION"): "compacted topics",
    },
)

GROUP_ATTRIBUTES = Attributes(
    known={
        PRIORITY_FACTOR: Attribute(low=0, high=100),
        LIGHT_BIND_TOPIC: Attribute(is_text=True),
        LIGHT_MODEL: Attribute(values=frozenset({"Shared", "Exclusive"})),
        LIGHT_RESET_EXCLUSIVE: Attribute(is_boolean=True),
        LIGHT_RESET_UNSUBSCRIBE: Attribute(is_boolean=True),
        LIGHT_CLIENT_QUOTA: Attribute(low=-1),
        LIGHT_EVENTS_MAX: Attribute(low=10),
        LIGHT_WILDCARD: Attribute(is_text=True),
    },
    planned={},
)


def parse_change(signed: str, value: str) -> AttributeChange:
    """Read the key `+name` or `-name` of a change. Raises ValueError."""
    if signed[:1] not in ("+", "-") or len(signed) < 2:
        raise ValueError(f"kv string format wrong: {signed[:80]!r}, should be +key=value or -key")
    return AttributeChange(key=signed[1:], value=value, removes=signed[0] == "-")


def changes_of(attributes: Mapping[str, str]) -> list[AttributeChange]:
    """Read the attributes of a written configuration; a key without a sign is set."""
    return [
        parse_change(key if key[:1] in ("+", "-") else "+" + key, value)
        for key, value in attributes.items()
    ]


def priority_factor(attributes: Mapping[str, str]) -> int:
    """Return the share of a group's pops, per cent, that go by priority.

    Tables of other makes may say anything; what is no number counts as not said.
    """
    text = attributes.get(PRIORITY_FACTOR, "")
    good = text.isascii() and text.isdigit() and len(text) <= 18
    return int(text) if good else PRIORITY_FACTOR_DEFAULT


def light_expiration_minutes(attributes: Mapping[str, str]) -> int:
    """Return after how many minutes without a message a light topic goes; below 1: never."""
    return number_of(attributes, LIGHT_EXPIRATION, -1)


def number_of(attributes: Mapping[str, str], key: str, default: int) -> int:
    """Return a number; what tables of other makes say that is none counts as not said."""
    text = attributes.get(key, "")
    return int(text) if _NUMBER.fullmatch(text) is not None else default
