"""Decoded records become messages, and bytes again (spec: wire §7.1)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from roquet.model.frozen import maker, row_maker
from roquet.model.message import StoredMessage
from roquet.protocol import hosts, properties
from roquet.protocol.messages import compression, message_id, sys_flag

if TYPE_CHECKING:
    from collections.abc import Iterable

Record = tuple[
    int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, bytes, str, bytes, int
]
"""As the native decode_records gives it."""

Row = tuple[
    str,
    bytes,
    dict[str, str],
    str,
    int,
    int,
    int,
    int,
    int,
    str,
    int,
    str,
    int,
    int,
    int,
    int,
    int,
    str,
]
"""The fields of a StoredMessage in their order, as the native decode_messages gives them."""
BODY: Final = 1
QUEUE_OFFSET: Final = 5
SYS_FLAG: Final = 13

_MAGIC_V1 = 0xDAA320A7
_HEAD = struct.Struct(">IiiiqqIq")
_TAIL = struct.Struct(">iqi")
_TOPIC_BYTES_MAX = 127
_stored = maker(StoredMessage)
_of_row = row_maker(StoredMessage)


def message_of(
    record: Record, broker_name: str = "", *, body_size_max: int = compression.BODY_SIZE_MAX
) -> StoredMessage:
    """Make the message of a record; the body is decompressed. Raises CompressionError."""
    size, crc, queue_id, flag, queue_offset, physical, sys_flag, born, born_host = record[:9]
    stored, store_host, reconsumed, prepared, body, topic, raw_properties, _magic = record[9:]
    return _stored(
        topic=topic,
        body=compression.body_of(body, sys_flag, body_size_max),
        properties=properties.read(raw_properties),
        msg_id=message_id.offset_id(store_host, physical),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical,
        store_size=size,
        born_timestamp=born,
        born_host=hosts.host_text(born_host),
        store_timestamp=stored,
        store_host=hosts.host_text(store_host),
        flag=flag,
        sys_flag=sys_flag,
        body_crc=crc,
        reconsume_times=reconsumed,
        prepared_transaction_offset=prepared,
        broker_name=broker_name,
    )


def message_of_row(row: Row, body_size_max: int = compression.BODY_SIZE_MAX) -> StoredMessage:
    """Make the message of a row; the body is decompressed. Raises CompressionError."""
    if row[SYS_FLAG] & sys_flag.COMPRESSED:
        body = compression.body_of(row[BODY], row[SYS_FLAG], body_size_max)
        return _of_row(row[0], body, *row[2:])
    return _of_row(*row)


def stored_row(row: Row) -> StoredMessage:
    """Make the message of a row with its body as it is stored, as if it were not compressed."""
    flag = row[SYS_FLAG] & ~sys_flag.COMPRESSED
    return _of_row(*row[:SYS_FLAG], flag, *row[SYS_FLAG + 1 :])


def messages_of(
    rows: Iterable[Row], *, body_size_max: int = compression.BODY_SIZE_MAX
) -> list[StoredMessage]:
    """Make the messages of all rows. Raises CompressionError."""
    return [message_of_row(row, body_size_max) for row in rows]


def encode_record(record: Record) -> bytes:
    """Write a record in the first layout, as brokers send one to a client (spec: wire §7.1).

    Raises ValueError for a topic of more than 127 bytes, which that layout cannot hold.
    """
    crc, queue_id, flag, queue_offset, physical, sys_flag, born, born_host = record[1:9]
    stored, store_host, reconsumed, prepared, body, topic, raw_properties = record[9:16]
    name = topic.encode()
    if len(name) > _TOPIC_BYTES_MAX:
        raise ValueError(f"a topic of {len(name)} bytes")
    parts = (
        _HEAD.pack(_MAGIC_V1, crc, queue_id, flag, queue_offset, physical, sys_flag, born),
        born_host,
        stored.to_bytes(8, "big", signed=True),
        store_host,
        _TAIL.pack(reconsumed, prepared, len(body)),
        body,
        bytes((len(name),)),
        name,
        len(raw_properties).to_bytes(2, "big"),
        raw_properties,
    )
    size = 4 + sum(map(len, parts))
    return size.to_bytes(4, "big") + b"".join(parts)
