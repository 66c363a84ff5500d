"""The message store as one of a pair: what a master shows its slaves, what a slave writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from roquet import _native
from roquet.ha.threads import HANDSHAKE_MS, native_rules
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import LogLink, PairTls
    from roquet.ha.feed import CopierConfig, FeedConfig
    from roquet.store.store import Durability, MessageStore

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ReplicatedLog(Protocol):
    """A log that can be copied."""

    @property
    def begin(self) -> int:
        """Offset of the first byte that is kept."""
        ...

    @property
    def limit(self) -> int:
        """Up to where slaves may copy now: behind the last whole record."""
        ...

    @property
    def written(self) -> int:
        """Where the log ends, possibly inside a record."""
        ...

    @property
    def vouched(self) -> int:
        """Up to where a slave may say that it has the log."""
        ...

    def read(self, offset: int, size_max: int) -> bytes:
        """Return bytes of one file from `offset` on. Raises StoreFault."""
        ...

    async def settle(self) -> None:
        """Make all whole records durable, and take back what is behind them. Raises StoreFault.

        Nothing may copy meanwhile.
        """
        ...

    def feed(self, fd: int, rules: FeedConfig, tls: PairTls | None) -> LogLink:
        """Have a thread feed the slave at the other end of a socket, which is the thread's now.

        Raises OSError; the socket is closed then.
        """
        ...

    def follow(self, fd: int, rules: CopierConfig, tls: PairTls | None) -> LogLink:
        """Have a thread copy the log of the master at the other end of a socket.

        Raises OSError; the socket is closed then.
        """
        ...


class StoreLog:
    """The log of an open message store."""

    def __init__(self, store: MessageStore, durability: Durability) -> None:
        self._store = store
        self._durability = durability

    @property
    def begin(self) -> int:
        """Offset of the first byte that is kept."""
        return self._store.native.min_physical_offset()

    @property
    def limit(self) -> int:
        """Up to where slaves may copy now."""
        return _native.log_limit(self._store.native)

    @property
    def written(self) -> int:
        """Where the log ends."""
        return self._store.native.max_physical_offset()

    @property
    def vouched(self) -> int:
        """With SYNC_FLUSH a slave acknowledges only what is durable."""
        native = self._store.native
        written = native.max_physical_offset()
        return min(written, native.flushed_offset()) if self._durability.sync_flush else written

    def read(self, offset: int, size_max: int) -> bytes:
        """Return bytes of one file from `offset` on. Raises StoreFault."""
        return _guarded(_native.log_bytes, self._store.native, offset, size_max)

    async def settle(self) -> None:
        """Make all whole records durable, and take back what is behind them. Raises StoreFault."""
        await asyncio.to_thread(_guarded, _native.settle_log, self._store.native)

    def feed(self, fd: int, rules: FeedConfig, tls: PairTls | None) -> LogLink:
        """Have a thread feed the slave at the other end of a socket. Raises OSError."""
        return _native.feed_log(
            self._store.native,
            fd,
            tls=tls,
            handshake_ms=HANDSHAKE_MS,
            **native_rules(rules),
        )

    def follow(self, fd: int, rules: CopierConfig, tls: PairTls | None) -> LogLink:
        """Have a thread copy the log of the master at the other end of a socket. Raises OSError."""
        return _native.follow_log(
            self._store.native,
            fd,
            tls=tls,
            handshake_ms=HANDSHAKE_MS,
            heartbeat_ms=rules.heartbeat_ms,
            housekeeping_ms=rules.housekeeping_ms,
        )


def _guarded(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    try:
        return call(*args, **kwargs)
    except _native.StoreError as error:
        kind, text = (*error.args, "", "")[:2]
        raise StoreFault(str(kind), str(text)) from error
