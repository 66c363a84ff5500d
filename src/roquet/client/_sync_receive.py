"""Consumers of the blocking client; see sync.py."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from roquet.base.overriding import override
from roquet.client._sync_client import consumer, received
from roquet.client._sync_client.pull_consumer import PullConsumer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

__all__ = ["Consumer", "PullConsumer", "Received"]
log = logging.getLogger(__name__)


class Received(received.Received):
    """One delivery, blocking."""

    @override
    def __repr__(self) -> str:
        """Return what a log line needs."""
        return repr(self._inner)

    @property
    def message(self) -> StoredMessage:
        """Everything that is known of the message."""
        return self._inner.message

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return self._inner.queue

    @contextlib.contextmanager
    def process(self, *, delay_level: int = 0, reraise: bool = False) -> Generator[Received]:
        """Acknowledge at the end of the block; an exception in it is logged and means `retry`."""
        try:
            yield self
        except Exception:
            log.exception("message %s of %s failed", self.message_id, self.topic)
            self.retry(delay_level)
            if reraise:
                raise
        else:
            self.ack()


class Consumer(consumer.Consumer):
    """Receives the messages of a group, blocking."""

    def __iter__(self) -> Iterator[Received]:
        """Give messages until closed; asking for the next acknowledges the one before."""
        while (received := self.receive()) is not None:
            yield received
            received.ack()

    def receive(self, timeout_s: float | None = None) -> Received | None:
        """Return the next message, or None when none comes in time."""
        found = self._loop.run(self._inner.receive(timeout_s))
        return None if found is None else Received(found, self._loop)

    def receive_many(
        self, max_messages: int = 32, timeout_s: float | None = None, *, linger_s: float = 0.0
    ) -> list[Received]:
        """Return the next messages, at most `max_messages`; an empty list when none came in time.

        Waits up to `timeout_s` for the first and `linger_s` longer for others to fill the batch.
        """
        found = self._loop.run(self._inner.receive_many(max_messages, timeout_s, linger_s=linger_s))
        return [Received(one, self._loop) for one in found]
