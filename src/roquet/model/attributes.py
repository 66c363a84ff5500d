"""Attributes of topics and groups: which there are, their values, and how they change.

A change is asked for one attribute at a time, by its key and a sign (Java: AttributeUtil).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.model.topic import MESSAGE_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MESSAGE_TYPE = "message.type"
PRIORITY_FACTOR = "priority.factor"
"""Share of a group's pops, per cent, that go by priority."""
PRIORITY_FACTOR_DEFAULT = 100


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AttributeChange:
    """Sets an attribute of a topic or group, or removes it."""

    key: str
    value: str = ""
    removes: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """What one attribute may say; without values and bounds it is a number of any size."""

    may_change: bool = True
    values: frozenset[str] | None = None
    low: int | None = None
    high: int | None = None

    def wrong(self, key: str, value: str) -> str | None:
        """Return why `value` cannot be set, None if it can."""
        if self.values is not None:
            good = value in self.values
            return None if good else f"value is not in set: {sorted(self.values)}"
        if not (value.isascii() and value.isdigit() and len(value) <= 18):
            return f"value is not a number. key: {key}"
        number = int(value)
        low, high = self.low, self.high
        if (low is not None and number < low) or (high is not None and number > high):
            return f"value is not in range({low}, {high})"
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
    },
    planned={
        ("queue.type", "BatchCQ"): "batch consume queues",
        ("queue.type", "RocksDBCQ"): "consume queues in RocksDB",
        ("cleanup.policy", "COMPACTION"): "compacted topics",
        ("lite.topic.expiration", ""): "lite topics",
        (MESSAGE_TYPE, "LITE"): "lite topics",
    },
)

GROUP_ATTRIBUTES = Attributes(
    known={PRIORITY_FACTOR: Attribute(low=0, high=100)},
    planned={
        (key, ""): "lite topics"
        for key in (
            "lite.bind.topic",
            "lite.sub.model",
            "lite.sub.reset.offset.exclusive",
            "lite.sub.reset.offset.unsubscribe",
            "lite.sub.client.quota",
            "lite.sub.client.max.event.cnt",
            "lite.sub.wildcard",
        )
    },
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
