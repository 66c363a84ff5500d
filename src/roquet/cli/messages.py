"""`roquet pub`, `roquet sub` and `roquet cat`."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

from roquet.base.errors import UsageError
from roquet.base.log import configure, safe
from roquet.cli import output
from roquet.client import connect
from roquet.protocol.hosts import split_addresses
from roquet.service import runtime

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Iterator

    from roquet.client import MQ, PullConsumer
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

COUNT = "{{count}}"
GROUP = "roquet_cli"
POLL_S = 0.5
"""How long a wait for messages lasts before Ctrl-C is looked at."""
LINE_MAX = 4 * 1024 * 1024


def publish(options: argparse.Namespace) -> int:
    """Send messages; print where each lies."""

    async def work(stop: asyncio.Event) -> int:
        async with _mq(options) as mq, mq.producer(GROUP) as producer:
            for body in _bodies(options.body, options.count):
                if stop.is_set():
                    break
                receipt = await producer.send(
                    options.topic, body, tag=options.tag, keys=options.key
                )
                place = {
                    "id": receipt.message_id,
                    "broker": receipt.queue.broker_name,
                    "queue": receipt.queue.queue_id,
                    "offset": receipt.queue_offset,
                    "status": str(receipt.status),
                }
                if options.as_json:
                    output.json_line(place)
                else:
                    output.line("{id}  {broker} queue {queue} offset {offset}".format(**place))
        return 0

    return _run(work)


def _bodies(body: str | None, count: int) -> Iterator[str]:
    """Give the body so often, counted from 1; or each line of input."""
    if body is not None:
        for number in range(1, count + 1):
            yield body.replace(COUNT, str(number))
        return
    while line := sys.stdin.readline(LINE_MAX):
        yield line.rstrip("\n")


def subscribe(options: argparse.Namespace) -> int:
    """Consume as a member of a group, until Ctrl-C or enough."""

    async def work(stop: asyncio.Event) -> int:
        left = options.count
        subscriptions = {options.topic: options.tags}
        async with (
            _mq(options) as mq,
            mq.consumer(options.group, subscriptions, start="earliest") as consumer,
        ):
            while not stop.is_set() and left != 0:
                received = await consumer.receive(timeout_s=POLL_S)
                if received is None:
                    continue
                _show(received.message, as_json=options.as_json)
                received.ack()
                if left is not None:
                    left -= 1
        return 0

    return _run(work)


def cat(options: argparse.Namespace) -> int:
    """Read a topic without marking anything as consumed, to its end or until Ctrl-C."""
    start = _start(options.offset)

    async def work(stop: asyncio.Event) -> int:
        async with _mq(options) as mq, mq.pull_consumer(GROUP) as consumer:
            queues = await consumer.queues(options.topic)
            ends: dict[MessageQueue, int] = {}
            await consumer.assign(queues, start="latest")
            for queue in queues:
                first, ends[queue] = await consumer.bounds(queue)
                await consumer.seek(queue, _first(start, first, ends[queue]))
            while not stop.is_set():
                if options.end and _done(consumer, ends):
                    break
                for message in await consumer.poll(timeout_s=POLL_S):
                    place = (message.broker_name, message.queue_id)
                    end = {(q.broker_name, q.queue_id): at for q, at in ends.items()}.get(place)
                    if not options.end or end is None or message.queue_offset < end:
                        _show(message, as_json=options.as_json)
        return 0

    return _run(work)


def _done(consumer: PullConsumer, ends: dict[MessageQueue, int]) -> bool:
    return all(consumer.position(queue) >= end for queue, end in ends.items())


def _start(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise UsageError(f"--offset {text!r}: must be earliest, latest, a number, or -N")
    return int(text)


def _first(start: str | int, low: int, high: int) -> int:
    if isinstance(start, str):
        return low if start == "earliest" else high
    return min(max(start if start >= 0 else high + start, low), high)


def _show(message: StoredMessage, *, as_json: bool) -> None:
    try:
        text: str | None = message.body.decode()
    except UnicodeDecodeError:
        text = None
    if not as_json:
        shown = repr(message.body) if text is None else safe(text, None)
        output.line(f"{message.queue_id}:{message.queue_offset}  {shown}")
        sys.stdout.flush()
        return
    found: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "id": message.unique_key or message.msg_id,
        "stored_ms": message.store_timestamp,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
    }
    if text is None:
        found["body_base64"] = base64.b64encode(message.body).decode()
    else:
        found["body"] = text
    output.json_line(found)


def _mq(options: argparse.Namespace) -> MQ:
    try:
        addresses = split_addresses(options.namesrv)
    except ValueError as error:
        raise UsageError(f"--namesrv: {error}") from error
    return connect("rmq://" + ";".join(addresses))


def _run(work: Any) -> int:
    configure("ERROR")
    return runtime.run(work)
