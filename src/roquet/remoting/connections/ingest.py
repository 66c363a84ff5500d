"""From received bytes to commands: the plain way, and the door for the native fast path.

An ingest keeps each connection's incomplete frame. The plain one hands every frame to the
handlers; the native one (architecture §3) answers the frames that its admission table covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.base.limits import FRAME_SIZE_MAX
from roquet.remoting.codec import decode
from roquet.remoting.connections.limits import Standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command


class FeedResult(NamedTuple):
    """What came of one read."""

    replies: bytes
    """Answers to write now, before those of the commands."""
    commands: list[Command]
    """Frames for the handlers, in order."""
    stopped: bool = False
    """Whether the rest of the connection's bytes wait until `commands` are done (`resume`)."""
    broken: str = ""
    """Why the connection must be closed once `replies` are written and `commands` taken."""


class Ingest(Protocol):
    """What the server feeds. Only the loop thread calls it."""

    def open(self, key: int, address: str) -> None:
        """Know a new connection, whose peer is at `ip:port`."""
        ...

    def feed(
        self, key: int, data: memoryview, now_ms: int, fd: int | None = None
    ) -> FeedResult | bytes:
        """Take what a connection received at a time. `data` is not kept. Raises BrokenFrame.

        Answers may be written straight to the socket `fd` if there is one. Bytes are the
        answers that are left to write: nothing else came of it, and nothing is kept.
        """
        ...

    def resume(self, key: int) -> FeedResult:
        """Go on with a stopped connection. Raises BrokenFrame."""
        ...

    def idle(self, key: int) -> None:
        """Hear that the handlers have finished every command they got of a connection."""
        ...

    def held(self, key: int) -> int:
        """Bytes kept for a connection."""
        ...

    def standing(self, key: int) -> Standing:
        """Return what is known of whoever sent the bytes that are kept for a connection."""
        ...

    def prove(self, key: int) -> None:
        """Hear that an account signed a request of a connection."""
        ...

    def close(self, key: int) -> None:
        """Drop what is kept for a connection."""
        ...


class PlainIngest:
    """Decodes, decides nothing: the slow path."""

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        """Refuse frames above `frame_size_max` bytes."""
        self._frame_size_max = frame_size_max
        self._partial: dict[int, bytearray] = {}

    def open(self, key: int, address: str) -> None:
        """Keep nothing: every frame is for the handlers, who know the peer."""

    def feed(
        self, key: int, data: memoryview, now_ms: int = 0, fd: int | None = None
    ) -> FeedResult:
        """Decode what is whole; copy only an incomplete frame."""
        del now_ms, fd
        partial = self._partial.get(key)
        if partial is None:
            commands, used = decode(data, self._frame_size_max)
            if used < len(data):
                # Grows with the bytes received, never with the length that a peer declares.
                self._partial[key] = bytearray(data[used:])
            return FeedResult(b"", commands)
        partial += data
        commands, used = decode(partial, self._frame_size_max)
        if used == len(partial):
            del self._partial[key]
        elif used:
            del partial[:used]
        return FeedResult(b"", commands)

    def resume(self, key: int) -> FeedResult:
        """Decode what is left: after a broken frame in the middle, this raises BrokenFrame."""
        return self.feed(key, memoryview(b""))

    def idle(self, key: int) -> None:
        """Nothing depends on it: no frame is ever answered here."""

    def held(self, key: int) -> int:
        """Bytes of the connection's incomplete frame."""
        partial = self._partial.get(key)
        return 0 if partial is None else len(partial)

    def standing(self, key: int) -> Standing:
        """Everybody counts as proven: accounts are not known here."""
        del key
        return Standing.PROVEN

    def prove(self, key: int) -> None:
        """Nothing depends on it."""

    def close(self, key: int) -> None:
        """Drop the connection's incomplete frame."""
        self._partial.pop(key, None)


class HandedOn:
    """Hands what a peer writes to whoever asks it over a connection; keeps nothing itself."""

    def __init__(
        self,
        take: Callable[[int, memoryview], FeedResult | bytes],
        held: Callable[[int], int],
        close: Callable[[int], None],
    ) -> None:
        """Have `take`, `held` and `close` called with the connection's key, as in `Ingest`."""
        self._take, self._held, self._close = take, held, close

    def open(self, key: int, address: str) -> None:
        """Nothing is kept."""

    def feed(
        self, key: int, data: memoryview, now_ms: int, fd: int | None = None
    ) -> FeedResult | bytes:
        """Take what the peer has written."""
        del now_ms, fd
        return self._take(key, data)

    def resume(self, key: int) -> FeedResult:
        """Nothing is ever kept back."""
        del key
        return FeedResult(b"", [])

    def idle(self, key: int) -> None:
        """Nothing depends on it."""

    def standing(self, key: int) -> Standing:
        """Whoever was connected to counts as proven."""
        del key
        return Standing.PROVEN

    def prove(self, key: int) -> None:
        """Nothing depends on it."""

    def held(self, key: int) -> int:
        """Bytes of an incomplete frame."""
        return self._held(key)

    def close(self, key: int) -> None:
        """Tell whoever asks that the connection has ended."""
        self._close(key)
