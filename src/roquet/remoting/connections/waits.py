"""How long the bytes that are being read have waited in the kernel: their own age, nobody else's.

While the event loop does something else, requests lie in the buffers of their sockets. Linux knows
when the last data of a connection came (`tcp(7)`, TCP_INFO), and what is read now came no
later. So the age found is never more than the true one. It is asked for only while the loop is
late: a loop that is in time lets nothing wait.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LAST_DATA_RECEIVED = struct.Struct("=I")
_AT = 52
"""Where tcp_info says how many milliseconds ago the last data came."""
_SIZE = _AT + _LAST_DATA_RECEIVED.size
_AGE_MS_MAX = 3_600_000
"""More than that is no age of data that has just been found."""


class KernelWaits:
    """The wait of what is being read at the moment; one for all ports of a process."""

    def __init__(self, notice_lag: Callable[[], None], denied_ms: Callable[[], float]) -> None:
        """`notice_lag` sees to it that a lag is noticed which no timer has shown yet.

        `denied_ms` tells for how long of it the host ran others: that does not count. A server
        that measures from the read on, as Java does, cannot count that time either.
        """
        self._notice_lag = notice_lag
        self._denied_ms = denied_ms
        self._noticed_ms = 0
        self.is_late: bool = False
        """Whether the loop is late, so that it is worth to ask."""
        self.read_ms: int = 0
        """Milliseconds that the bytes last read had waited; 0 when the loop is in time."""

    def matter(self, now_ms: int) -> bool:
        """Tell whether it is worth to look: asked before each read."""
        if now_ms != self._noticed_ms:
            # A loop that lags lets time pass: once a millisecond is often enough.
            self._noticed_ms = now_ms
            self._notice_lag()
        return self.is_late

    def in_time(self) -> None:
        """Hear that the loop has caught up."""
        self.is_late = False
        self.read_ms = 0

    def look(self, own: socket.socket | None) -> int:
        """Return and remember how long what is read from a socket has waited, in milliseconds."""
        return self.count(0 if own is None else last_data_ms(own))

    def count(self, waited_ms: int) -> int:
        """Return and remember what of such a wait counts, in milliseconds."""
        self.read_ms = max(0, int(waited_ms - self._denied_ms())) if waited_ms else 0
        return self.read_ms


def last_data_ms(own: socket.socket) -> int:
    """Return how many milliseconds ago the last data came; 0 where that is not known."""
    if sys.platform != "linux":
        return 0
    try:
        info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return 0
    if len(info) < _SIZE:
        return 0
    (age_ms,) = _LAST_DATA_RECEIVED.unpack_from(info, _AT)
    return age_ms if age_ms <= _AGE_MS_MAX else 0
