"""Trace messages taken apart by columns, with Arrow: the quick way for records that are in order.

`trace_lines` says what a record means. Here the same is done for all records of a kind at once,
for those whose fields are what a table expects; each other record, and each body that is not
whole, is left to `trace_lines`. A test holds the two against each other.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Final

from roquet.protocol.messages.trace_lines import (
    CODES,
    FIELD_END,
    FIELDS_MAX,
    KINDS,
    MESSAGE_TYPES,
    RECORD_END,
    RECORDS_MAX,
    TEXT_MAX,
    TIME_MAX,
    Event,
    decode,
    decode_record,
)
from roquet.spark.jobs.tracing.queries import DAMAGED_TYPES, EVENT_TYPES, WHY_NOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
CUT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of messages that are taken apart at a time: their fields need several times as much."""
_PLACES: Final[Mapping[str, Mapping[str, tuple[str, int]]]] = {
    "Pub": {
        "at": ("time", 1),
        "region": ("text", 2),
        "group": ("text", 3),
        "topic": ("text", 4),
        "msgId": ("needed", 5),
        "tags": ("text", 6),
        "keys": ("text", 7),
        "storeHost": ("text", 8),
        "bodyLength": ("number", 9),
        "costMs": ("number", 10),
        "messageType": ("type", 11),
        "offsetMsgId": ("text", 12),
        "success": ("flag", 13),
    },
    "SubBefore": {
        "at": ("time", 1),
        "region": ("text", 2),
        "group": ("text", 3),
        "requestId": ("needed", 4),
        "msgId": ("needed", 5),
        "retryTimes": ("number", 6),
        "keys": ("text", 7),
    },
    "SubAfter": {
        "requestId": ("needed", 1),
        "msgId": ("needed", 2),
        "costMs": ("number", 3),
        "success": ("flag", 4),
        "keys": ("text", 5),
        "code": ("code", 6),
        "at": ("later", 7),
        "group": ("text", 8),
    },
}
"""Where the columns of a record are, and how each is read; the other kinds are rare."""
_LEAST: Final = {"Pub": 14, **{kind: KINDS[kind][0] for kind in ("SubBefore", "SubAfter")}}
"""How many fields there have to be: those of the oldest clients have no table here."""


def readable(batches: Iterable[Any]) -> Iterator[Any]:
    """Return the records that are understood, for `mapInArrow`: rows of `trace_queries.EVENTS`."""
    import pyarrow.compute as pc  # noqa: PLC0415  (only tasks need it)

    for rows in decoded(batches):
        good = rows.filter(pc.equal(rows.column("reason"), ""))
        yield good.drop_columns(list(WHY_NOT))


def unreadable(batches: Iterable[Any]) -> Iterator[Any]:
    """Return the other ones, for `mapInArrow`: rows of `trace_queries.DAMAGED`."""
    import pyarrow.compute as pc  # noqa: PLC0415  (only tasks need it)

    for rows in decoded(batches):
        bad = rows.filter(pc.not_equal(rows.column("reason"), ""))
        yield bad.select(list(DAMAGED_TYPES))


