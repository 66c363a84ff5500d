"""A connection of a pair that a thread of the core copies, as the event loop sees it.

The socket is the thread's own: bytes go between it and the log's files without Python. What has
happened comes as news through a descriptor; what is decided here is told to the thread.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import LogLink
    from roquet.ha.feed import FeedRules

LINGER_MS = 1
"""How long less than a batch waits while an earlier piece is not acknowledged: one report then
answers for all that was sent meanwhile."""


def take_socket(transport: asyncio.Transport) -> int:
    """Take a connection away from the loop; the descriptor returned is the caller's to close.

    Raises OSError when there is no descriptor left; the connection is closed then. What was
    written to the transport in this turn of the loop is lost.
    """
    try:
        return os.dup(transport.get_extra_info("socket").fileno())
    finally:
        transport.abort()


class LogThread:
    """A thread of the core with one connection, from now until `gone` is set."""

    def __init__(
        self,
        native: LogLink,
        heard: Callable[[int | None, int], None],
        ended: Callable[[str, str], None],
    ) -> None:
        """`heard(first report, acknowledged offset)` and `ended(kind, text)` run on the loop."""
        self.native = native
        self.gone = asyncio.Event()
        self._heard = heard
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(native.event_fd(), self._news)

    @property
    def acked(self) -> int:
        """Up to where the slave says that it has the log."""
        return self.native.view()[0]

    @property
    def position(self) -> int:
        """Offset of the next byte to copy."""
        return self.native.view()[1]

    @property
    def moved(self) -> int:
        """Bytes of the log copied so far."""
        return self.native.view()[2]

    @property
    def silent_ms(self) -> tuple[int, int]:
        """Milliseconds since the last read and since the last write."""
        return self.native.view()[3:]

    def tune(self, rules: FeedRules, *, loud: bool = False) -> None:
        """Go by other rules from now on; with `loud` each acknowledgement is news."""
        self.native.tune(
            batch=rules.batch,
            heartbeat_ms=rules.heartbeat_ms,
            housekeeping_ms=rules.housekeeping_ms,
            bytes_per_second=rules.bytes_per_second,
            linger_ms=LINGER_MS,
            loud=loud,
        )

    def stop(self) -> None:
        """Ask for the end of the connection; `gone` is set when it has come."""
        self.native.stop()

    def _news(self) -> None:
        first, acked, end = self.native.take()
        self._heard(first, acked)
        if end is not None:
            self._loop.remove_reader(self.native.event_fd())
            # It has told its last: this takes no time.
            self.native.join()
            self.gone.set()
            self._ended(*end)
