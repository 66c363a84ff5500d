"""What a slave does with one connection to its master, without socket and clock (spec: ha §1.3).

Frames may be cut anywhere and pieces are appended as they come, so a large frame needs no buffer.
A frame that does not continue the slave's own log ends the connection, a heartbeat as well.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.ha.frames import BODY_MAX, HEADER, REPORT, PeerFault

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclasses.dataclass(frozen=True, slots=True)
class CopierRules:
    """How a slave behaves. Times are milliseconds."""

    heartbeat_ms: int = 5_000
    housekeeping_ms: int = 20_000


class Copier:
    """One connection to the master as the slave sees it."""

    __slots__ = (
        "_body",
        "_end",
        "_header",
        "_last_read_ms",
        "_last_write_ms",
        "_reported",
        "_rules",
    )

    def __init__(self, rules: CopierRules, end: int, now_ms: int) -> None:
        """`end` is where the slave's own log ends."""
        self._rules = rules
        self._end = end
        self._reported = -1
        self._header = b""
        self._body = 0
        self._last_read_ms = now_ms
        self._last_write_ms = now_ms

    @property
    def end(self) -> int:
        """Where the slave's log ends once all pieces handed out are appended."""
        return self._end

    @property
    def last_read_ms(self) -> int:
        """When the master was last heard."""
        return self._last_read_ms

    @property
    def last_write_ms(self) -> int:
        """When the last report was written."""
        return self._last_write_ms

    def follow(self, rules: CopierRules) -> None:
        """Go by other rules from now on."""
        self._rules = rules

    def receive(self, data: bytes, now_ms: int) -> Iterator[tuple[int, bytes]]:
        """Return the pieces to append, (offset, bytes). Raises PeerFault between them."""
        self._last_read_ms = now_ms
        at = 0
        while at < len(data):
            if self._body == 0:
                taken = HEADER.size - len(self._header)
                self._header += data[at : at + taken]
                at += taken
                if len(self._header) < HEADER.size:
                    return
                self._begin(*HEADER.unpack(self._header))
                self._header = b""
                continue
            whole = at == 0 and len(data) <= self._body
            piece = data if whole else data[at : at + self._body]
            at += len(piece)
            self._body -= len(piece)
            offset, self._end = self._end, self._end + len(piece)
            yield offset, piece

    def _begin(self, offset: int, size: int) -> None:
        if not 0 <= size <= BODY_MAX:
            raise PeerFault(f"announces a piece of {size} bytes")
        if offset < 0:
            raise PeerFault(f"sends a negative offset, {offset}")
        if self._end not in (offset, 0):
            raise PeerFault(f"sends offset {offset}, the log here ends at {self._end}")
        if size:
            # An empty log begins where the master says.
            self._end = offset
            self._body = size

    def report(self, end: int, now_ms: int) -> bytes | None:
        """Return a report if the log has grown, or the last one is old.

        `end` is how far the slave vouches for its log.
        """
        if end <= self._reported and now_ms - self._last_write_ms < self._rules.heartbeat_ms:
            return None
        self._reported = max(end, self._reported)
        self._last_write_ms = now_ms
        return REPORT.pack(self._reported)

    def check(self, now_ms: int) -> None:
        """Raise PeerFault when the master is silent."""
        silent_ms = now_ms - self._last_read_ms
        if silent_ms > self._rules.housekeeping_ms:
            raise PeerFault(f"has said nothing for {silent_ms} ms")
