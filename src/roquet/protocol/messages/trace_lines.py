"""The text that clients write to the trace topic, taken apart. Pure.

A body is records ended by U+0002, a record is fields joined by U+0001, the first names its kind.
Clients of later versions may add fields behind those that are known, and kinds; older ones leave
the last ones out. What cannot be understood is reported, never dropped.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
RECORDS_MAX: Final = 10_000
"""Records of one body: clients cut at 128,000 bytes."""
FIELDS_MAX: Final = 64
TEXT_MAX: Final = 4096
SHOWN_MAX: Final = 200
CODES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
MESSAGE_TYPES: Final = ("normal", "half", "commit", "delay", "order")
# The year 2262: what Spark's microseconds, Arrow's and Python's calendars all know.
TIME_MAX: Final = 9_223_372_036_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One record. Times in Unix milliseconds by the client's clock; None: not said.

    `reason` is empty for what was understood; else it says what is wrong and `raw` is the record.
    """

    kind: str
    at_ms: int | None = None
    region: str | None = None
    group: str | None = None
    topic: str | None = None
    msg_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int | None = None
    cost_ms: int | None = None
    message_type: str | None = None
    offset_msg_id: str | None = None
    success: bool | None = None
    request_id: str | None = None
    retry_times: int | None = None
    code: str | None = None
    transaction_id: str | None = None
    state: str | None = None
    from_check: bool | None = None
    reason: str = ""
    raw: str = ""


class _CutError(Exception):
    """A field that a record needs is not there, or is no such value."""


class _Fields:
    """The fields of one record, by place."""

    def __init__(self, values: Sequence[str]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def text(self, place: int) -> str | None:
        """Return a text; None where Java wrote null, or nothing."""
        value = self._values[place] if place < len(self._values) else ""
        return None if value in {"", "null"} else value[:TEXT_MAX]

    def needed(self, place: int, what: str) -> str:
        """Return a text that has to be there."""
        value = self.text(place)
        if value is None:
            raise _CutError(f"there is no {what}")
        return value

    def number(self, place: int, what: str) -> int | None:
        """Return a whole number that fits 32 bits; None where there is none."""
        return self._number(place, what, 2**31 - 1)

    def time(self, place: int) -> int:
        """Return a time, which has to be there."""
        found = self._number(place, "time", TIME_MAX)
        if found is None or found < 0:
            raise _CutError("there is no time")
        return found

    def flag(self, place: int) -> bool | None:
        """Return true or false; None where there is neither."""
        return {"true": True, "false": False}.get((self.text(place) or "").lower())

    def one_of(self, place: int, names: Sequence[str]) -> str | None:
        """Return the name of an ordinal; the number itself when it is a later version's."""
        found = self.number(place, "ordinal")
        if found is None:
            return None
        return names[found] if 0 <= found < len(names) else str(found)

    def _number(self, place: int, what: str, high: int) -> int | None:
        text = self.text(place)
        if text is None:
            return None
        digits = text.removeprefix("-")
        is_whole = digits.isascii() and digits.isdigit() and len(digits) <= 19
        if not is_whole or abs(int(text)) > high:
            raise _CutError(f"{what} = {text[:40]!r}")
        return int(text)


def decode(body: bytes) -> Iterator[Event]:
    """Return the records of a body, in order."""
    # A body that was cut inside of a letter loses that letter, not what is before it.
    *records, rest = body.decode("utf-8", errors="replace").split(RECORD_END)
    for number, record in enumerate(records):
        if number == RECORDS_MAX:
            yield _damaged("", f"more than {RECORDS_MAX} records", record)
            return
        if record:
            yield decode_record(record)
    if rest:
        yield _damaged(rest.partition(FIELD_END)[0], "the record has no end", rest)


def decode_record(record: str) -> Event:
    """Return what one record says, given without its end."""
    values = record.split(FIELD_END, FIELDS_MAX)
    kind = values[0]
    if kind not in KINDS:
        return _damaged(kind, "a kind that is not known", record)
    least, read = KINDS[kind]
    if len(values) < least:
        return _damaged(kind, f"{len(values)} fields of {least}", record)
    try:
        return read(_Fields(values))
    except _CutError as error:
        return _damaged(kind, str(error), record)


# --- inside --------------------------------------------------------------------------------------


def _damaged(kind: str, reason: str, record: str) -> Event:
    shown = record[:SHOWN_MAX].replace(FIELD_END, "|")
    return Event(kind=kind[:40], reason=reason, raw=shown)


def _pub(it: _Fields) -> Event:
    # Before 4.x knew offsets, whether it succeeded stood where the id by offset is now.
    has_offset = len(it) >= 14
    return Event(
        kind="Pub",
        at_ms=it.time(1),
        region=it.text(2),
        group=it.text(3),
        topic=it.text(4),
        msg_id=it.needed(5, "message id"),
        tags=it.text(6),
        keys=it.text(7),
        store_host=it.text(8),
        body_length=it.number(9, "body length"),
        cost_ms=it.number(10, "cost"),
        message_type=it.one_of(11, MESSAGE_TYPES),
        offset_msg_id=it.text(12) if has_offset else None,
        success=it.flag(13 if has_offset else 12),
    )


def _sub_before(it: _Fields) -> Event:
    return Event(
        kind="SubBefore",
        at_ms=it.time(1),
        region=it.text(2),
        group=it.text(3),
        request_id=it.needed(4, "request id"),
        msg_id=it.needed(5, "message id"),
        retry_times=it.number(6, "retries"),
        keys=it.text(7),
    )


def _sub_after(it: _Fields) -> Event:
    return Event(
        kind="SubAfter",
        request_id=it.needed(1, "request id"),
        msg_id=it.needed(2, "message id"),
        cost_ms=it.number(3, "cost"),
        success=it.flag(4),
        keys=it.text(5),
        code=it.one_of(6, CODES),
        at_ms=it.time(7) if it.text(7) else None,
        group=it.text(8),
    )


def _end_transaction(it: _Fields) -> Event:
    return Event(
        kind="EndTransaction",
        at_ms=it.time(1),
        region=it.text(2),
        group=it.text(3),
        topic=it.text(4),
        msg_id=it.needed(5, "message id"),
        tags=it.text(6),
        keys=it.text(7),
        store_host=it.text(8),
        message_type=it.one_of(9, MESSAGE_TYPES),
        transaction_id=it.text(10),
        state=it.text(11),
        from_check=it.flag(12),
    )


def _recall(it: _Fields) -> Event:
    return Event(
        kind="Recall",
        at_ms=it.time(1),
        region=it.text(2),
        group=it.text(3),
        topic=it.text(4),
        msg_id=it.needed(5, "message id"),
        success=it.flag(6),
    )


# How many fields the oldest clients write, and how they are read.
KINDS: Final[Mapping[str, tuple[int, Callable[[_Fields], Event]]]] = {
    "Pub": (13, _pub),
    "SubBefore": (8, _sub_before),
    "SubAfter": (6, _sub_after),
    "EndTransaction": (13, _end_transaction),
    "Recall": (7, _recall),
}
