"""`roquet pub`, `roquet sub` and `roquet cat`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from roquet.admin.matching import matcher
from roquet.base.errors import Refused, RoquetError, Unreachable, UsageError
from roquet.base.times import due_of
from roquet.cli import output
from roquet.cli.exits import EXIT_INTERRUPTED
from roquet.cli.messages.bodies import bodies
from roquet.cli.reach import Watched, client, helped, run
from roquet.cli.shown import message_fields, message_text
from roquet.client import ConsumerOptions, Sql
from roquet.protocol.codes import ResponseCode
from roquet.protocol.names import COMMAND_LINE_GROUP
from roquet.protocol.properties import TIMER_DELAY_MS, TIMER_DELIVER_MS

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Callable

    from roquet.client import MQ, PullConsumer, SendReceipt
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

POLL_S = 0.5
"""How long a wait for messages lasts before Ctrl-C is looked at."""
LAST_MAX = 100_000
"""The most messages that `cat -o -N` keeps in memory."""


def publish(options: argparse.Namespace) -> int:
    """Send messages; print where each lies."""
    properties = _properties(options.property) | _due(options)

    async def work(stop: asyncio.Event) -> int:
        async with client(options) as mq, mq.producer(COMMAND_LINE_GROUP) as producer:
            await _reach(mq, options)
            async for body in bodies(options, stop):
                receipt = await producer.send(
                    options.topic,
                    body,
                    tag=options.tag,
                    keys=options.key,
                    properties=properties,
                    order_key=options.order_key,
                )
                _show_place(receipt, as_json=options.as_json)
                if stop.is_set():
                    break
        return EXIT_INTERRUPTED if stop.is_set() else 0

    return run(work)


def _show_place(receipt: SendReceipt, *, as_json: bool) -> None:
    place = {
        "id": receipt.message_id,
        "broker": receipt.queue.broker_name,
        "queue": receipt.queue.queue_id,
        "offset": receipt.queue_offset,
        "status": str(receipt.status),
        "recall_handle": receipt.recall_handle,
    }
    if as_json:
        output.json_line(place)
        return
    if receipt.recall_handle is None:
        output.line("{id}  {broker} queue {queue} offset {offset}".format(**place))
    else:
        # Its place is one of a queue that nobody reads.
        output.line("{id}  {broker} waits; recall {recall_handle}".format(**place))
    sys.stdout.flush()


def _due(options: argparse.Namespace) -> dict[str, str]:
    """Return the property that says when a message is due. Raises UsageError."""
    if options.delay is not None and options.at is not None:
        raise UsageError("give --delay or --at, not both")
    flag = "--delay" if options.delay is not None else "--at"
    given = options.at if options.delay is None else options.delay
    if given is None:
        return {}
    time_ms, is_span = due_of(given, flag)
    return {TIMER_DELAY_MS if is_span else TIMER_DELIVER_MS: str(time_ms)}


def _properties(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--property {text!r}: should look like NAME=VALUE")
        found[name] = value
    return found


def subscribe(options: argparse.Namespace) -> int:
    """Consume as a member of a group, until Ctrl-C or enough."""

    async def work(stop: asyncio.Event) -> int:
        left = options.count
        subscriptions = {options.topic: _filter(options)}
        tuned = ConsumerOptions(on_error=_still_waiting)
        async with client(options) as mq:
            await _reach(mq, options)
            async with mq.consumer(
                options.group, subscriptions, start="earliest", options=tuned
            ) as consumer:
                while not stop.is_set() and left != 0:
                    received = await consumer.receive(timeout_s=POLL_S)
                    if received is None:
                        continue
                    _show(received.message, as_json=options.as_json)
                    received.ack()
                    if left is not None:
                        left -= 1
        return 0

    return run(work)


def _filter(options: argparse.Namespace) -> str | Sql:
    if options.sql is None:
        return str(options.tags)
    if options.tags != "*":
        raise UsageError("give --tags or --sql, not both")
    return Sql(options.sql)


def _still_waiting(error: RoquetError) -> None:
    sys.stderr.write(f"roquet: {error}; waiting for it, Ctrl-C ends\n")
    sys.stderr.flush()


def cat(options: argparse.Namespace) -> int:
    """Read a topic without marking anything as consumed, to its end or until Ctrl-C."""
    start = _start(options.offset)
    wanted = matcher(tag=options.tags, key=options.key, sql=options.sql)

    async def work(stop: asyncio.Event) -> int:
        async with client(options) as mq, mq.pull_consumer(COMMAND_LINE_GROUP) as consumer:
            await _reach(mq, options, must_exist=True)
            queues = await consumer.queues(options.topic)
            ends: dict[MessageQueue, int] = {}
            await consumer.assign(queues, start="latest")
            for queue in queues:
                first, ends[queue] = await consumer.bounds(queue)
                await consumer.seek(queue, _first(start, first, ends[queue]))
            if isinstance(start, int) and start < 0:
                for message in await _last(consumer, ends, -start, stop, wanted):
                    _show(message, as_json=options.as_json)
            while not stop.is_set():
                if options.end and _done(consumer, ends):
                    break
                for message in await consumer.poll(timeout_s=POLL_S):
                    if wanted(message) and (not options.end or _is_before(message, ends)):
                        _show(message, as_json=options.as_json)
        return 0

    return run(work)


async def _last(
    consumer: PullConsumer,
    ends: dict[MessageQueue, int],
    count: int,
    stop: asyncio.Event,
    wanted: Callable[[StoredMessage], bool],
) -> list[StoredMessage]:
    """Return those wanted of a topic's last messages, in the order of their storing.

    No queue has more than `count` of them, so that is what each is read for.
    """
    found: list[StoredMessage] = []
    while not stop.is_set() and not _done(consumer, ends):
        found += [it for it in await consumer.poll(timeout_s=POLL_S) if _is_before(it, ends)]
        found.sort(key=_stored)
        del found[:-count]
    return [it for it in found if wanted(it)]


def _stored(message: StoredMessage) -> tuple[int, str, int]:
    return message.store_timestamp, message.broker_name, message.physical_offset


def _is_before(message: StoredMessage, ends: dict[MessageQueue, int]) -> bool:
    place = (message.broker_name, message.queue_id)
    end = {(q.broker_name, q.queue_id): at for q, at in ends.items()}.get(place)
    return end is None or message.queue_offset < end


async def _reach(mq: MQ, options: argparse.Namespace, *, must_exist: bool = False) -> None:
    """Ask for the topic's route: a server that is away ends the command here.

    Raises Unreachable, and Refused for a topic that is not there when it must be.
    """
    try:
        await mq.admin(Watched).topics.route(options.topic)
    except Refused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST or must_exist:
            raise
    except Unreachable as error:
        raise helped(error) from error


def _done(consumer: PullConsumer, ends: dict[MessageQueue, int]) -> bool:
    return all(consumer.position(queue) >= end for queue, end in ends.items())


def _start(text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise UsageError(f"--offset {text!r}: must be earliest, latest, a number, or -N")
    found = int(text)
    if found < -LAST_MAX:
        raise UsageError(f"--offset {text!r}: at most the last {LAST_MAX}")
    return found


def _first(start: str | int, low: int, high: int) -> int:
    if isinstance(start, str):
        return low if start == "earliest" else high
    return min(max(start if start >= 0 else high + start, low), high)


def _show(message: StoredMessage, *, as_json: bool) -> None:
    if as_json:
        output.json_line(message_fields(message))
        return
    output.line(f"{message.queue_id}:{message.queue_offset}  {message_text(message)}")
    sys.stdout.flush()
