"""Messages of a queue, units of a consume queue and traces, as RocketMQ's tool prints them."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, Refused, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.messages import message_line
from roquet.cli.mqadmin.shared import (
    charset,
    java_bool,
    java_time,
    moment,
    number,
    pretty,
    queue_text,
    truth,
)
from roquet.model.queue import MessageQueue
from roquet.protocol import tags
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages.trace_lines import decode
from roquet.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator

    from roquet.admin import Admin
    from roquet.model.message import StoredMessage
    from roquet.protocol.bodies.stats import TopicOffset
    from roquet.protocol.messages.trace_lines import Event

_AT_ONCE = 32
_END = "=" * 38


# --- messages ------------------------------------------------------------------------------------


async def print_msg_by_queue(admin: Admin, options: argparse.Namespace) -> int:
    """Print the messages of one queue, with -f how many have each tag."""
    wanted = tags.subscribe(options.topic, options.subExpression)
    queue = MessageQueue(options.topic, options.brokerName, number(options.queueId, "-i", 0))
    bounds = await _bounds(admin, queue)
    begin, end = await _span(admin, queue, bounds, options)
    counts = collections.Counter[str]()
    shown = truth(options.print_msg, default=False)
    as_text = charset(options.charsetName, "-c")
    bodies = as_text if truth(options.printBody, default=False) else None
    async for found in _batches(admin, queue, begin, end):
        for message in found:
            if not wanted.takes_tag(message.tag):
                continue
            if message.tag:
                counts[message.tag] += 1
            if shown:
                output.line(message_line(message, _added(bounds), bodies=bodies))
    if truth(options.calculate, default=False):
        for tag, count in counts.most_common():
            output.line(f"Tag: {output.plain(tag):<30} Count: {count}")
    return 0


async def consume_message(admin: Admin, options: argparse.Namespace) -> int:
    """Print messages of a topic, of one queue, or from an offset on."""
    count = number(options.MessageNumber, "-c", 128)
    if count <= 0:
        raise UsageError("-c has to be positive")
    if options.queueId is not None and options.brokerName is None:
        raise UsageError("-i needs -b: the broker of the queue")
    if options.offset is not None and options.queueId is None:
        raise UsageError("-o needs -i: the queue")
    _check_times(options)
    group = options.consumerGroup
    if options.queueId is None:
        await _consume_topic(admin, options, count, group)
        return 0
    number_ = number(options.queueId, "-i", 0)
    queue = MessageQueue(options.topic, options.brokerName, number_)
    bounds = await _bounds(admin, queue)
    begin, end = await _span(admin, queue, bounds, options)
    offset = number(options.offset, "-o", 0)
    if offset > end:
        output.line(f"{queue_text(queue)} no matched msg, offset={offset}")
        return 0
    begin = max(begin, offset)
    if end - begin > count:
        output.line(f"The oldler {count} message will be provided")
        end = begin + count - 1
    await _consume(admin, queue, bounds, (begin, end), group)
    return 0


async def _consume_topic(
    admin: Admin, options: argparse.Namespace, count: int, group: str | None
) -> None:
    left = count
    for queue, bounds in (await admin.topics.offsets(options.topic)).items():
        if left <= 0:
            return
        begin, end = await _span(admin, queue, bounds, options)
        if end - begin > left:
            output.line(f"The older {left} message of the {queue.queue_id} queue will be provided")
            end, left = begin + left - 1, 0
        else:
            left -= end - begin + 1
        await _consume(admin, queue, bounds, (begin, end), group)


async def _consume(
    admin: Admin,
    queue: MessageQueue,
    bounds: TopicOffset,
    span: tuple[int, int],
    group: str | None,
) -> None:
    """Print messages from the first offset to the last; say so where the queue ends before."""
    begin, end = span
    at = begin
    async for found in _batches(admin, queue, begin, end + 1, group):
        output.line("Consume ok")
        for message in found:
            output.line(message_line(message, _added(bounds), bodies="utf-8"))
        at = found[-1].queue_offset + 1
    if at <= end:
        output.line(f"{queue_text(queue)} print msg finished. status=NO_NEW_MSG, offset={at}")


async def _batches(
    admin: Admin, queue: MessageQueue, begin: int, end: int, group: str | None = None
) -> AsyncGenerator[list[StoredMessage]]:
    """Yield the messages from `begin` to before `end`, as many as one pull gives at a time."""
    at = begin
    while at < end:
        count = min(_AT_ONCE, end - at)
        found = await admin.messages.at(queue, at, count, group=group)
        found = [it for it in found if it.queue_offset < end]
        if not found:
            return
        yield found
        at = found[-1].queue_offset + 1


async def _bounds(admin: Admin, queue: MessageQueue) -> TopicOffset:
    found = (await admin.topics.offsets(queue.topic)).get(queue)
    if found is None:
        raise NotFound(f"{queue.topic} has no queue {queue.queue_id} on {queue.broker_name[:80]}")
    return found


async def _span(
    admin: Admin, queue: MessageQueue, bounds: TopicOffset, options: argparse.Namespace
) -> tuple[int, int]:
    """Return the first offset and the one after the last of the times that are asked for."""
    begin, end = bounds.min_offset, bounds.max_offset
    since = moment(options.beginTimestamp, "the begin", 0)
    until = moment(options.endTimestamp, "the end", 0)
    if since > 0:
        begin = await admin.topics.offset_at(queue, since)
    if until > 0:
        end = await admin.topics.offset_at(queue, until)
    return begin, end


def _check_times(options: argparse.Namespace) -> None:
    now = SystemClock().now_ms()
    begin = moment(options.beginTimestamp, "-s", 0)
    end = moment(options.endTimestamp, "-e", 0)
    for flag, time_ms in (("-s", begin), ("-e", end)):
        if time_ms > now:
            raise UsageError(f"{flag} has to be before now")
    if options.endTimestamp is not None and begin > end:
        raise UsageError("-s has to be before -e")


def _added(bounds: TopicOffset) -> dict[str, str]:
    """Return what a pull of Java's client adds to the properties of a message."""
    return {"MIN_OFFSET": str(bounds.min_offset), "MAX_OFFSET": str(bounds.max_offset)}


