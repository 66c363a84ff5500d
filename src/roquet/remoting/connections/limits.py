"""How much connections may keep waiting: one of them, and all together."""

from __future__ import annotations

import dataclasses

MIB = 1024 * 1024


@dataclasses.dataclass(slots=True)
class Budget:
    """Bytes that all connections together may keep waiting, in and out."""

    bytes_max: int = 512 * MIB
    used: int = 0
    """Incomplete frames and output."""
    in_hand: int = 0
    """Bodies of requests that are being worked on."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Limits of one connection."""

    bytes_max: int = 32 * MIB
    in_hand_max: int = 16 * MIB
    calls_max: int = 65_535
    high_water: int = MIB
    stops_reading: bool = True
    """Whether a peer that does not read is not read either.

    A client must go on reading, or two could wait for each other.
    """
    first_opaque: int = 0
    """Number of the first call; drawn at random where late answers to an earlier one can come."""
