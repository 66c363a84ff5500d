"""Message bodies compressed and decompressed, never beyond a limit (spec: wire §7.3, B9)."""

from __future__ import annotations

import enum
import zlib

import lz4.frame
import zstandard

from roquet.protocol.messages import sys_flag

BODY_SIZE_MAX = 64 * 1024 * 1024
REGISTER_SIZE_MAX = 16 * 1024 * 1024


class CompressionError(ValueError):
    """The data is damaged, cut short, followed by something, or would grow too big."""


class CompressionType(enum.IntEnum):
    """The numbers in bits 8-10 of sysFlag."""

    OLD_ZLIB = 0
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flag(self) -> int:
        """The sysFlag bits that say so."""
        return sys_flag.COMPRESSED | (self << sys_flag.COMPRESSION_SHIFT)


def compress(data: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = 5) -> bytes:
    """Compress one body; `level` means what it means to zlib, 1..9."""
    if kind is CompressionType.LZ4:
        return bytes(lz4.frame.compress(data))
    if kind is CompressionType.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(data)
    return zlib.compress(data, level)


def body_of(data: bytes, flag: int, size_max: int = BODY_SIZE_MAX) -> bytes:
    """Return the body behind a message's sysFlag: as it is, or decompressed.

    Raises CompressionError.
    """
    if not flag & sys_flag.COMPRESSED or not data:
        return data
    number = (flag & sys_flag.COMPRESSION_MASK) >> sys_flag.COMPRESSION_SHIFT
    try:
        kind = CompressionType(number)
    except ValueError:
        raise CompressionError(f"compression type {number} is unknown") from None
    return decompress(data, kind, size_max)


def decompress(data: bytes, kind: CompressionType, size_max: int = BODY_SIZE_MAX) -> bytes:
    """Decompress to at most `size_max` bytes. Raises CompressionError."""
    if kind is CompressionType.LZ4:
        return _lz4(data, size_max)
    if kind is CompressionType.ZSTD:
        return _zstd(data, size_max)
    return _zlib(data, size_max)


def _zlib(data: bytes, size_max: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        out = inflater.decompress(data, size_max + 1)
    except zlib.error as error:
        raise CompressionError(str(error)) from error
    _check(len(out), size_max, complete=inflater.eof, rest=inflater.unused_data)
    return out


def _lz4(data: bytes, size_max: int) -> bytes:
    reader = lz4.frame.LZ4FrameDecompressor()
    try:
        out = bytes(reader.decompress(data, max_length=size_max + 1))
    except (RuntimeError, EOFError) as error:
        raise CompressionError(str(error)) from error
    _check(len(out), size_max, complete=reader.eof, rest=reader.unused_data or b"")
    return out


def _zstd(data: bytes, size_max: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor()
    try:
        # A size that the frame declares is allocated at once, so it is looked at before.
        size = zstandard.frame_content_size(data)
        if size > size_max:
            raise CompressionError(f"more than {size_max} bytes decompressed")
        return unpacker.decompress(data, max_output_size=size_max, allow_extra_data=False)
    except (zstandard.ZstdError, MemoryError) as error:
        raise CompressionError(str(error)) from error


def _check(size: int, size_max: int, *, complete: bool, rest: bytes) -> None:
    if size > size_max:
        raise CompressionError(f"more than {size_max} bytes decompressed")
    if not complete:
        raise CompressionError("the compressed data is cut short")
    if rest:
        raise CompressionError("something follows the compressed data")
