"""Blocking form of PullConsumer: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.client._consuming import pull_consumer
    from roquet.client._consuming.pull_consumer import Position
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class PullConsumer:
    """Reads queues from offsets that the application chooses, blocking."""

    def __init__(self, inner: pull_consumer.PullConsumer, loop: LoopThread) -> None:
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
        """Be ready to assign queues."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Drop what was fetched. Twice is once."""
        self._loop.run(self._inner.close())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic. Raises Refused when it has none."""
        return self._loop.run(self._inner.queues(topic))

    def assign(
        self,
        queues: Iterable[MessageQueue],
        *,
        tags_expression: str = "*",
        start: int | Position | None = None,
    ) -> None:
        """Read exactly these queues from now on; those read already go on where they are.

        New ones begin at `start`; without one at the committed offset, else at the earliest.
        """
        self._loop.run(self._inner.assign(queues, tags_expression=tags_expression, start=start))

    def seek(
        self, queue: MessageQueue, to: int | Position | None = None, *, timestamp: int | None = None
    ) -> int:
        """Go to an offset, `earliest`, `latest`, or the first message stored at a Unix ms time.

        Returns the offset. What was fetched of the queue is dropped.
        """
        return self._loop.run(self._inner.seek(queue, to, timestamp=timestamp))

    def poll(self, max_messages: int = 32, timeout_s: float = 5.0) -> list[StoredMessage]:
        """Return the next messages of the assigned queues, at most `max_messages`.

        Waits up to `timeout_s` seconds for the first; an empty list means that none came. Messages
        of one queue come in order. Raises what went wrong while fetching, once.
        """
        return self._loop.run(self._inner.poll(max_messages, timeout_s))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that `poll` gives of a queue."""
        return self._loop.call(lambda: self._inner.position(queue))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit the positions of all assigned queues, or the given offsets, for the group."""
        self._loop.run(self._inner.commit(offsets))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the group has committed."""
        return self._loop.run(self._inner.committed(queue))

    def bounds(self, queue: MessageQueue) -> tuple[int, int]:
        """Return the first offset still there and the one after the last message."""
        return self._loop.run(self._inner.bounds(queue))
