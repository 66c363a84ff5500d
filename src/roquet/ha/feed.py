"""What a master does for one slave, without socket and clock (spec: ha §1.2).

The slave's first report says from where it wants the log; each later one acknowledges. Reports are
believed only as far as they can be true: one that is negative, smaller than the last, beyond what
was sent or not 8 bytes long ends the connection, since a slave's word releases answers to sends.
"""

from __future__ import annotations

import dataclasses

from roquet.ha.frames import HEADER, REPORT, PeerFault


@dataclasses.dataclass(frozen=True, slots=True)
class FeedRules:
    """How a slave is fed. Times are milliseconds, sizes bytes."""

    batch: int = 32 * 1024
    heartbeat_ms: int = 5_000
    housekeeping_ms: int = 20_000
    file_bytes: int = 1 << 30
    bytes_per_second: int = 0
    """0: as fast as the slave takes it."""


def start_of(report: int, begin: int, end: int, file_bytes: int) -> int:
    """Return from where a slave gets the log that has reported an offset >= 0 first.

    `begin` and `end` are the bounds of the master's log. Raises PeerFault.
    """
    if report > end:
        raise PeerFault(
            f"has a log up to {report}, this one ends at {end}: they are not the same, or this"
            " one has lost its end"
        )
    if report == 0:
        # A new slave does not get older files.
        return max(begin, end - end % file_bytes)
    if report < begin:
        raise PeerFault(
            f"needs offset {report}, this log begins at {begin}: its store has to be emptied"
        )
    return report


class Feed:
    """One slave's connection as the master sees it."""

    __slots__ = (
        "_last_read_ms",
        "_last_write_ms",
        "_partial",
        "_rules",
        "_second",
        "_sent_in_second",
        "acked",
        "position",
    )

    def __init__(self, rules: FeedRules, now_ms: int) -> None:
        self._rules = rules
        self._partial = b""
        self._last_read_ms = now_ms
        self._last_write_ms = now_ms
        self._second = 0
        self._sent_in_second = 0
        self.acked: int | None = None
        """Where the slave's log ends by its own word; None before the first report."""
        self.position: int | None = None
        """Offset of the next byte to send; None before the first report."""

    def follow(self, rules: FeedRules) -> None:
        """Go by other rules from now on."""
        self._rules = rules

    def receive(self, data: bytes, now_ms: int, begin: int, end: int) -> bool:
        """Take reports; `begin` and `end` are the bounds of the master's log.

        Returns whether anything was acknowledged. Raises PeerFault.
        """
        self._last_read_ms = now_ms
        data = self._partial + data
        whole = len(data) - len(data) % REPORT.size
        for (report,) in REPORT.iter_unpack(data[:whole]):
            self._take(report, begin, end)
        self._partial = data[whole:]
        return whole > 0

    def _take(self, report: int, begin: int, end: int) -> None:
        if report < 0:
            raise PeerFault(f"reports a negative offset, {report}")
        if self.acked is None or self.position is None:
            self.position = start_of(report, begin, end, self._rules.file_bytes)
        elif report > self.position:
            raise PeerFault(f"acknowledges {report}, of which {self.position} and more is unsent")
        elif report < self.acked:
            raise PeerFault(f"goes back from {self.acked} to {report}")
        self.acked = report

    def due(self, end: int, now_ms: int) -> tuple[int, int] | None:
        """Return (offset, most bytes) of the next piece, None when nothing may be sent now."""
        if self.position is None or self.position >= end:
            return None
        size = min(self._rules.batch, end - self.position)
        if self._rules.bytes_per_second:
            size = min(size, self._budget(now_ms))
        return (self.position, size) if size > 0 else None

    def _budget(self, now_ms: int) -> int:
        second = now_ms // 1000
        if second != self._second:
            self._second, self._sent_in_second = second, 0
        return self._rules.bytes_per_second - self._sent_in_second

    def header(self, size: int, now_ms: int) -> bytes:
        """Return what goes before the piece that is sent now, and move behind the piece."""
        offset = self.position or 0
        self.position = offset + size
        self._last_write_ms = now_ms
        self._sent_in_second += size
        return HEADER.pack(offset, size)

    def heartbeat(self, now_ms: int) -> bytes | None:
        """Return a heartbeat when nothing was written for long; none before the first report."""
        if self.position is None or now_ms - self._last_write_ms < self._rules.heartbeat_ms:
            return None
        return self.header(0, now_ms)

    def check(self, now_ms: int) -> None:
        """Raise PeerFault when the slave is silent, or has stopped inside a report."""
        silent_ms = now_ms - self._last_read_ms
        if silent_ms > self._rules.housekeeping_ms:
            raise PeerFault(f"has said nothing for {silent_ms} ms")
        if self._partial and silent_ms > self._rules.heartbeat_ms:
            raise PeerFault(f"wrote {len(self._partial)} bytes, which is no report")
