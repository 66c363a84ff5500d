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

    _is_said = False

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

    @property
    def is_settled(self) -> bool:
        """Whether the application has said what became of it."""
        return self._is_said or self._inner.is_settled

    # Nothing is waited for: what is asked of the consumer after it finds the message settled.

    def ack(self) -> None:
        """Done: the group does not get it again."""
        self._is_said = True
        self._loop.post(self._inner.ack)

    def retry(self, delay_level: int = 0) -> None:
        """Not done: again later. Level 0 lets the broker grow the pause with each attempt."""
        self._is_said = True
        self._loop.post(lambda: self._inner.retry(delay_level))

    def dead_letter(self) -> None:
        """Not done and never will be: to the group's dead-letter topic."""
        self._is_said = True
        self._loop.post(self._inner.dead_letter)

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
        # A message that is here already needs no change of threads.
        found = None if self._loop.is_closed else self._inner.ready()
        if found is None:
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
