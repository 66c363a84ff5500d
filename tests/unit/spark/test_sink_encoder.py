"""The core's encoder makes the bytes that the client's encoder makes, and refuses the same rows."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pyarrow as pa
import pytest

from roquet import _native as native
from roquet.base.errors import UsageError
from roquet.client import Message, ProducerOptions
from roquet.client._sending.encode import encode_batches, encode_one
from roquet.protocol import properties
from roquet.protocol.messages import batch
from roquet.spark.sink import keys
from roquet.spark.sink.columns import LEFT_OUT, SIZE_MAX, columns_of, encode
from roquet.spark.sink.routing import BATCH_ROWS
from roquet.spark.sink.sender import single

PREFIX = keys.prefix("run", 3)
CLIENT = ProducerOptions()
TYPES = {
    "body": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "shardingKey": pa.string(),
    "uniqKey": pa.string(),
}
WORDS = ("a", "order-7", "ключ", "鍵", "\U0001f600", "x y", " ", "\x1f", "\u3000", "", "k\x01v")


def message_of(row: dict[str, Any]) -> Message:
    """Return the message that a row stands for, made in Python."""
    given = row.get("keys") or ()
    found: dict[str, str | None] = dict(row.get("properties") or ())
    if row.get("shardingKey"):
        found[properties.SHARDING_KEY] = row["shardingKey"]
    return Message(
        "t",
        row["body"] or b"",
        row.get("tags") or None,
        tuple(given.split()) if isinstance(given, str) else tuple(it or "" for it in given),
        {name: value or "" for name, value in found.items() if name not in LEFT_OUT},
        delay_level=row.get("delay") or 0,
    )


def drawn(rng: random.Random, count: int) -> list[dict[str, Any]]:
    def word() -> str | None:
        return rng.choice((None, *WORDS))

    def one() -> dict[str, Any]:
        names = [*("n", "имя", "UNIQ_KEY", "WAIT", "__SHARDINGKEY"), *(f"p{n}" for n in range(128))]
        chosen = rng.sample(names, rng.choice((0, 1, 4, 5, 128)))
        return {
            "body": rng.randbytes(rng.choice((1, 7, 417, 5000))),
            "keys": word(),
            "tags": word(),
            "properties": None if rng.random() < 0.2 else [(name, word()) for name in chosen],
            "shardingKey": word(),
            "uniqKey": rng.choice((None, "", "theirs", "ихний")),
        }

    return [one() for _ in range(count)]


def encoded(rows: list[dict[str, Any]], types: dict[str, Any], slices: int = 1) -> list[Any]:
    """Return the frames that the core makes of rows, given in Arrow batches that are slices."""
    table = pa.RecordBatch.from_pylist(rows, schema=pa.schema(types))
    encoder = native.SinkEncoder(PREFIX, LEFT_OUT, size_max=SIZE_MAX, chunk_rows=BATCH_ROWS)
    found: list[Any] = []
    step = -(-len(rows) // slices)
    for at in range(0, len(rows), step):
        columns = columns_of(table.slice(at, step))
        delays = columns.values("delay")
        levels = array("i", [it or 0 for it in delays])
        lots = array("i", [1 if level else 0 for level in levels])
        unique = columns.arrays.get("uniqKey")
        given = memoryview(lots).cast("B"), memoryview(levels).cast("B")
        found += encode(encoder, columns, *given, unique)
    return found + encoder.finish()


def expected(rows: list[dict[str, Any]], begin: int = 0) -> list[tuple[bytes, int, str]]:
    """Return the requests that the client makes of the same rows."""
    found: list[tuple[bytes, int, str]] = []
    for at in range(0, len(rows), BATCH_ROWS):
        chunk = rows[at : at + BATCH_ROWS]
        ids = [
            row.get("uniqKey") or native.sink_key(PREFIX, begin + at + n)
            for n, row in enumerate(chunk)
        ]
        parts = encode_batches([message_of(row) for row in chunk], ids, CLIENT)
        for part in parts:
            assert part.properties == properties.write({properties.UNIQ_KEY: part.message_ids[0]})
            found.append((part.body, len(part.message_ids), part.message_ids[0]))
    return found


def told(frames: list[Any]) -> list[tuple[bytes, int, str]]:
    return [(body, rows, key) for _, body, rows, key in frames]


@pytest.mark.parametrize("seed", range(8))
def test_drawn_rows_become_the_bytes_of_the_client(seed: int) -> None:
    rng = random.Random(seed)
    rows = drawn(rng, rng.choice((1, 255, 256, 257, 700)))
    assert told(encoded(rows, TYPES, rng.choice((1, 3)))) == expected(rows)


def test_keys_may_be_a_list_and_texts_may_be_large() -> None:
    types = {**TYPES, "keys": pa.large_list(pa.large_string()), "body": pa.large_string()}
    rows: list[dict[str, Any]] = [
        {"body": f"body {n}", "keys": ["k", f"ключ{n}"][: n % 3] if n % 4 else None}
        for n in range(300)
    ]
    as_bytes = [{**row, "body": row["body"].encode()} for row in rows]
    assert told(encoded(rows, types, 3)) == expected(as_bytes)


def test_big_rows_are_cut_by_bytes_as_the_client_cuts_them() -> None:
    rng = random.Random(1)
    rows = [{"body": rng.randbytes(300_000 + 100_000 * (n % 5))} for n in range(40)]
    frames = told(encoded(rows, {"body": pa.binary()}))
    assert frames == expected(rows)
    assert len(frames) > 5
    assert max(len(body) for body, _, _ in frames) <= SIZE_MAX


def test_delayed_rows_become_what_the_client_sends_alone() -> None:
    rng = random.Random(2)
    sizes = (5, 4095, 4096, 20_000)
    rows = [
        {
            "body": bytes(sizes[n % 4]) if n % 8 < 4 else rng.randbytes(sizes[n % 4]),
            "delay": 1 + n % 18,
        }
        for n in range(40)
    ]
    frames = encoded(rows, {"body": pa.binary(), "delay": pa.int64()})
    alone = [
        single("t", body, text.decode()) for f in frames for _, body, text in batch.decode(f[1])
    ]
    wanted = [
        encode_one(message_of(row), native.sink_key(PREFIX, n), CLIENT)
        for n, row in enumerate(rows)
    ]
    assert alone == wanted
    assert {it.sys_flag != 0 for it in alone} == {True, False}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"body": None}, "a row has no body; a message needs one"),
    ({"body": b""}, "a row has no body; a message needs one"),
    ({"body": bytes(SIZE_MAX + 1)}, f"a body of {SIZE_MAX + 1} bytes: the limit is {SIZE_MAX}"),
    ({"body": bytes(SIZE_MAX - 10)}, f"a message does not fit into a batch of {SIZE_MAX} bytes"),
    ({"tags": "a\x02b"}, "property 'TAGS' is empty or holds a separator"),
    ({"keys": "a\x02b"}, "property 'KEYS' is empty or holds a separator"),
    ({"uniqKey": "a\x02b"}, "property 'UNIQ_KEY' is empty or holds a separator"),
    ({"shardingKey": "\x02"}, "property '__SHARDINGKEY' is empty or holds a separator"),
    ({"properties": [("a\x01", "v")]}, "property 'a\\x01' is empty or holds a separator"),
    ({"properties": [("x", "y"), ("", "v")]}, "property '' is empty or holds a separator"),
    ({"properties": [("ключ", "\x02")]}, "property 'ключ' is empty or holds a separator"),
    ({"properties": [("big", "ж" * 16384)]}, "properties are longer than 32767 bytes"),
]


@pytest.mark.parametrize(("wrong", "text"), BAD, ids=lambda it: it if isinstance(it, str) else "")
def test_row_that_is_no_message_is_refused_with_its_problem(
    wrong: dict[str, Any], text: str
) -> None:
    rows: list[dict[str, Any]] = [{"body": b"fine"}, {"body": b"x", **wrong}, {"body": b"fine"}]
    with pytest.raises(UsageError) as caught:
        encoded(rows, TYPES)
    assert str(caught.value) == f"{text} (row 1 of an Arrow batch)"
    if "no body" not in text:
        # The client, given that row alone, has the same words for it.
        with pytest.raises(UsageError) as by_client:
            encode_batches([message_of(rows[1])], [rows[1].get("uniqKey") or "U"], CLIENT)
        assert str(by_client.value) == text


@pytest.mark.parametrize("key", ["", "a b", "a\x1fb", "\u3000", None])
def test_key_of_a_list_that_is_no_word_is_refused(key: str | None) -> None:
    with pytest.raises(UsageError, match="a key is not empty and has no white space"):
        encoded([{"body": b"x", "keys": ["fine", key]}], {**TYPES, "keys": pa.list_(pa.string())})


def test_every_white_space_of_python_parts_keys() -> None:
    spaces = [c for c in map(chr, range(0x110000)) if c.isspace()]
    assert len(spaces) > 20
    rows = [{"body": b"x", "keys": f"a{c}b"} for c in spaces]
    rows += [{"body": b"x", "keys": f"a{c}b"} for c in ("\u200b", "\u180e", "\x00", "\ufeff")]
    assert told(encoded(rows, TYPES)) == expected(rows)


def test_longest_properties_are_taken_and_one_byte_more_is_not() -> None:
    room = 32767 - len("v\x01\x02") - len("UNIQ_KEY\x01\x02") - 32
    rows = [{"body": b"x", "properties": [("v", "y" * room)]}]
    assert told(encoded(rows, TYPES)) == expected(rows)
    rows[0]["properties"] = [("v", "y" * (room + 1))]
    with pytest.raises(UsageError, match="properties are longer"):
        encoded(rows, TYPES)


def test_offsets_that_lead_outside_of_a_buffer_are_no_value() -> None:
    encoder = native.SinkEncoder(PREFIX, LEFT_OUT, size_max=SIZE_MAX, chunk_rows=BATCH_ROWS)
    lots, wild = bytes(4), array("i", [2, 900]).tobytes()
    assert encoder.add(1, lots, (0, None, wild, b"abc")) == ([], (0, "no body", ""))
    assert encoder.add(3, b"", (2**62, b"", b"", None))[1] == (0, "no body", "")


def test_java_hashes_are_those_of_java() -> None:
    texts = ["TagA", "中文", None, "", "polygenelubricants"]
    column = pa.array(texts, pa.string())
    validity, offsets, data = (memoryview(it).cast("B") for it in column.buffers())
    found = array("i", native.java_hashes(5, (0, validity, offsets, data)))
    assert list(found) == [2_598_919, 646_394, 0, 0, -(2**31)]
