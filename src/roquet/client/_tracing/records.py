"""Trace records as text, in the order of fields that RocketMQ's clients and tools know. Pure.

A body is records ended by U+0002, a record is fields joined by U+0001, the first names its kind
(client.md, Trace; Java: TraceDataEncoder).
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from roquet.protocol import properties

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIELD_END = "\x01"
_RECORD_END = "\x02"
_NOTHING = "null"
"""What Java writes where there is nothing."""


class TracedType(enum.IntEnum):
    """What kind of message it is: the ordinals of Java's MessageType."""

    NORMAL = 0
    HALF = 1
    DELAY = 3


@dataclasses.dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record, and what the message that carries it is found by."""

    region: str
    text: str
    keys: tuple[str, ...]
    """Ids and keys of the traced message."""

    @property
    def size(self) -> int:
        """Bytes at most, of text and keys."""
        return 4 * len(self.text) if not self.text.isascii() else len(self.text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What a producer knows of a message that it traces; topic and group without namespace."""

    region: str
    group: str
    topic: str
    message_id: str
    tag: str
    keys: str
    """Joined by spaces."""
    broker: str
    """Its address, empty where none had the message."""
    kind: TracedType = TracedType.NORMAL

    def _names(self) -> tuple[str, ...]:
        return (
            (self.message_id, *self.keys.split(properties.KEY_SEPARATOR))
            if self.keys
            else (self.message_id,)
        )

    def sent(
        self, at_ms: int, cost_ms: int, body_length: int, offset_id: str, *, success: bool
    ) -> TraceRecord:
        """Return the record of a send (Pub)."""
        text = _record(
            "Pub",
            at_ms,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            self.tag,
            self.keys,
            self.broker,
            body_length,
            cost_ms,
            int(self.kind),
            offset_id,
            success,
        )
        return TraceRecord(self.region, text, self._names())

    def ended(self, at_ms: int, state: str, *, from_check: bool) -> TraceRecord:
        """Return the record of a transaction's end; `state` is Java's name of it."""
        text = _record(
            "EndTransaction",
            at_ms,
            self.region,
            self.group,
            self.topic,
            self.message_id,
            self.tag,
            self.keys,
            self.broker,
            int(self.kind),
            self.message_id,
            state,
            from_check,
        )
        return TraceRecord(self.region, text, self._names())

    def recalled(self, at_ms: int, *, success: bool) -> TraceRecord:
        """Return the record of a recall. It has no tag and no keys (Java: TraceType.Recall)."""
        text = _record(
            "Recall", at_ms, self.region, self.group, self.topic, self.message_id, success
        )
        return TraceRecord(self.region, text, self._names())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """One delivery to an application; `request_id` joins its beginning and its end."""

    region: str
    group: str
    request_id: str
    message_id: str
    attempts_before: int
    keys: tuple[str, ...]

    def begun(self, at_ms: int) -> TraceRecord:
        """Return the record of its beginning (SubBefore)."""
        text = _record(
            "SubBefore",
            at_ms,
            self.region,
            self.group,
            self.request_id,
            self.message_id,
            self.attempts_before,
            properties.KEY_SEPARATOR.join(self.keys),
        )
        return TraceRecord(self.region, text, (self.message_id, *self.keys))

    def ended(self, at_ms: int, cost_ms: int, *, success: bool) -> TraceRecord:
        """Return the record of its end (SubAfter)."""
        text = _record(
            "SubAfter",
            self.request_id,
            self.message_id,
            cost_ms,
            success,
            properties.KEY_SEPARATOR.join(self.keys),
            _SUCCEEDED if success else _FAILED,
            at_ms,
            self.group,
        )
        return TraceRecord(self.region, text, (self.message_id, *self.keys))


_SUCCEEDED, _FAILED = 0, 4
"""Ordinals of Java's ConsumeReturnType."""


def keys_of(records: Iterable[TraceRecord]) -> tuple[str, ...]:
    """Return the keys of a trace message: each of the records' once, in order."""
    return tuple(dict.fromkeys(key for record in records for key in record.keys))


def _record(*fields: str | int) -> str:
    return _FIELD_END.join(map(_text, fields)) + _RECORD_END


def _text(field: str | int) -> str:
    if isinstance(field, bool):
        return "true" if field else "false"
    # Java drops empty fields at the end of a record, and then misses them.
    return str(field) or _NOTHING
