"""Sending: one task a queue, batches one after the other, so each queue keeps the order of time."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from roquet.client import Message, ProducerOptions, Refused, connect
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from demo.flights import Departure
    from demo.ledger import Ledger
    from roquet.client import MessageQueue, Producer, SendReceipt

QUEUES = 8
BATCH = 128
TIMEOUT_S = 30.0
BUSY_PAUSE_S = 0.05
BUSY_TRIES = 200


class NotAcknowledged(Exception):  # noqa: N818
    """The broker has the message, but did not keep its whole promise."""


def queue_of(number: int, departure: Departure, queues: int = QUEUES) -> int:
    """Return the queue: by key, so that an aircraft's departures stay in order, else in turn."""
    if departure.key is None:
        return number % queues
    return zlib.crc32(departure.key.encode()) % queues


def send(
    name_servers: str,
    topic: str,
    departures: Sequence[Departure],
    ledger: Ledger,
    sent: Callable[[int], None],
) -> None:
    """Create the topic and send everything; `sent` hears of each batch's acknowledgement."""
    asyncio.run(_send(name_servers, topic, departures, ledger, sent))


async def _send(
    name_servers: str,
    topic: str,
    departures: Sequence[Departure],
    ledger: Ledger,
    sent: Callable[[int], None],
) -> None:
    by_queue: list[list[Departure]] = [[] for _ in range(QUEUES)]
    for number, departure in enumerate(departures):
        by_queue[queue_of(number, departure)].append(departure)
    options = ProducerOptions(timeout_s=TIMEOUT_S, compress_over=0)
    async with connect(name_servers) as mq:
        await mq.admin().topics.create(topic, queues=QUEUES)
        async with mq.producer("demo_producers", options=options) as producer:
            queues = await producer.queues(topic)
            async with asyncio.TaskGroup() as tasks:
                for queue in queues:
                    mine = by_queue[queue.queue_id]
                    tasks.create_task(_send_queue(producer, queue, mine, ledger, sent))


async def _send_queue(
    producer: Producer,
    queue: MessageQueue,
    departures: Sequence[Departure],
    ledger: Ledger,
    sent: Callable[[int], None],
) -> None:
    for begin in range(0, len(departures), BATCH):
        chunk = departures[begin : begin + BATCH]
        messages = [
            Message(queue.topic, it.body, it.tag, () if it.key is None else (it.key,))
            for it in chunk
        ]
        receipts = await _patiently(producer, queue, messages)
        for receipt, departure in zip(receipts, chunk, strict=True):
            if not receipt.is_durable:
                raise NotAcknowledged(f"{receipt.offset_id}: {receipt.status}")
            ledger.append(queue.broker_name, queue.queue_id, receipt.queue_offset, departure.body)
        sent(len(chunk))


async def _patiently(
    producer: Producer, queue: MessageQueue, messages: Sequence[Message]
) -> list[SendReceipt]:
    """Send a batch, again while the broker says that it is busy: then nothing was stored."""
    for _ in range(BUSY_TRIES):
        try:
            return await producer.send_batch(queue.topic, messages, queue=queue)
        except Refused as error:
            if error.code != ResponseCode.SYSTEM_BUSY:
                raise
        await asyncio.sleep(BUSY_PAUSE_S)
    raise TimeoutError("the broker stays busy")
