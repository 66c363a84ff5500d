"""Consumers of the blocking client; see sync.py."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Literal, Self

from roquet.base.overriding import override

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from roquet.client import _pull_consumer, _push_consumer, _received
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread

log = logging.getLogger(__name__)

Position = Literal["earliest", "latest"]


class Received:
    """One delivery, blocking."""

    def __init__(self, inner: _received.Received, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

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
    def topic(self) -> str:
        """The topic it was sent to."""
        return self._inner.topic

    @property
    def body(self) -> bytes:
        """The body, decompressed."""
        return self._inner.body

    @property
    def tag(self) -> str | None:
        """The tag."""
        return self._inner.tag

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return self._inner.keys

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties."""
        return self._inner.properties

    @property
    def message_id(self) -> str:
        """The producer's id."""
        return self._inner.message_id

    @property
    def queue_offset(self) -> int:
        """Its place in its queue."""
        return self._inner.queue_offset

    @property
    def attempt(self) -> int:
        """1 at the first delivery."""
        return self._inner.attempt

    @property
    def is_settled(self) -> bool:
        """Whether the application has said what became of it."""
        return self._inner.is_settled

    def ack(self) -> None:
        """Done."""
        self._loop.call(self._inner.ack)

    def retry(self, delay_level: int = 0) -> None:
        """Not done: again later."""
        self._loop.call(lambda: self._inner.retry(delay_level))

    def dead_letter(self) -> None:
        """Not done and never will be."""
        self._loop.call(self._inner.dead_letter)

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


class Consumer:
    """Receives the messages of a group, blocking."""

    def __init__(self, inner: _push_consumer.Consumer, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()

    def start(self) -> None:
        """Join the group and begin to fetch."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Commit and leave the group."""
        self._loop.run(self._inner.close())

    def __iter__(self) -> Iterator[Received]:
        """Give messages until closed; asking for the next acknowledges the one before."""
        while (received := self.receive()) is not None:
            yield received
            received.ack()

    def receive(self, timeout_s: float | None = None) -> Received | None:
        """Return the next message, or None when none comes in time."""
        found = self._loop.run(self._inner.receive(timeout_s))
        return None if found is None else Received(found, self._loop)

    def stop(self) -> None:
        """Give out no more messages: loops end after the one in hand; `close` commits."""
        self._loop.call(self._inner.stop)

    @property
    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that are ours now."""
        return self._loop.call(lambda: self._inner.assigned)

    def commit(self) -> None:
        """Commit what is acknowledged."""
        self._loop.run(self._inner.commit())


class PullConsumer:
    """Reads queues from offsets that the application chooses, blocking."""

    def __init__(self, inner: _pull_consumer.PullConsumer, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()

    def start(self) -> None:
        """Be ready to assign queues."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Drop what was fetched."""
        self._loop.run(self._inner.close())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic."""
        return self._loop.run(self._inner.queues(topic))

    def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        tags_expression: str = "*",
        start: int | Position | None = None,
    ) -> None:
        """Read exactly these queues from now on."""
        self._loop.run(self._inner.assign(queues, tags_expression=tags_expression, start=start))

    def seek(
        self,
        queue: MessageQueue,
        to: int | Position | None = None,
        *,
        timestamp: int | None = None,
    ) -> int:
        """Go to an offset, `earliest`, `latest`, or a time."""
        return self._loop.run(self._inner.seek(queue, to, timestamp=timestamp))

    def poll(self, max_messages: int = 32, timeout_s: float = 5.0) -> list[StoredMessage]:
        """Return the next messages; an empty list means that none came."""
        return self._loop.run(self._inner.poll(max_messages, timeout_s))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message of a queue."""
        return self._loop.call(lambda: self._inner.position(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit positions."""
        self._loop.run(self._inner.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed."""
        return self._loop.run(self._inner.committed(queue))

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset still there and the one after the last message."""
        return self._loop.run(self._inner.bounds(queue))
