"""How much connections may keep waiting: one of them, and all together; settings of sockets."""

from __future__ import annotations

import dataclasses
import enum
import logging
from typing import TYPE_CHECKING, TypeAlias

from roquet.base.config import setting
from roquet.base.errors import RequestTooLong, UsageError
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol.codes import request_name

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

MIB = 1024 * 1024


class Standing(enum.IntEnum):
    """What is known of whoever sent the start of a frame.

    The signature is over the whole frame: the frame itself proves nothing before its last byte.
    """

    PROVEN = 0
    """Nobody needs an account, or one was proven on this connection before."""
    NAMED = 1
    """The frame's header names an account."""
    NAMELESS = 2
    """The header names none, or is not there yet."""


class Stop(enum.Flag):
    """Why a connection is not read."""

    NOTHING = 0
    OUTPUT = enum.auto()
    """The peer does not take what we write."""
    IN_HAND = enum.auto()
    """Too many bytes of its requests are being worked on."""
    BARRIER = enum.auto()
    """The ingest waits until the commands it gave out are done."""


Charge: TypeAlias = tuple[Standing, int]
"""Bytes that are kept for a connection, and for whom."""
NOTHING: Charge = (Standing.PROVEN, 0)
NAMELESS_MAX = MIB
"""Bytes of one connection whose frame names no account."""
_NAMELESS_PART = 16
_NAMED_PART = 4


def stranger_bounds(bytes_max: int) -> tuple[int, int, int]:
    """Return the bounds of peers that have proven no account, of a common bound in bytes.

    They are those of one nameless connection, of all nameless ones, and of all named ones: at
    least 11 of 16 parts stay for peers that have proven an account.
    """
    return NAMELESS_MAX, bytes_max // _NAMELESS_PART, bytes_max // _NAMED_PART


@dataclasses.dataclass(slots=True)
class Budget:
    """Bytes that all connections together may keep waiting, in and out."""

    bytes_max: int = 512 * MIB
    used: int = 0
    """Incomplete frames and output."""
    in_hand: int = 0
    """Bodies of requests that are being worked on."""
    strangers: dict[Standing, int] = dataclasses.field(
        default_factory=lambda: {Standing.NAMED: 0, Standing.NAMELESS: 0}
    )
    """What of `used` is of peers that have proven no account."""
    beside: Callable[[], int] | None = None
    """Returns what is kept elsewhere under the same bound; None: nothing."""

    def charge(self, before: Charge, now: Charge) -> bool:
        """Enter what is kept for a connection in place of what was; False when it is too much.

        Threads of the core have the same rule (`crates/core/src/net/limits.rs`).
        """
        self.used += now[1] - before[1]
        for standing, size in ((before[0], -before[1]), now):
            if standing is not Standing.PROVEN:
                self.strangers[standing] += size
        if now[1] <= before[1]:
            return True
        nameless_max, nameless, named = stranger_bounds(self.bytes_max)
        if now[0] is Standing.NAMELESS:
            fits = now[1] <= nameless_max and self.strangers[Standing.NAMELESS] <= nameless
        else:
            fits = now[0] is Standing.PROVEN or self.strangers[Standing.NAMED] <= named
        beside = 0 if self.beside is None else self.beside()
        return fits and self.used + beside <= self.bytes_max


@dataclasses.dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Limits of one connection."""

    bytes_max: int = 32 * MIB
    in_hand_max: int = 16 * MIB
    calls_max: int = 65_535
    high_water: int = MIB
    low_water: int | None = None
    """None: a quarter of `high_water`."""
    stops_reading: bool = True
    """Whether a peer that does not read is not read either.

    A client must go on reading, or two could wait for each other.
    """
    frame_max: int = FRAME_SIZE_MAX
    """Bytes of a request of ours: a peer closes the connection of one that is longer."""
    first_opaque: int = 0
    """Number of the first call; drawn at random where late answers to an earlier one can come."""

    @property
    def water(self) -> tuple[int, int | None]:
        """From how much output on a peer is not served, and from how little on it is again."""
        return self.high_water, self.low_water

    def check_request(self, code: int, size: int) -> None:
        """Raise RequestTooLong for a frame that the peer would close the connection for.

        Others ask over the same connection: their calls would end with it.
        """
        if size > self.frame_max:
            text = f"{request_name(code)} of {size} bytes is too long, max is {self.frame_max}"
            raise RequestTooLong(text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingConfig:
    """Connections that a server makes to name servers and brokers."""

    connect_ms: int = setting(
        "connectTimeoutMillis",
        3000,
        "Longest time to connect to a server.",
        unit="ms",
        low=1,
        high=600_000,
    )
    idle_s: int = setting(
        "clientChannelMaxIdleTimeSeconds",
        120,
        "Silent connections to servers are closed.",
        unit="s",
        low=1,
        high=86_400,
    )
    send_buffer: int = setting(
        "clientSocketSndBufSize",
        0,
        "Send buffer of connections to servers, 0 for the system's choice.",
        unit="bytes",
        low=0,
        high=1 << 30,
    )
    receive_buffer: int = setting(
        "clientSocketRcvBufSize",
        0,
        "Receive buffer of connections to servers, 0 for the system's choice.",
        unit="bytes",
        low=0,
        high=1 << 30,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WriteBufferConfig:
    """How much a connection may have that its peer does not take. Both or none are obeyed."""

    high: int = setting(
        "writeBufferHighWaterMark",
        0,
        "A connection with more output than this that its peer has not taken is neither read nor"
        " served further; it counts only if both marks are above 0, else it is 1 MiB.",
        unit="bytes",
        low=0,
        high=1 << 30,
    )
    low: int = setting(
        "writeBufferLowWaterMark",
        0,
        "It is read and served again from this on, if both marks are above 0, else from 256 KiB.",
        unit="bytes",
        low=0,
        high=1 << 30,
    )

    def check(self) -> None:
        """Raise UsageError for marks that leave nothing between them; say which has no effect."""
        if self.low > self.high > 0:
            text = f"writeBufferLowWaterMark = '{self.low}'"
            raise UsageError(f"{text} is more than writeBufferHighWaterMark = '{self.high}'")
        if bool(self.low) != bool(self.high):
            log.warning(
                "writeBufferHighWaterMark and writeBufferLowWaterMark have no effect: one of them"
                " is 0"
            )

    @property
    def marks(self) -> tuple[int, int | None]:
        """The marks that are in force; None: a quarter of the high one."""
        return (self.high, self.low) if self.high > 0 and self.low > 0 else (MIB, None)
