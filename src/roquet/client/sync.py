"""The client for programs without asyncio: the same calls, blocking.

with roquet.sync.connect("rmq://127.0.0.1:9876") as mq, mq.producer("orders") as producer:
    producer.send("orders", b"hello")

Everything runs on one private thread with an event loop. Objects may be used from any thread.
"""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Self

from roquet.client import _mq
from roquet.client._sync_admin import Admin
from roquet.client._sync_receive import Consumer, PullConsumer, Received
from roquet.protocol import names
from roquet.service.loop_thread import LoopThread

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roquet.client import _producer
    from roquet.client._mq import Subscriptions
    from roquet.client._offsets import Start
    from roquet.client._options import ConsumerOptions, ProducerOptions
    from roquet.client._receipt import SendReceipt
    from roquet.model.message import Message
    from roquet.model.queue import MessageQueue
    from roquet.remoting.tls import TlsOptions

__all__ = ["MQ", "Admin", "Consumer", "Producer", "PullConsumer", "Received", "connect"]


def connect(url: str, *, tls: TlsOptions | bool | None = None) -> MQ:
    """Make a client, as `roquet.connect` does; use it as `with roquet.sync.connect(...) as mq:`."""
    return MQ(_mq.connect(url, tls=tls))


class MQ:
    """A client of one cluster, blocking."""

    def __init__(self, inner: _mq.MQ) -> None:
        """Wrap; nothing runs yet."""
        self._inner = inner
        self._loop = LoopThread("roquet-client")

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def start(self) -> None:
        """Begin the background work."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Close all connections and end the thread. Twice is once."""
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.close()

    @property
    def client_id(self) -> str:
        """How brokers know this client."""
        return self._inner.client_id

    def producer(
        self, group: str = names.DEFAULT_PRODUCER_GROUP, *, options: ProducerOptions | None = None
    ) -> Producer:
        """Make a producer."""
        made = self._loop.call(lambda: self._inner.producer(group, options=options))
        return Producer(made, self._loop)

    def consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        *,
        start: Start = "latest",
        ordered: bool = False,
        options: ConsumerOptions | None = None,
    ) -> Consumer:
        """Make a consumer."""
        made = self._loop.call(
            lambda: self._inner.consumer(
                group, subscriptions, start=start, ordered=ordered, options=options
            )
        )
        return Consumer(made, self._loop)

    def pull_consumer(self, group: str, *, options: ConsumerOptions | None = None) -> PullConsumer:
        """Make a pull consumer."""
        made = self._loop.call(lambda: self._inner.pull_consumer(group, options=options))
        return PullConsumer(made, self._loop)

    def admin(self) -> Admin:
        """Return the administrative calls."""
        return Admin(self._inner.admin(), self._loop)


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
                timeout_s=timeout_s,
            )
        )

    def send_batch(
        self,
        topic: str,
        messages: Iterable[bytes | str | Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendReceipt]:
        """Send many messages in few requests."""
        return self._loop.run(
            self._inner.send_batch(topic, messages, queue=queue, timeout_s=timeout_s)
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

    def flush(self) -> None:
        """Wait for everything submitted. Raises the first failure since the last flush."""
        self._loop.run(self._inner.flush())

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that the topic's messages go to."""
        return self._loop.run(self._inner.queues(topic))
