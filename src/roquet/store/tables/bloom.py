"""The Bloom filter bits that Java keeps with each SQL92 filter (spec: store §5.2, §8).

This broker does not read them; they are written so that a Java broker takes over our filters: it
throws the whole file away when one filter lacks them.
"""

from __future__ import annotations

import dataclasses
import math

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@dataclasses.dataclass(frozen=True, slots=True)
class Bloom:
    """Size of a Bloom filter: how many keys are expected, and what share may be hit by chance."""

    keys: int = 32
    error_percent: int = 20

    @property
    def hashes(self) -> int:
        """How many bits each key sets."""
        return math.ceil(math.log(self.error_percent / 100, 0.5))

    @property
    def bits(self) -> int:
        """How many bits there are, in whole bytes."""
        bits = math.ceil(self.keys * math.log2(100 / self.error_percent) * math.log2(math.e))
        return -(-bits // 8) * 8

    def positions(self, key: str) -> list[int]:
        """Return the bits of a key."""
        hashed = murmur3_low(key.encode())
        low, high = _signed32(hashed), _signed32(hashed >> 32)
        found: list[int] = []
        for index in range(1, self.hashes + 1):
            combined = _signed32(low + index * high)
            found.append((~combined if combined < 0 else combined) % self.bits)
        return found


def _signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _mixed(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ (value >> 33)


def murmur3_low(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0."""
    first = second = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        one = int.from_bytes(data[at : at + 8], "little")
        two = int.from_bytes(data[at + 8 : at + 16], "little")
        first ^= _rotated(one * _C1 & _MASK, 31) * _C2 & _MASK
        first = (_rotated(first, 27) + second & _MASK) * 5 + 0x52DCE729 & _MASK
        second ^= _rotated(two * _C2 & _MASK, 33) * _C1 & _MASK
        second = (_rotated(second, 31) + first & _MASK) * 5 + 0x38495AB5 & _MASK
    one = int.from_bytes(data[whole : whole + 8], "little")
    two = int.from_bytes(data[whole + 8 :], "little")
    first ^= _rotated(one * _C1 & _MASK, 31) * _C2 & _MASK
    second ^= _rotated(two * _C2 & _MASK, 33) * _C1 & _MASK
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _mixed(first) + _mixed(second) & _MASK
