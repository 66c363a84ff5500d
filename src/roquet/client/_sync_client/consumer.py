"""Blocking form of Consumer: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from roquet.client._consuming import push_consumer
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class Consumer:
    """Receives the messages of a group, blocking."""

    def __init__(self, inner: push_consumer.Consumer, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def start(self) -> None:
        """Join the group and begin to fetch."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Stop fetching, let what is being sent back go, commit, leave the group. Twice is once."""
        self._loop.run(self._inner.close())

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Give out nothing more, wait until what was given out is settled, commit and close.

        Returns whether all was settled in time; what was not comes again to another member.
        """
        return self._loop.run(self._inner.drain(timeout_s))

    def stop(self) -> None:
        """Give out no more messages: loops end after the one in hand; `close` commits."""
        self._loop.call(self._inner.stop)

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that are ours now, those of the retry topic included."""
        return self._loop.call(lambda: self._inner.assigned)

    def commit(self) -> None:
        """Commit what is acknowledged; happens by itself every few seconds and at close."""
        self._loop.run(self._inner.commit())