def decoded(batches: Iterable[Any]) -> Iterator[Any]:
    """Return all records of trace messages: rows of `trace_queries.EVENT_TYPES`."""
    for batch in batches:
        size = batch.column("body").nbytes
        step = max(1, batch.num_rows * CUT_BYTES // max(CUT_BYTES, size))
        for begin in range(0, max(1, batch.num_rows), step):
            yield _events(batch.slice(begin, step))


# --- inside --------------------------------------------------------------------------------------


def _events(batch: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415  (only tasks need it)
    import pyarrow.compute as pc  # noqa: PLC0415

    texts = _texts(batch.column("body"))
    pieces = pc.split_pattern(texts, RECORD_END)
    # A whole body ends with the end of a record, behind which nothing is.
    few = pc.less_equal(pc.list_value_length(pieces), RECORDS_MAX + 1)
    whole = pc.and_(pc.ends_with(texts, RECORD_END), few)
    odd: list[tuple[int, Event]] = []
    for row in pc.indices_nonzero(pc.invert(whole)).to_pylist():
        odd += [(row, event) for event in decode(batch.column("body")[row].as_py() or b"")]
    rows = pc.indices_nonzero(whole)
    pieces = pieces.take(rows)
    records, parents = pc.list_flatten(pieces), rows.take(pc.list_parent_indices(pieces))
    some = pc.not_equal(records, "")
    records, parents = records.filter(some), parents.filter(some)
    tables, done = _by_kind(records)
    places = pa.array(range(len(records)), pa.int64())
    for place in places.filter(pc.invert(pc.is_in(places, value_set=done))).to_pylist():
        odd.append((parents[place].as_py(), decode_record(records[place].as_py())))
    messages = [parents.take(done), pa.array([row for row, _ in odd], pa.uint64())]
    tables.append(_rows([event for _, event in odd]))
    return _with_messages(pa.concat_tables(tables), pa.concat_arrays(messages), batch)


def _by_kind(records: Any) -> tuple[list[Any], Any]:
    """Return tables of the records that are in order, and their places, in the same order."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    fields = pc.split_pattern(records, FIELD_END, max_splits=FIELDS_MAX)
    kinds, lengths = pc.list_element(fields, 0), pc.list_value_length(fields)
    tables: list[Any] = []
    done: list[Any] = []
    for kind, columns in _PLACES.items():
        mine = pc.and_(pc.equal(kinds, kind), pc.greater_equal(lengths, _LEAST[kind]))
        places = pc.indices_nonzero(mine)
        table, good = _table(kind, columns, _Fields(fields.take(places)))
        tables.append(table)
        done.append(places.filter(good).cast(pa.int64()))
    return tables, pa.concat_arrays(done)


class _Fields:
    """The fields of records of one kind, by place, and which records are in order so far."""

    def __init__(self, lists: Any) -> None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        self._pc = pc
        self._lengths = pc.list_value_length(lists)
        self._values = pc.list_flatten(lists)
        ends = pc.cumulative_sum(self._lengths)
        self._begins = pc.subtract(ends, self._lengths)
        self.good: Any = pa.repeat(True, len(lists))

    def read(self, how: str, place: int) -> Any:
        """Return a column; records whose value is not as expected are no longer good."""
        found = self.text(place)
        if how == "needed":
            self._only(self._pc.is_valid(found))
        elif how == "flag":
            found = self._one_of(found, ("false", "true"), (False, True))
        elif how in {"type", "code"}:
            names = MESSAGE_TYPES if how == "type" else CODES
            found = self._one_of(found, [str(it) for it in range(len(names))], names)
        elif how == "number":
            found = self._number(found, "-?[0-9]{1,9}")
        elif how in {"time", "later"}:
            found = self._time(found, needed=how == "time")
        return found

    def text(self, place: int) -> Any:
        pc = self._pc
        where = pc.if_else(pc.greater(self._lengths, place), pc.add(self._begins, place), None)
        found = self._values.take(where)
        nothing = pc.or_(pc.equal(found, ""), pc.equal(found, "null"))
        found = pc.if_else(nothing, None, found)
        if (pc.max(pc.binary_length(found)).as_py() or 0) > TEXT_MAX:
            return pc.utf8_slice_codeunits(found, 0, TEXT_MAX)
        return found

    def _only(self, right: Any) -> None:
        # What is not said is right, unless it is needed.
        self.good = self._pc.and_(self.good, right.fill_null(True))

    def _one_of(self, found: Any, texts: Sequence[str], meanings: Sequence[object]) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        which = self._pc.index_in(found, value_set=pa.array(texts))
        self._only(self._pc.or_(self._pc.is_valid(which), self._pc.is_null(found)))
        return pa.array(meanings).take(which)

    def _time(self, found: Any, *, needed: bool) -> Any:
        if needed:
            self._only(self._pc.is_valid(found))
        at = self._number(found, "[0-9]{1,13}")
        self._only(self._pc.less_equal(at, TIME_MAX))
        # Arrow takes a count of microseconds for a time.
        return self._pc.multiply(at, 1000)

    def _number(self, found: Any, pattern: str) -> Any:
        right = self._pc.match_substring_regex(found, f"^{pattern}$")
        self._only(right)
        return self._pc.if_else(right, found, None).cast("int64")


def _table(kind: str, columns: Mapping[str, tuple[str, int]], fields: _Fields) -> tuple[Any, Any]:
    """Return the records that are in order as a table, and which of all they are."""
    import pyarrow as pa  # noqa: PLC0415

    read = {name: fields.read(how, place) for name, (how, place) in columns.items()}
    rows = len(fields.good)
    known = {**read, "kind": pa.repeat(kind, rows), "reason": pa.repeat("", rows)}
    known["raw"] = known["reason"]
    types = _types()
    made = [
        known[name].cast(kind) if name in known else pa.nulls(rows, kind)
        for name, kind in types.items()
    ]
    return pa.table(made, names=list(types)).filter(fields.good), fields.good


def _rows(events: Sequence[Event]) -> Any:
    """Return events as a table, one by one."""
    import pyarrow as pa  # noqa: PLC0415

    types = _types()
    values = [[getattr(it, field.name) for it in events] for field in dataclasses.fields(Event)]
    columns = dict(zip(types, values, strict=True))
    # Arrow takes a count of microseconds for a time.
    columns["at"] = [None if at is None else at * 1000 for at in columns["at"]]
    return pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})


def _with_messages(table: Any, rows: Any, batch: Any) -> Any:
    """Add to each record what is known of its message, by the message's row of the batch."""
    import pyarrow as pa  # noqa: PLC0415

    hosts = [str(it or "").rpartition(":")[0] for it in batch.column("bornHost").to_pylist()]
    given = {
        "host": pa.array(hosts, pa.string()),
        "storeTimestamp": batch.column("storeTimestamp"),
        "queueOffset": batch.column("queueOffset"),
    }
    for name, column in given.items():
        table = table.append_column(name, column.take(rows))
    (made,) = table.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=table.schema)
    ]
    return made


@functools.cache
def _types() -> dict[str, Any]:
    """Return the columns that a record has by itself, in order, with Arrow's types."""
    import pyarrow as pa  # noqa: PLC0415

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    names = list(EVENT_TYPES)[: len(dataclasses.fields(Event))]
    return {name: types[EVENT_TYPES[name]] for name in names}


def _texts(bodies: Any) -> Any:
    """Return bodies as text. What is no UTF-8 is replaced, as `trace_lines` does it."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return bodies.fill_null(b"").cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([(it or b"").decode("utf-8", "replace") for it in bodies.to_pylist()])