# --- units of a consume queue --------------------------------------------------------------------


async def query_cq(admin: Admin, options: argparse.Namespace) -> int:
    """Print units of a consume queue, and whether a group's filter takes them."""
    index, count = number(options.index, "-i", 0), number(options.count, "-c", 10)
    broker = None if options.broker is None else options.broker.strip()
    if broker is None:
        route = await admin.topics.route(options.topic)
        broker = next((it.master for it in route.brokers if it.master is not None), None)
        if broker is None:
            raise NotFound(f"{options.topic[:80]} has no master now")
    queue = MessageQueue(options.topic, broker, number(options.queue, "-q", 0))
    found = await admin.topics.units(queue, index, count, group=options.consumer, broker=broker)
    if found is None:
        text = f"queue {queue.queue_id} of {options.topic[:80]} has no unit {index}"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
    if found.get("subscriptionData") is not None:
        text = pretty(found["subscriptionData"])
        for name in ("codeSet", "tagsSet"):  # how Java prints a set that is empty
            text = text.replace(f'"{name}":[]', f'"{name}":[\n\t]')
        output.line(f"Subscription data: \n{text}\n{_END}")
    if found.get("filterData") is not None:
        output.line(f"Filter data: \n{output.plain(str(found['filterData']))}\n{_END}")
    bounds = f"max: {found.get('maxQueueIndex')}, min: {found.get('minQueueIndex')}"
    output.line(f"Queue data: \n{bounds}\n{_END}")
    for place, unit in enumerate(found.get("queueData") or (), index):
        output.line(f"idx: {place}\n{_unit(unit)}\n{_END}")
    return 0


def _unit(unit: dict[str, Any]) -> str:
    def text(name: str) -> str:
        value = unit.get(name)
        return "null" if value is None else output.plain(str(value))

    return (
        f"ConsumeQueueData{{physicOffset={text('physicOffset')}, physicSize={text('physicSize')},"
        f" tagsCode={text('tagsCode')}, extendDataJson='{text('extendDataJson')}',"
        f" bitMap='{text('bitMap')}', eval={java_bool(unit.get('eval'))}, msg='{text('msg')}'}}"
    )


# --- traces --------------------------------------------------------------------------------------

_STEP = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}"


async def query_msg_trace_by_id(admin: Admin, options: argparse.Namespace) -> int:
    """Print who sent a message and which groups consumed it, as clients that trace have said."""
    name, topic = options.msgId.strip(), options.traceTopic or TRACE_TOPIC
    found = await admin.messages.by_key(
        topic,
        name,
        count=number(options.maxNum, "-c", 64),
        begin_ms=number(options.beginTimestamp, "-b", 0),
        end_ms=number(options.endTimestamp, "-e", 2**63 - 1),
    )
    events = [
        (event, message.born_host.rpartition(":")[0])
        for message in found
        for event in decode(message.body)
        if event.msg_id == name
    ]
    if not events:
        text = f"{topic[:80]} has nothing of {name[:80]}: do its clients trace?"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
    for event, host in events:
        if event.kind == "Pub":
            _steps("Pub", "#ProducerGroup", "#SendTime", [(event, host)])
    groups: dict[str, list[tuple[Event, str]]] = {}
    for event, host in events:
        if event.kind == "SubAfter":
            groups.setdefault(event.group or "null", []).append((event, host))
    for steps in groups.values():
        _steps("Sub", "#ConsumerGroup", "#ConsumerTime", steps)
    return 0


def _steps(kind: str, group: str, time: str, steps: list[tuple[Event, str]]) -> None:
    output.line(_STEP.format("#Type", group, "#ClientHost", time, "#CostTimes", "#Status"))
    for event, host in steps:
        output.line(
            _STEP.format(
                kind,
                output.plain(event.group or "null"),
                host,
                java_time(event.at_ms or 0, millis=False),
                f"{event.cost_ms or 0}ms",
                "success" if event.success else "failed",
            )
        )
    output.line("")
