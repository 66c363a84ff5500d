"""Acknowledgements that were read before their checkpoint. Pure, and without a clock.

Only when the timer wheel lags do they come so early; most that are here belong to no checkpoint any
more, or never did. So they have few bytes together. When these are used up the oldest goes of the
group that has most, in the topic that has most: whoever floods the broker pushes out what is its
own, and a group of another topic keeps what it has as long as that is less.

A message whose acknowledgement was pushed out comes again.
"""

from __future__ import annotations

import collections
import struct
import sys
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from roquet.protocol.pop.records import MergeKey

BYTES_MAX = 8 << 20
"""Memory of all of them, as `ACK_BYTES` and `GROUP_BYTES` reckon it."""
ACK_BYTES = 256
"""What one takes: its key, its time and its places in the tables."""
GROUP_BYTES = 2048
"""What the tables of a group and of its topic take while they have one, beside the names."""

Name = TypeVar("Name")
_KEY = struct.Struct(">iqqq")
_Group = tuple[str, str]
"""(group, broker name)."""


class _Most(Generic[Name]):
    """How much each name has, and a name that has most; a change by `n` takes up to `n` steps."""

    def __init__(self) -> None:
        self._counts: dict[Name, int] = {}
        self._names: dict[int, dict[Name, None]] = {}
        self._top = 0

    @property
    def name(self) -> Name:
        """The one that has most, of several the one that has had so much for the longest time."""
        return next(iter(self._names[self._top]))

    def add(self, name: Name, change: int) -> None:
        """Let a name have `change` more, or less."""
        before = self._counts.get(name, 0)
        after = before + change
        if before:
            same = self._names[before]
            del same[name]
            if not same:
                del self._names[before]
        if after:
            self._counts[name] = after
            self._names.setdefault(after, {})[name] = None
        else:
            del self._counts[name]
        self._top = max(self._top, after)
        while self._top and self._top not in self._names:
            self._top -= 1


class _Topic:
    """What is remembered of one topic."""

    def __init__(self) -> None:
        self.groups: dict[_Group, collections.OrderedDict[bytes, int]] = {}
        """Keys and when they were read, Unix milliseconds, the oldest first."""
        self.most: _Most[_Group] = _Most()


class StrayAcks:
    """The acknowledgements of all revive queues that wait for their checkpoints."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Begin with none; `bytes_max` bounds their memory."""
        self._bytes_max = bytes_max
        self._topics: dict[str, _Topic] = {}
        self._most: _Most[str] = _Most()
        """Of what the bytes of each topic are, in those of one acknowledgement."""
        self._count = 0
        self.bytes = 0
        """Memory they take, as it is reckoned."""
        self.pushed_out = 0
        """How many had to go before their time."""

    def __len__(self) -> int:
        return self._count

    def add(self, key: MergeKey, offset: int, now_ms: int) -> None:
        """Remember one that is read now, or read again."""
        name, group, packed = _split(key, offset)
        self.pop(key, offset)
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic()
        acks = topic.groups.get(group)
        if acks is None:
            acks = topic.groups[group] = collections.OrderedDict()
            self.bytes += _group_bytes(name, group)
            self._most.add(name, _group_bytes(name, group) // ACK_BYTES)
        acks[packed] = now_ms
        topic.most.add(group, 1)
        self._most.add(name, 1)
        self._count += 1
        self.bytes += ACK_BYTES
        while self.bytes > self._bytes_max and self._count:
            self._push_out()

    def pop(self, key: MergeKey, offset: int) -> bool:
        """Forget one whose checkpoint has come; tell whether it was there."""
        name, group, packed = _split(key, offset)
        topic = self._topics.get(name)
        acks = None if topic is None else topic.groups.get(group)
        if acks is None or packed not in acks:
            return False
        self._remove(name, group, packed)
        return True

    def expire(self, now_ms: int, wait_ms: int) -> None:
        """Forget those that have waited longer than `wait_ms`, or that were read in the future."""
        for name, topic in list(self._topics.items()):
            for group, acks in list(topic.groups.items()):
                while acks:
                    packed, read_ms = next(iter(acks.items()))
                    if read_ms <= now_ms and now_ms - read_ms <= wait_ms:
                        break
                    self._remove(name, group, packed)

    def clear(self) -> None:
        """Forget them all."""
        self._topics.clear()
        self._most = _Most()
        self._count = self.bytes = 0

    def _push_out(self) -> None:
        name = self._most.name
        topic = self._topics[name]
        group = topic.most.name
        self._remove(name, group, next(iter(topic.groups[group])))
        self.pushed_out += 1

    def _remove(self, name: str, group: _Group, packed: bytes) -> None:
        topic = self._topics[name]
        acks = topic.groups[group]
        del acks[packed]
        if not acks:
            del topic.groups[group]
            self.bytes -= _group_bytes(name, group)
            self._most.add(name, -(_group_bytes(name, group) // ACK_BYTES))
        topic.most.add(group, -1)
        self._most.add(name, -1)
        self._count -= 1
        self.bytes -= ACK_BYTES
        if not topic.groups:
            del self._topics[name]


def _split(key: MergeKey, offset: int) -> tuple[str, _Group, bytes]:
    topic, group, queue_id, start_offset, pop_time_ms, broker = key
    return topic, (group, broker), _KEY.pack(queue_id, start_offset, pop_time_ms, offset)


def _group_bytes(topic: str, group: _Group) -> int:
    return GROUP_BYTES + sum(sys.getsizeof(text) for text in (topic, *group))
