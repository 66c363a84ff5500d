"""Sending: choose a queue, send, try another broker where that is safe.

The next file on a message's way is remoting/client.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from roquet.base.arguments import a_number, a_text, a_time_s, an_instance, texts
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, UsageError
from roquet.client._cluster.requests import request as make_request
from roquet.client._cluster.trouble import not_started
from roquet.client._received import Received
from roquet.client._replies import reply_properties, request_properties
from roquet.client._sending.accumulator import Accumulator, Submission
from roquet.client._sending.choosing import choose_by
from roquet.client._sending.delivery import Delivery
from roquet.client._sending.due import due_of
from roquet.client._sending.encode import (
    Encoded,
    compose,
    encode_batches,
    encode_one,
    may_share,
)
from roquet.client._sending.receipt import SendReceipt
from roquet.client.codecs.base import encoded as encoded_by
from roquet.model.message import Message, StoredMessage
from roquet.protocol.codes import RequestCode
from roquet.protocol.headers.message import RecallMessageRequest
from roquet.protocol.messages.recall_handle import RecallHandle

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from roquet.client._cluster.session import Session
    from roquet.client._options import ProducerOptions
    from roquet.client._replies import Replies
    from roquet.client._sending.accumulator import Promise
    from roquet.client._sending.choosing import Chooser
    from roquet.client._sending.due import Due
    from roquet.client.codecs.base import Codec
    from roquet.model.queue import MessageQueue
    from roquet.protocol.messages.message_id import UniqueIds


class Producer:
    """Sends messages. Use it with `async with`; any number of tasks may share one."""

    def __init__(
        self,
        *,
        session: Session,
        group: str,
        options: ProducerOptions,
        ids: UniqueIds,
        rng: random.Random,
        replies: Replies,
    ) -> None:
        """Take what `MQ.producer` gives."""
        self.group = group
        self.in_flight_max: int = options.in_flight_max
        self.timeout_s: float = options.timeout_s
        self._session = session
        self._options = options
        self._ids = ids
        self._replies = replies
        self._delivery = Delivery(session, options, group, rng)
        self._slots = asyncio.Semaphore(options.in_flight_max)
        self._accumulator = Accumulator(self._delivery, options)
        self._failed: RoquetError | None = None
        """The first failure since the last flush."""
        self._open = False

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for what was submitted, then stop."""
        await self.close()

    async def start(self) -> None:
        """Join the producer group."""
        if not self._open:
            self._session.members.add_producer(self.group)
            self._accumulator.open()
            self._open = True

    async def close(self) -> None:
        """Wait for submitted sends and leave the group. Twice is once."""
        if not self._open:
            return
        self._open = False
        await self._accumulator.close(within_s=self._options.timeout_s)
        if self._session.members.remove_producer(self.group):
            await self._session.unregister(producer=self.group)

    async def send(
        self,
        topic: str | Message,
        body: object = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        delay_level: int = 0,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        selector: Callable[[Sequence[MessageQueue], Message], MessageQueue] | None = None,
        unique_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Send one message and wait until the broker has it.

        `topic` may be a whole `Message`; then the fields come from it. `body` is text or bytes, or
        with a `codec` (this one's, or that of the options) a value that it encodes. Messages with
        the same `order_key` go to the same queue; `queue` and `selector` choose one directly. A
        chosen queue is never replaced by another, so such sends are tried again only while its
        broker is away or busy. `unique_key` replaces the one that the producer would make.

        `delay` (a timedelta or seconds, up to ten years) or `at` (a datetime with a time zone) is
        when consumers get the message: a timer on brokers of RocketMQ 5, which come to within a
        second and may allow less (timerMaxDelaySec, three days). Brokers before 5 have levels
        alone: a delay that is exactly one works there, any other raises UsageError.

        A broker that cannot be reached, or says that it is busy (code 2), is tried until
        `timeout_s` (3 s) is over, so that a restart or a change of role is no failure. Raises
        UsageError (fix the call), Refused (the broker said no), Unreachable (never sent) and
        OutcomeUnknown (sent, no answer: it may be stored).
        """
        message = self.composed(
            topic,
            body,
            tag,
            keys,
            user_properties=properties,
            delay_level=delay_level,
            codec=codec,
        )
        ready = self.ready(message, due_of(delay, at), unique_key, order_key, queue, selector)
        return (await self._deliver(*ready, timeout_s))[0]

    async def recall(self, receipt: SendReceipt | str, *, timeout_s: float = 3.0) -> None:
        """Take back a message that waits for its time: its receipt, or the receipt's handle.

        The broker has to allow it (recallMessageEnable). Success means that the request is stored;
        in the last second before the message is due it may come too late. Raises UsageError for a
        message that has no handle, Refused (not allowed, due already), Unreachable and
        OutcomeUnknown.
        """
        self._check_open()
        a_time_s("timeout_s", timeout_s)
        if not isinstance(receipt, str):
            an_instance("receipt", receipt, SendReceipt)
        if isinstance(receipt, str):
            text = receipt
        elif receipt.recall_handle is None:
            raise UsageError(f"message {receipt.message_id} waits for no time: nothing to recall")
        else:
            text = receipt.recall_handle
        try:
            handle = RecallHandle.decode(text)
        except ValueError as error:
            raise UsageError(str(error)) from error
        await self._session.route(handle.topic, timeout_s)
        header = RecallMessageRequest(
            producer_group=self.group, topic=handle.topic, recall_handle=text
        )
        address = self._session.master(handle.broker_name)
        command = make_request(RequestCode.RECALL_MESSAGE, header, broker=handle.broker_name)
        try:
            await self._session.ask(address, command, timeout_s)
        except Refused:
            self._trace_recall(handle, success=False)
            raise
        self._trace_recall(handle, success=True)

    async def send_batch(
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
        a_text("topic", topic)
        an_instance("messages", messages, Iterable)
        if unique_keys is not None:
            texts("unique_keys", unique_keys)
        topic = self._session.namespace.topic(topic)
        made = [
            self._session.namespace.message(it)
            if isinstance(it, Message)
            else compose(topic, self._body(it, codec))
            for it in messages
        ]
        if any(message.topic != topic for message in made):
            raise UsageError("the messages of a batch go to one topic")
        ids = [self._next_id() for _ in made] if unique_keys is None else unique_keys
        if len(ids) != len(made) or not all(ids):
            raise UsageError("a batch with unique keys has one for each message, none empty")
        parts = encode_batches(made, ids, self._options)
        chooser = choose_by(made[0], None, queue, None)
        receipts: list[SendReceipt] = []
        for part in parts:
            receipts += await self._deliver(part, chooser, timeout_s)
        return receipts

    async def send_encoded(
        self, encoded: Encoded, *, queue: MessageQueue, timeout_s: float | None = None
    ) -> list[SendReceipt]:
        """Send what is encoded already, a message or the body of a batch, to a queue.

        For those that encode many messages at once; the caller answers for what is in it. Raises
        as `send` does.
        """
        return await self._deliver(encoded, lambda _: queue, timeout_s)

    async def send_one_way(
        self,
        topic: str | Message,
        body: object = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without waiting for an answer: fast, and lost when the broker refuses it.

        Raises UsageError, Unreachable, and Refused when the topic has no route.
        """
        message = self.composed(topic, body, tag, keys, user_properties=properties, codec=codec)
        encoded = encode_one(message, self._next_id(), self._options)
        chooser = choose_by(message, None, queue, None)
        found = await self._delivery.choose(encoded.topic, chooser, None, self._options.timeout_s)
        address = self._session.master(found.broker_name)
        await self._session.tell(address, self._delivery.request(encoded, found))

    async def submit(
        self,
        topic: str | Message,
        body: object = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> asyncio.Future[SendReceipt]:
        """Begin a send and return the future of its receipt; waits while too many are under way.

        Messages of one turn of the loop share requests (`ProducerOptions.batch_bytes`). Those of a
        chosen queue or `order_key` are stored in the order of their submission. A failure is the
        future's exception, and `flush` raises the first of them. The arguments are those of `send`.
        """
        if self._slots.locked():
            self._accumulator.hasten()
        await self._slots.acquire()
        try:
            future: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
            one = self.prepared(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                codec=codec,
                delay=delay,
                at=at,
                order_key=order_key,
                queue=queue,
                promise=future,
                settled=self._settled,
            )
        except BaseException:
            self._slots.release()
            raise
        self._accumulator.add(one)
        return future

    async def flush(self) -> None:
        """Wait for everything submitted. Raises the first failure since the last flush."""
        await self._accumulator.flush()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    async def request(
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
        message = self.composed(topic, body, tag, keys, user_properties=properties, codec=codec)
        a_number("timeout_s", timeout_s)
        chooser = choose_by(message, order_key, queue, None)
        correlation_id, future = self._replies.expect()
        try:
            async with asyncio.timeout(timeout_s):
                # The broker pushes the answer over the connection of our heartbeats.
                await self._delivery.queues(message.topic, timeout_s)
                await self._session.beat_new()
                system = request_properties(
                    correlation_id, self._session.members.client_id, timeout_s
                )
                encoded = encode_one(message, self._next_id(), self._options, system)
                await self._deliver(encoded, chooser, timeout_s)
                return await future
        except TimeoutError:
            raise OutcomeUnknown(f"no answer from {message.topic} in {timeout_s} s") from None
        finally:
            self._replies.forget(correlation_id)

    async def reply(
        self,
        request: StoredMessage | Received,
        body: object,
        *,
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Answer a message that was sent by `request`, here or in another language.

        Raises UsageError for a message that is no request, Refused when nobody waits any more,
        and as `send` does.
        """
        if not isinstance(request, Received):
            an_instance("request", request, StoredMessage)
        topic, system = reply_properties(request.properties)
        message = compose(topic, self._body(body, codec), user_properties=properties)
        encoded = encode_one(message, self._next_id(), self._options, system)
        encoded = dataclasses.replace(encoded, is_reply=True)
        given = request if isinstance(request, StoredMessage) else request.message
        at = given.broker_name

        def same_broker(queues: Sequence[MessageQueue]) -> MessageQueue:
            return next((queue for queue in queues if queue.broker_name == at), queues[0])

        return (await self._deliver(encoded, same_broker, timeout_s))[0]

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that the topic's messages go to. Raises Refused when it has none."""
        self._check_open()
        a_text("topic", topic)
        return await self._delivery.queues(
            self._session.namespace.topic(topic), self._options.timeout_s
        )

    # --- inside ------------------------------------------------------------------------------

    @property
    def delivery(self) -> Delivery:
        """What delivers its messages. For the blocking client, as all from here to `note`."""
        return self._delivery

    def ready(  # noqa: PLR0917  (what `send` is given)
        self,
        message: Message,
        due: Due | None,
        unique_key: str | None,
        order_key: str | None,
        queue: MessageQueue | None,
        selector: Callable[[Sequence[MessageQueue], Message], MessageQueue] | None,
    ) -> tuple[Encoded, Chooser | None]:
        """Return a message as it is sent, and its chooser; any thread may. Raises UsageError."""
        self._check_open()
        encoded = encode_one(message, unique_key or self._next_id(), self._options, due=due)
        return encoded, choose_by(message, order_key, queue, selector)

    def prepared(
        self,
        topic: str | Message,
        body: object,
        *,
        tag: str | None,
        keys: str | Iterable[str],
        properties: Mapping[str, str] | None,
        codec: Codec | None,
        delay: timedelta | float | None,
        at: datetime | None,
        order_key: str | None,
        queue: MessageQueue | None,
        promise: Promise,
        settled: Callable[[RoquetError | None], None],
    ) -> Submission:
        """Make a message ready for `accept`; any thread may."""
        self._check_open()
        message = self.composed(topic, body, tag, keys, user_properties=properties, codec=codec)
        due = due_of(delay, at)
        encoded = encode_one(message, self._next_id(), self._options, due=due)
        chooser = choose_by(message, order_key, queue, None)
        shares = self._options.batch_bytes > 0 and may_share(message, encoded)
        return Submission(encoded, chooser, promise, settled, shares, message.wait_store_ok)

    def accept(self, one: Submission) -> None:
        """Send what is prepared; whoever calls bounds how many are under way."""
        if self._open:
            self._accumulator.add(one)
        else:
            one.fail(not_started("producer"))

    def hasten(self) -> None:
        """Send what lingers now, without waiting for it."""
        self._accumulator.hasten()

    def note(self, error: RoquetError | None) -> None:
        """Keep a failure for `flush`, which raises the first."""
        self._failed = self._failed or error

    def _trace_recall(self, handle: RecallHandle, *, success: bool) -> None:
        if self._session.tracer is not None:
            self._session.tracer.recalled(
                self.group, handle.topic, handle.unique_key, success=success
            )

    def _settled(self, error: RoquetError | None) -> None:
        self.note(error)
        self._slots.release()

    async def _deliver(
        self, encoded: Encoded, chooser: Chooser | None, timeout_s: float | None
    ) -> list[SendReceipt]:
        self._check_open()
        a_time_s("timeout_s", timeout_s)
        return await self._delivery.deliver(encoded, chooser, timeout_s)

    def composed(
        self,
        topic: str | Message,
        body: object,
        tag: str | None,
        keys: str | Iterable[str],
        *,
        user_properties: Mapping[str, str] | None,
        delay_level: int = 0,
        codec: Codec | None,
    ) -> Message:
        """Return the message of a send's arguments, its topic with the namespace."""
        if isinstance(topic, Message):
            if codec is not None:
                raise UsageError("a whole Message has its body: a codec encodes values alone")
        else:
            body = self._body(body, codec)
        message = compose(
            topic, body, tag, keys, user_properties=user_properties, delay_level=delay_level
        )
        return self._session.namespace.message(message)

    def _body(self, body: object, codec: Codec | None) -> object:
        chosen = codec or self._options.codec
        return body if chosen is None else encoded_by(chosen, body)

    def _next_id(self) -> str:
        return self._ids.make(self._session.clock.now_ms())

    def _check_open(self) -> None:
        if not self._open:
            raise not_started("producer")
