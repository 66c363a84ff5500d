"""Stored records and checksums as Python sees them."""

from __future__ import annotations

import dataclasses

import pytest

from roquet import roquet_native as native
from roquet.model.message import StoredMessage
from roquet.protocol.hosts import host_text
from roquet.protocol.messages import records
from roquet.protocol.messages.compression import CompressionError

# Spec: wire §21.
VECTOR = bytes.fromhex(
    "00000077daa320a73610a6860000000000000000000000000000000500000000000003e8"
    "000000000000018bcfe568000a0000090000c3500000018bcfe568017f00000100002a9f"
    "000000000000000000000000"
    "0000000568656c6c6f05546573745400124b455953016b310254414753015461674102"
)


def test_crc_takes_any_buffer() -> None:
    assert native.crc32(b"hello") == 907060870
    assert native.crc32(bytearray(b"hello")) == 907060870
    assert native.crc32(memoryview(b"xhellox")[1:6]) == 907060870
    assert native.crc32(b"") == native.crc32(bytearray()) == 0
    with pytest.raises(ValueError, match="contiguous"):
        native.crc32(memoryview(b"hello")[::2])


def test_decode_records_gives_every_field() -> None:
    records = native.decode_records(VECTOR + VECTOR)
    assert len(records) == 2
    assert records[0] == (
        119,
        907060870,
        0,
        0,
        5,
        1000,
        0,
        1700000000000,
        bytes.fromhex("0a0000090000c350"),
        1700000000001,
        bytes.fromhex("7f00000100002a9f"),
        0,
        0,
        b"hello",
        "TestT",
        b"KEYS\x01k1\x02TAGS\x01TagA\x02",
        0xDAA320A7,
    )
    assert native.decode_records(b"") == []


def test_damage_is_named_with_its_place() -> None:
    changed = VECTOR + VECTOR.replace(b"hello", b"Hello")
    with pytest.raises(ValueError, match="record at byte 119: a body CRC that differs"):
        native.decode_records(changed)
    assert native.decode_records(changed, check_crc=False)[1][13] == b"Hello"
    with pytest.raises(ValueError, match="record at byte 119: a length that does not fit"):
        native.decode_records(VECTOR + VECTOR[:-1])


ODD = (
    b"",
    b"K",
    b"\x01\x02",
    b"\x02A\x01b",
    b"A\x01\x02B\x01c\x02",
    b"A\x01b\x01c\x02A\x01d\x02",
    b"\xffA\x01\xe2\x82\x02\xc3\xa4\x01\xf0\x9f\x98\x80\x02",
    b"".join(b"N%d\x01%d\x02" % (n, n) for n in range(100)),
    b"B\x01c\x02A\x01b",
)
"""Property strings; what each means, the reader in Python says (protocol/properties.py)."""


@pytest.mark.parametrize("broken", [False, True])
def test_messages_are_those_of_their_records(broken: bool) -> None:
    data = VECTOR
    (record,) = native.decode_records(VECTOR)
    for number, text in enumerate(ODD):
        host = bytes((10, 0, 0, number % 2)) + (10911).to_bytes(4, "big")
        changed = (*record[:4], 7 + number, *record[5:8], host, *record[9:15], text, record[16])
        data += records.encode_record(changed)
    found = native.decode_messages(data, "a", host_text)
    there = [records.message_of(it, "a") for it in native.decode_records(data)]
    assert len(there) == 1 + len(ODD)
    if broken:
        flagged = [(*it[:13], 0x301, *it[14:]) for it in found]  # the place of its sys flag
        plain = [records.stored_row(it) for it in flagged]
        assert plain == [dataclasses.replace(it, sys_flag=0x300) for it in there]
        with pytest.raises(CompressionError):
            records.messages_of(flagged)
        return
    assert records.messages_of(found) == there
    assert [type(it) for it in records.messages_of(found)] == [StoredMessage] * len(there)
    with pytest.raises(ValueError, match="record at byte 119: a body CRC that differs"):
        native.decode_messages(VECTOR + VECTOR.replace(b"hello", b"Hello"), "a", host_text)
    assert native.decode_messages(b"", "a", host_text) == []


def test_fields_of_a_message_are_in_the_order_of_a_row() -> None:
    row = native.decode_messages(VECTOR, "a", host_text)[0]
    fields = dict(zip((it.name for it in dataclasses.fields(StoredMessage)), row, strict=True))
    assert fields == dict(
        dataclasses.asdict(records.message_of(native.decode_records(VECTOR)[0], "a"))
    )
