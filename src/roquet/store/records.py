"""One stored record, read back with names for its fields."""

from __future__ import annotations

from typing import NamedTuple

from roquet._native import decode_records


class Record(NamedTuple):
    """Everything a record holds, in the order the core gives it (spec: store §3.2)."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    """As stored: compressed when `sys_flag` says so."""
    topic: str
    properties: bytes
    """The property string as stored."""
    magic: int


def read_records(data: bytes, *, check_crc: bool = True) -> list[Record]:
    """Take apart records that follow each other without a gap. Raises ValueError."""
    return [Record(*fields) for fields in decode_records(data, check_crc)]
