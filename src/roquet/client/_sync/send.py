"""The producer of the blocking client; see sync.py."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.client._sync.receive import Received
from roquet.client._sync_client import producer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from roquet.base.errors import RoquetError
    from roquet.client._sending import producer as _producer
    from roquet.client._sending.receipt import SendReceipt
    from roquet.client.codecs.base import Codec
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class Producer(producer.Producer):
    """Sends messages, blocking."""

    def __init__(self, inner: _producer.Producer, loop: LoopThread) -> None:
        """Wrap."""
        super().__init__(inner, loop)
        # The asyncio producer's own are for its loop alone.
        self._slots = threading.Semaphore(inner.in_flight_max)

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
