"""Stored records and checksums as Python sees them."""

from __future__ import annotations

import pytest

from roquet import roquet_native as native

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
