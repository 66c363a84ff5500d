"""The one door to the compiled core, so that tools which read imports can see who uses it."""

from __future__ import annotations

from roquet.roquet_native import (
    ArrowBatch,
    Ingest,
    Store,
    StoreError,
    crc32,
    decode_frames,
    decode_records,
    encode_command,
    records_to_arrow,
)

__all__ = [
    "ArrowBatch",
    "Ingest",
    "Store",
    "StoreError",
    "crc32",
    "decode_frames",
    "decode_records",
    "encode_command",
    "records_to_arrow",
]
