"""A connection of a pair, which a thread of the core has, as the event loop sees it.

The socket is the thread's own from its first byte on, TLS included. Until the copying starts the
thread carries what both sides say; then bytes go between socket and files without Python. What has
happened comes as news through a descriptor; what is decided here is told to the thread.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import LogLink
    from roquet.ha.feed import FeedConfig


HANDSHAKE_MS = 3_000
"""How long the handshake of TLS may take."""

LINGER_MS = 1
"""How long less than a batch waits while an earlier piece is not acknowledged: one report then
answers for all that was sent meanwhile."""


def take_socket(transport: asyncio.Transport) -> int:
    """Take a connection away from the loop; the descriptor returned is the caller's to close.

    Call it in `connection_made`, before anything is read. Raises OSError when there is no
    descriptor left; the connection is closed then.
    """
    try:
        return os.dup(transport.get_extra_info("socket").fileno())
    finally:
        transport.abort()


def native_rules(rules: FeedConfig) -> dict[str, int]:
    """Return rules of copying as the core takes them."""
    return {
        "batch": rules.batch,
        "heartbeat_ms": rules.heartbeat_ms,
        "housekeeping_ms": rules.housekeeping_ms,
        "bytes_per_second": rules.bytes_per_second,
        "linger_ms": LINGER_MS,
    }


class LogThread:
    """A thread of the core with one connection, from now until `gone` is set.

    Then it has no descriptor any more, whoever keeps it; it can still be asked, and passes over
    what it is told.
    """

    def __init__(
        self,
        native: LogLink,
        said: Callable[[bytes], None],
        acked: Callable[[int], None],
        ended: Callable[[str, str], None],
    ) -> None:
        """Listen for news, on the running loop.

        `said` gets what the peer says before `begin`, `acked` the acknowledged offset,
        `ended` the kind of end and a text.
        """
        self.native = native
        self.gone = asyncio.Event()
        self._said = said
        self._acked = acked
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._descriptor = native.event_fd()
        self._loop.add_reader(self._descriptor, self._news)

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

    def tune(self, rules: FeedConfig) -> None:
        """Go by other rules from now on."""
        self.native.tune(**native_rules(rules))

    def tell_acks(self, *, loud: bool, counts: bool) -> None:
        """Have each acknowledgement be news from now on, or not; look at `acked` behind that.

        With `counts` this slave's copy is enough: the core answers what waits there by itself.
        """
        self.native.tell_acks(loud=loud, counts=counts)

    def say(self, data: bytes) -> None:
        """Say something to the peer, before `begin`."""
        self.native.say(data)

    def begin(self, position: int, heard: bytes) -> None:
        """Start the copying, a slave's from `position` on; `heard` is not looked at yet."""
        self.native.begin(position, heard)

    def finish(self) -> None:
        """End the connection, before `begin`, once what was said is written."""
        self.native.finish()

    def stop(self) -> None:
        """Ask for the end of the connection; `gone` is set when it has come."""
        self.native.stop()

    def _news(self) -> None:
        said, acked, end = self.native.take()
        try:
            if said:
                self._said(said)
            self._acked(acked)
        finally:
            if end is not None:
                self._end(*end)

    def _end(self, kind: str, text: str) -> None:
        self._loop.remove_reader(self._descriptor)
        # It has told its last: this takes no time, and closes the descriptors.
        self.native.join()
        ended = self._ended
        # Those that hear know this object: a cycle would wait for the garbage collector.
        self._said = self._acked = self._ended = _nobody
        self.gone.set()
        ended(kind, text)


def _nobody(*_: object) -> None:
    """Hear nothing: the connection has ended."""
