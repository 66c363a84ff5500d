"""The producer of the blocking client; see sync.py."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Self

from roquet.client._sync_receive import Received

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roquet.client import _producer
    from roquet.client._receipt import SendReceipt
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class Producer:
    """Sends messages, blocking."""

    def __init__(self, inner: _producer.Producer, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what was submitted, then stop."""
        self.close()

    def start(self) -> None:
        """Join the producer group."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Wait for submitted sends and leave the group."""
        self._loop.run(self._inner.close())

    def send(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Callable[[Sequence[MessageQueue], Message], MessageQueue] | None = None,
        unique_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message and wait until the broker has it."""
        return self._loop.run(
            self._inner.send(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                delay_level=delay_level,
                order_key=order_key,
                queue=queue,
                selector=selector,
                unique_key=unique_key,
                timeout_s=timeout_s,
            )
        )

    def send_batch(
        self,
        topic: str,
        messages: Iterable[bytes | str | Message],
        *,
        queue: MessageQueue | None = None,
        unique_keys: Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests."""
        return self._loop.run(
            self._inner.send_batch(
                topic, messages, queue=queue, unique_keys=unique_keys, timeout_s=timeout_s
            )
        )

    def send_one_way(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without waiting for an answer."""
        self._loop.run(
            self._inner.send_one_way(
                topic, body, tag=tag, keys=keys, properties=properties, queue=queue
            )
        )

    def submit(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin a send and return the future of its receipt; waits while too many are under way."""
        result: concurrent.futures.Future[SendReceipt] = concurrent.futures.Future()

        def finished(future: asyncio.Future[SendReceipt]) -> None:
            if future.cancelled():
                result.cancel()
            elif (error := future.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(future.result())

        async def submitting() -> None:
            future = await self._inner.submit(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                order_key=order_key,
                queue=queue,
            )
            future.add_done_callback(finished)

        self._loop.run(submitting())
        return result

    def request(
        self,
        topic: str | Message,
        body: bytes | str = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float = 3.0,
    ) -> StoredMessage:
        """Send a message and return the consumer's answer to it."""
        return self._loop.run(
            self._inner.request(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                order_key=order_key,
                queue=queue,
                timeout_s=timeout_s,
            )
        )

    def reply(
        self,
        request: StoredMessage | Received,
        body: bytes | str,
        *,
        properties: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Answer a message that was sent by `request`."""
        given = request.message if isinstance(request, Received) else request
        return self._loop.run(
            self._inner.reply(given, body, properties=properties, timeout_s=timeout_s)
        )

    def flush(self) -> None:
        """Wait for everything submitted. Raises the first failure since the last flush."""
        self._loop.run(self._inner.flush())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that the topic's messages go to."""
        return self._loop.run(self._inner.queues(topic))
