"""The client for programs without asyncio: the same calls, blocking.

with roquet.sync.connect("rmq://127.0.0.1:9876") as mq, mq.producer("orders") as producer:
    producer.send("orders", b"hello")

Everything runs on one private thread with an event loop. Objects may be used from any thread.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
from typing import TYPE_CHECKING, Literal, Self

from roquet.client import _mq
from roquet.model.topic import READ_WRITE
from roquet.protocol import names
from roquet.service.loop_thread import LoopThread

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from roquet.client import _admin, _producer, _pull_consumer, _push_consumer, _received
    from roquet.client._mq import Subscriptions
    from roquet.client._offsets import Start
    from roquet.client._options import ConsumerOptions, ProducerOptions
    from roquet.client._receipt import SendReceipt
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.route import TopicRoute
    from roquet.protocol.bodies.routes import ClusterInfo
    from roquet.protocol.bodies.stats import ConsumeOffset, TopicOffset

log = logging.getLogger(__name__)

Position = Literal["earliest", "latest"]


def connect(url: str) -> MQ:
    """Make a client, as `roquet.connect` does; use it as `with roquet.sync.connect(...) as mq:`."""
    return MQ(_mq.connect(url))


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


class Received:
    """One delivery, blocking."""

    def __init__(self, inner: _received.Received, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

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


class Admin:
    """Administration, blocking."""

    def __init__(self, inner: _admin.Admin, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def create_topic(
        self,
        name: str,
        queues: int = 8,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create or change a topic and wait until the name server knows it."""
        self._loop.run(
            self._inner.create_topic(
                name, queues, perm=perm, order=order, attributes=attributes, brokers=brokers
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic from every broker and name server."""
        self._loop.run(self._inner.delete_topic(name))

    def topics(self) -> list[str]:
        """Return all topics."""
        return self._loop.run(self._inner.topics())

    def route(self, topic: str) -> TopicRoute:
        """Return where a topic is."""
        return self._loop.run(self._inner.route(topic))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read."""
        return self._loop.run(self._inner.queues(topic))

    def cluster(self) -> ClusterInfo:
        """Return all brokers."""
        return self._loop.run(self._inner.cluster())

    def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the bounds of every queue of a topic."""
        return self._loop.run(self._inner.topic_offsets(topic))

    def group_offsets(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, ConsumeOffset]:
        """Return how far a group is in each queue."""
        return self._loop.run(self._inner.group_offsets(group, topic))

    def create_group(
        self, group: str | SubscriptionGroupConfig, *, brokers: Iterable[str] | None = None
    ) -> None:
        """Create or change a consumer group."""
        self._loop.run(self._inner.create_group(group, brokers=brokers))

    def delete_group(self, group: str, *, offsets: bool = False) -> None:
        """Delete a consumer group."""
        self._loop.run(self._inner.delete_group(group, offsets=offsets))

    def view_message(self, offset_id: str) -> StoredMessage:
        """Return a message by its offset id."""
        return self._loop.run(self._inner.view_message(offset_id))
