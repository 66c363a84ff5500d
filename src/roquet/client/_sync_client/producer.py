"""Blocking form of Producer: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.client._sending import producer
    from roquet.client._sending.receipt import SendReceipt
    from roquet.client.codecs.base import Codec
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class Producer:
    """Sends messages, blocking."""

    def __init__(self, inner: producer.Producer, loop: LoopThread) -> None:
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
        """Join the producer group."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Wait for submitted sends and leave the group. Twice is once."""
        self._loop.run(self._inner.close())

    def recall(self, receipt: SendReceipt | str, *, timeout_s: float = 3.0) -> None:
        """Take back a message that waits for its time: its receipt, or the receipt's handle.

        The broker has to allow it (recallMessageEnable). Success means that the request is stored;
        in the last second before the message is due it may come too late. Raises UsageError for a
        message that has no handle, Refused (not allowed, due already), Unreachable and
        OutcomeUnknown.
        """
        self._loop.run(self._inner.recall(receipt, timeout_s=timeout_s))

    def send_batch(
        self,
        topic: str,
        messages: Iterable[object],
        *,
        codec: Codec | None = None,
        queue: MessageQueue | None = None,
        unique_keys: Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests, to one queue a request; a receipt for each.

        A batch too big for one request is split; when a later part fails, the earlier ones are
        stored. `unique_keys`, one a message, replace those that the producer would make, so that a
        batch sent again can be recognized. Raises as `send` does.
        """
        return self._loop.run(
            self._inner.send_batch(
                topic,
                messages,
                codec=codec,
                queue=queue,
                unique_keys=unique_keys,
                timeout_s=timeout_s,
            )
        )

    def flush(self) -> None:
        """Wait for everything submitted. Raises the first failure since the last flush."""
        self._loop.run(self._inner.flush())

    def request(
        self,
        topic: str | Message,
        body: object = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float = 3.0,
    ) -> StoredMessage:
        """Send a message and return the consumer's answer to it (see `reply`).

        Raises as `send` does, and OutcomeUnknown when no answer came in time.
        """
        return self._loop.run(
            self._inner.request(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                codec=codec,
                order_key=order_key,
                queue=queue,
                timeout_s=timeout_s,
            )
        )

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that the topic's messages go to. Raises Refused when it has none."""
        return self._loop.run(self._inner.queues(topic))
