"""The native ingest behind the server's door: one fast path for all ports of a broker.

What may be answered there is data that somebody else writes (`rows`); this module only carries
bytes, commands and notes between the compiled part, the connections and the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet._native import Ingest as NativeIngest
from roquet.protocol.command import Command
from roquet.protocol.hosts import host_bytes
from roquet.remoting.ingest import Fed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roquet._native import Store as NativeStore
    from roquet.base.clock import Clock

    _Frame = tuple[int, int, int, str, int, int, str | None, dict[str, str] | None, bytes]
    _Pulled = tuple[str, str, int, int, int | None, int, int, int, int, int]
    _NativeFed = tuple[bytes, list[_Frame], str | None, list[_Pulled]]


Rows = NativeIngest
"""The compiled part as the one who writes its rows sees it."""


class PulledHere(NamedTuple):
    """A pull that was answered without a processor."""

    group: str
    topic: str
    queue_id: int
    offset: int
    commit: int | None
    next_offset: int
    min_offset: int
    max_offset: int
    messages: int
    size: int


class StoredHere(NamedTuple):
    """Messages that were stored without a processor."""

    topic: str
    queue_id: int
    messages: int
    size: int


class Owner(Protocol):
    """Who says what may be answered, and hears what was."""

    def before(self, rows: Rows) -> None:
        """Bring the rows up to date: bytes are about to be looked at."""
        ...

    def pulled(self, pull: PulledHere) -> None:
        """Note a pull that was answered."""
        ...

    def stored(self, messages: StoredHere) -> None:
        """Note messages that were stored."""
        ...


class FastPath:
    """The native ingest of a broker, there from `open` to `close`."""

    def __init__(self, owner: Owner, clock: Clock) -> None:
        """Answer nothing yet."""
        self._owner = owner
        self._clock = clock
        self._write: Callable[[int, bytes], None] | None = None
        self._native: NativeIngest | None = None

    def deliver_by(self, write: Callable[[int, bytes], None]) -> None:
        """Have late answers written by `write(connection key, frames)`, whatever the port."""
        self._write = write

    def open(self, store: NativeStore, frame_size_max: int) -> None:
        """Begin to answer from and into an open store."""
        self._native = NativeIngest(store, frame_size_max)

    def close(self) -> None:
        """Let go of the store, once no connection is left."""
        self.settle()
        self._native = None

    @property
    def native(self) -> NativeIngest:
        """The native ingest; only between `open` and `close`."""
        assert self._native is not None, "the fast path is not open"
        return self._native

    @property
    def is_open(self) -> bool:
        """Whether there is a native ingest."""
        return self._native is not None

    def port(self, *, pulls: bool) -> PortIngest:
        """Return the ingest of one port, which serves pulls or does not."""
        return PortIngest(self, pulls=pulls)

    # --- what connections ask -------------------------------------------------------------------

    def feed(self, key: int, data: memoryview) -> Fed:
        """Take what a connection received."""
        native = self.native
        self._owner.before(native)
        return self._came(native.feed(key, data, self._clock.now_ms()))

    # --- what happens without a connection ------------------------------------------------------

    def flushed(self, offset: int, failure: str | None) -> None:
        """Answer the sends that waited for this flush, or refuse all that wait: it failed."""
        native = self._native
        if native is not None:
            self._deliver(native.flushed(offset) if failure is None else native.fail(failure))

    def set_replicated(self, offset: int) -> None:
        """Answer the sends that waited for their copy on slaves: the log up to `offset` is there.

        To be called on the loop. Offsets below an earlier one change nothing.
        """
        native = self._native
        if native is not None:
            self._deliver(native.set_replicated(offset))

    async def tick(self) -> None:
        """Answer the sends that waited too long, and hand out the counts: a timer's action."""
        self._deliver(self.native.expire(self._clock.now_ms()))
        self.settle()

    def settle(self) -> None:
        """Tell the owner of everything stored so far."""
        for stored in self.native.take_stored():
            self._owner.stored(StoredHere(*stored))

    def _deliver(self, answers: Iterable[tuple[int, bytes]]) -> None:
        if self._write is not None:
            for key, frames in answers:
                self._write(key, frames)

    def _came(self, came: _NativeFed) -> Fed:
        replies, frames, broken, pulls = came
        if pulls:
            for pull in pulls:
                self._owner.pulled(PulledHere._make(pull))
        if not frames:
            return Fed(replies, [], broken=broken or "")
        # A processor may ask for figures: let them be right.
        self.settle()
        commands = [
            Command(code, ext, body, remark, flag, opaque, language, version, encoding)
            for encoding, code, flag, language, version, opaque, remark, ext, body in frames
        ]
        return Fed(replies, commands, broken=broken or "")


class PortIngest:
    """The fast path as one port's server sees it (`remoting.ingest.Ingest`)."""

    def __init__(self, path: FastPath, *, pulls: bool) -> None:
        """Serve a port with or without pulls."""
        self._pulls = pulls
        self._path = path
        self.feed = path.feed

    def open(self, key: int, address: str) -> None:
        """Know a new connection; one from an odd address gets no sends answered here."""
        try:
            host = host_bytes(address)
        except ValueError:
            host = b""
        self._path.native.open(key, host, self._pulls)

    def resume(self, key: int) -> Fed:
        """Look at what is kept once more."""
        return self.feed(key, memoryview(b""))

    def idle(self, key: int) -> None:
        """Admit the connection's frames again: the processors have finished all they got of it."""
        if self._path.is_open:
            self._path.native.idle(key)

    def held(self, key: int) -> int:
        """Bytes kept for a connection."""
        return self._path.native.held(key)

    def close(self, key: int) -> None:
        """Drop what is kept for a connection."""
        if self._path.is_open:
            self._path.native.close(key)
