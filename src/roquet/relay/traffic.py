"""The exchange as the links' ingest: packets go their way inside it, the rest comes out.

Order holds for each pair of servers: one link is read in order, and a server has one queue. A
queue is bounded in bytes, so a slow receiver costs its senders a SYSTEM_BUSY and nobody else
anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet._native import Exchange
from roquet.protocol.command import Command
from roquet.remoting.connections.ingest import FeedResult
from roquet.remoting.connections.limits import Standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.relay.config import RelayConfig


class RelayTraffic:
    """One native exchange for all workers. Implements `remoting.ingest.Ingest`."""

    def __init__(self, config: RelayConfig, clock: Clock) -> None:
        """Know nobody; `wake` has to be set before bytes come."""
        self.exchange = Exchange(
            workers=config.workers,
            frame_size_max=config.frame_bytes,
            queue_max=config.queue_bytes,
            control_max=config.notice_bytes,
            total_max=config.total_bytes,
            pending_max=config.pending_max,
            timeout_ms=config.request_timeout_ms,
        )
        self.wake: Callable[[int], None] = _nobody
        """Told the index of a worker whose servers have output."""
        self._clock = clock

    def open(self, key: int, address: str) -> None:
        """Know a connection."""
        del address
        self.exchange.open(key, self._clock.steady_ms())

    def feed(self, key: int, data: memoryview, now_ms: int, fd: int | None = None) -> FeedResult:
        """Route what is whole."""
        del fd
        frames, broken, woken = self.exchange.feed(key, data, now_ms)
        for worker in woken:
            self.wake(worker)
        if not frames:
            return FeedResult(b"", [], broken=broken or "")
        commands = [
            Command(code, ext, body, remark, flag, opaque, language, version, encoding)
            for encoding, code, flag, language, version, opaque, remark, ext, body in frames
        ]
        return FeedResult(b"", commands, broken=broken or "")

    def resume(self, key: int) -> FeedResult:
        """Nothing is ever stopped here."""
        del key
        return FeedResult(b"", [])

    def idle(self, key: int) -> None:
        """Nothing depends on it."""

    def held(self, key: int) -> int:
        """Bytes of the connection's incomplete frame."""
        return self.exchange.held(key)

    def standing(self, key: int) -> Standing:
        """Everybody counts as proven: servers have no accounts."""
        del key
        return Standing.PROVEN

    def prove(self, key: int) -> None:
        """Nothing depends on it."""

    def close(self, key: int) -> None:
        """Forget a connection."""
        self.exchange.close(key)

    def announce(self) -> None:
        """Wake the workers whose servers got output other than by `feed`."""
        for worker in self.exchange.ready_workers():
            self.wake(worker)

    async def expire(self) -> None:
        """Refuse requests that were not answered in time."""
        self.exchange.expire(self._clock.steady_ms())
        self.announce()

    async def start(self) -> None:
        """Nothing has to be acquired."""

    async def stop(self) -> None:
        """Nothing has to be released."""


def _nobody(worker: int) -> None:
    del worker
