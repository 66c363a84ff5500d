"""Java's hash of a text: tag codes and index keys are made of it."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return String.hashCode: h = 31 h + unit over UTF-16 units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(data), 2):
        value = (value * 31 + (data[index] << 8) + data[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
