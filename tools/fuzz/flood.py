"""Many connections that send prepared scripts as fast as a server reads them.

A script is what one connection says: pieces of some frames each. Behind a piece may stand a
question whose answer carries a mark that is used once. When the mark comes back, the server has
read everything before it; only such frames count as read. What was sent behind the last mark of a
connection that a server has closed is not counted.
"""

from __future__ import annotations

import collections
import dataclasses
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

CHUNK = 1 << 18
STUCK_S = 30.0
"""A connection on which the server neither reads nor answers nor closes for so long is stuck."""
LOOK_S = 0.01
LINGER_S = 0.3
"""For the end that the server makes of a connection whose last piece broke the rules."""


class Piece(NamedTuple):
    """A part of a script: bytes, how many frames they are, and the mark of the answer to them."""

    kind: str
    data: bytes
    frames: int
    mark: bytes = b""


class Script(NamedTuple):
    """What one connection says."""

    pieces: Sequence[Piece]
    reads_late: bool = False
    """Whether it reads nothing before all is said, or a second has passed."""
    ends_hard: bool = False
    """Whether it ends by a reset of TCP."""


@dataclasses.dataclass(slots=True)
class Tally:
    """What has happened."""

    sent: int = 0
    """Frames that were handed to the kernel."""
    read: int = 0
    """Those of which it is known that the server has read them."""
    connections: int = 0
    closed_by_server: int = 0
    refused: int = 0
    stuck: int = 0
    answer_bytes: int = 0
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter[str])
    """Frames that were read, by the kind of their piece."""
    ends: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter[str])
    """Connections that the server has closed, by the first piece that it did not answer."""


class _Connection:
    def __init__(self, link: socket.socket, script: Script, tally: Tally) -> None:
        self.link = link
        self.is_over = False
        self._script = script
        self._tally = tally
        self._data = memoryview(b"".join(piece.data for piece in script.pieces))
        self._at = 0
        self._ends = collections.deque[tuple[int, int]]()
        """Where pieces end, and how many frames they are."""
        self._open = collections.deque(script.pieces)
        """Pieces of which it is not known that they were read."""
        end = 0
        for piece in script.pieces:
            end += len(piece.data)
            self._ends.append((end, piece.frames))
        self._rest = b""
        self._began = self._moved = time.monotonic()

    @property
    def wants_to_write(self) -> bool:
        return self._at < len(self._data)

    @property
    def wants_to_read(self) -> bool:
        late = self._script.reads_late and self.wants_to_write
        return not late or time.monotonic() - self._began > 1.0

    @property
    def _mark(self) -> bytes:
        """What comes back next, if anything does."""
        return self._open[0].mark if self._open else b""

    def write(self) -> None:
        try:
            count = self.link.send(self._data[self._at : self._at + CHUNK])
        except BlockingIOError:
            return
        except OSError:
            self._close(by_server=True)
            return
        self._moved = time.monotonic()
        self._at += count
        while self._ends and self._ends[0][0] <= self._at:
            self._tally.sent += self._ends.popleft()[1]

    def read(self) -> None:
        try:
            data = self.link.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(by_server=True)
            return
        self._moved = time.monotonic()
        self._tally.answer_bytes += len(data)
        data, at = self._rest + data, 0
        while (mark := self._mark) and (found := data.find(mark, at)) >= 0:
            piece = self._open.popleft()
            self._tally.read += piece.frames
            self._tally.kinds[piece.kind] += piece.frames
            at = found + len(mark)
        self._rest = data[max(at, len(data) - len(mark) + 1) :] if mark else b""

    def look(self, now: float) -> None:
        """End the connection when there is nothing more to come of it."""
        if self.wants_to_write or self._mark:
            if now - self._moved > STUCK_S:
                self._tally.stuck += 1
                self._close(by_server=False)
        elif not self._open or now - self._moved > LINGER_S:
            self._close(by_server=False)

    def _close(self, *, by_server: bool) -> None:
        """Have the flood close the socket, which it has to forget first."""
        self.is_over = True
        if by_server:
            self._tally.closed_by_server += 1
            self._tally.ends[self._open[0].kind if self._open else "nothing"] += 1
        if self._script.ends_hard and not by_server:
            self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Flood:
    """The connections of one process to one port."""

    def __init__(self, port: int, draw: Callable[[], Script], at_once: int) -> None:
        """Have so many connections at a time; `draw` says what each says."""
        self.tally = Tally()
        self._address = ("127.0.0.1", port)
        self._draw = draw
        self._at_once = at_once
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, int] = {}
        self._looked = 0.0
        self._pause_until = 0.0

    def run(self, frames: int, until: float) -> None:
        """Send until so many frames were read, or until this time. Connections stay."""
        goal = self.tally.read + frames
        while self.tally.read < goal and time.monotonic() < until:
            self._open()
            self._turn()

    def finish(self, within_s: float = STUCK_S) -> None:
        """Let connections come to their ends, and close those that do not."""
        end = time.monotonic() + within_s
        while self._connections and time.monotonic() < end:
            self._turn()
        for connection in tuple(self._connections):
            self._drop(connection)
        self._selector.close()

    def _open(self) -> None:
        now = time.monotonic()
        while len(self._connections) < self._at_once and now >= self._pause_until:
            try:
                link = socket.create_connection(self._address, 5.0)
            except OSError:
                self.tally.refused += 1
                self._pause_until = now + 0.05
                return
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(link, self._draw(), self.tally)
            self.tally.connections += 1
            events = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._selector.register(link, events, connection)
            self._connections[connection] = events

    def _turn(self) -> None:
        for key, events in self._selector.select(0.05):
            connection: _Connection = key.data
            if events & selectors.EVENT_WRITE:
                connection.write()
            if events & selectors.EVENT_READ and not connection.is_over:
                connection.read()
            self._settle(connection)
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked = now
            for connection in tuple(self._connections):
                connection.look(now)
                self._settle(connection)

    def _settle(self, connection: _Connection) -> None:
        """Forget a connection that is over, or wait for what it waits for."""
        if connection.is_over:
            self._drop(connection)
            return
        events = selectors.EVENT_WRITE if connection.wants_to_write else 0
        if connection.wants_to_read:
            events |= selectors.EVENT_READ
        events = events or selectors.EVENT_READ
        if events != self._connections[connection]:
            self._selector.modify(connection.link, events, connection)
            self._connections[connection] = events

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.link)
        connection.link.close()
        del self._connections[connection]


def drawn_of(rng: random.Random, weights: Sequence[tuple[str, float]]) -> str:
    """Draw a name by weight."""
    names, shares = zip(*weights, strict=True)
    found: str = rng.choices(names, shares)[0]
    return found
