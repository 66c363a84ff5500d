"""Records of a Java broker's log, taken apart: what its delayed and sent-back messages hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.store.records import Record, read_records

LOG = Path(__file__).parents[2] / "vectors/store/clean/commitlog/00000000000000000000"


def java_records() -> list[Record]:
    data = LOG.read_bytes()
    end = 0
    while (size := int.from_bytes(data[end : end + 4], "big")) and data[end + 4 : end + 8] == (
        b"\xda\xa3\x20\xa7"
    ):
        end += size
    return read_records(data[:end])


def test_fields_have_the_names_of_what_they_hold() -> None:
    first = java_records()[0]
    assert (first.topic, first.queue_id, first.queue_offset, first.physical_offset) == (
        "GoldenTopic",
        3,
        0,
        0,
    )
    assert first.size == 288
    assert first.body == b"golden body 0"
    assert first.properties.startswith(b"MSG_REGION\x01DefaultRegion\x02")
    assert (first.born_timestamp, first.store_timestamp) == (1795226519076, 1795226519353)
    assert first.store_host == bytes((127, 0, 0, 2, 0, 0, 0x2A, 0x9F))
    assert first.reconsume_times == 0


def test_a_sent_back_message_waits_with_its_origin_and_arrives_with_the_same_properties() -> None:
    records = java_records()
    (waiting,) = (
        record for record in records if record.topic.startswith("SCHEDULE") and record.queue_id == 2
    )
    (arrived,) = (record for record in records if record.topic == "%RETRY%golden_consumers")
    assert arrived.properties == waiting.properties
    assert arrived.reconsume_times == waiting.reconsume_times == 1
    assert arrived.store_timestamp - waiting.store_timestamp >= 10_000


def test_bytes_that_are_no_record_are_an_error() -> None:
    data = bytearray(LOG.read_bytes()[:288])
    data[100] ^= 1
    with pytest.raises(ValueError, match=r"(?i)crc"):
        read_records(bytes(data))
