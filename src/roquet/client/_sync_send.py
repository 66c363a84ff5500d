"""The producer of the blocking client; see sync.py."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

from roquet.client._sync_client import producer
from roquet.client._sync_receive import Received

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta

    from roquet.client._sending.receipt import SendReceipt
    from roquet.client.codecs.base import Codec
    from roquet.model.message import Message, StoredMessage
    from roquet.model.queue import MessageQueue


class Producer(producer.Producer):
    """Sends messages, blocking."""

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
                codec=codec,
                delay=delay,
                at=at,
                order_key=order_key,
                queue=queue,
            )
            future.add_done_callback(finished)

        self._loop.run(submitting())
        return result

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
