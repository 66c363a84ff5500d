"""The producer of the blocking client; see sync.py."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING

from roquet.base.arguments import a_time_s
from roquet.base.errors import UsageError
from roquet.client._sending.due import due_of
from roquet.client._sync.receive import Received
from roquet.client._sync_client import producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from roquet.base.errors import RoquetError
    from roquet.client._sending import producer as _producer
    from roquet.client._sending.receipt import SendReceipt
    from roquet.client._sync.sockets import Sockets
    from roquet.client.codecs.base import Codec
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class Producer(producer.Producer):
    """Sends messages, blocking."""

    def __init__(self, inner: _producer.Producer, loop: LoopThread, sockets: Sockets) -> None:
        """Wrap; `sockets` are for plain sends."""
        super().__init__(inner, loop)
        self._sockets = sockets
        self._goes_ahead = False
        """Whether something was sent without waiting: what follows has to stay behind it."""
        # The asyncio producer's own are for its loop alone.
        self._slots = threading.Semaphore(inner.in_flight_max)

    def send(
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
        self._loop.check()
        inner = self._inner
        a_time_s("timeout_s", timeout_s)
        message = inner.composed(
            topic,
            body,
            tag,
            keys,
            user_properties=properties,
            delay_level=delay_level,
            codec=codec,
        )
        ready = inner.ready(message, due_of(delay, at), unique_key, order_key, queue, selector)
        within_s = inner.timeout_s if timeout_s is None else timeout_s
        if self._goes_ahead:
            return self._loop.run(inner.delivery.deliver(*ready, within_s))[0]
        return self._sockets.deliver(inner.delivery, *ready, within_s)

    def submit(
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
    ) -> concurrent.futures.Future[SendReceipt]:
        """Begin a send and return the future of its receipt; waits while too many are under way.

        Batches, order, failures and arguments are as in `roquet.Producer.submit`.
        """
        self._loop.check()
        self._goes_ahead = True
        promise: concurrent.futures.Future[SendReceipt] = concurrent.futures.Future()
        one = self._inner.prepared(
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
            promise=promise,
            settled=self._settled,
        )
        if not self._slots.acquire(blocking=False):
            self._loop.post(self._inner.hasten)
            self._slots.acquire()
        try:
            self._loop.post(lambda: self._inner.accept(one))
        except UsageError:
            self._slots.release()
            raise
        return promise

    def send_one_way(
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
        self._goes_ahead = True
        self._loop.run(
            self._inner.send_one_way(
                topic, body, tag=tag, keys=keys, properties=properties, codec=codec, queue=queue
            )
        )

    def _settled(self, error: RoquetError | None) -> None:
        self._inner.note(error)
        self._slots.release()

    def reply(
        self,
        request: StoredMessage | Received,
        body: object,
        *,
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        timeout_s: float | None = None,
    ) -> SendReceipt:
        """Answer a message that was sent by `request`."""
        given = request.message if isinstance(request, Received) else request
        return self._loop.run(
            self._inner.reply(given, body, properties=properties, codec=codec, timeout_s=timeout_s)
        )
