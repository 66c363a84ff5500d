"""`roquet msg …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.lookup import found_by_id
from roquet.admin.matching import matcher
from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.base.times import shown_time, time_of
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.shown import message_fields, message_text
from roquet.protocol.names import COMMAND_LINE_GROUP

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin
    from roquet.client import MQ
    from roquet.model.message import StoredMessage


async def get(admin: Admin, options: argparse.Namespace) -> int:
    """Show one message with all that is kept of it."""
    for message in await found_by_id(admin, options.topic, options.id):
        if options.output != "table":
            output.one(message_fields(message), options.output)
        else:
            _show(message)
    return 0


async def recall(mq: MQ, admin: Admin, options: argparse.Namespace) -> int:
    """Take a delayed message back."""
    # A cluster that does not answer is said before anybody is asked.
    await admin.brokers.cluster()
    ask("the message would not be delivered", options)
    async with mq.producer(COMMAND_LINE_GROUP) as producer:
        await producer.recall(str(options.handle))
    output.line("taken back, unless it was due already")
    return 0


def _show(message: StoredMessage) -> None:
    where = message.broker_name or message.store_host
    rows = [
        ("topic", message.topic),
        ("place", f"{where} queue {message.queue_id} offset {message.queue_offset}"),
        ("id", message.unique_key or "-"),
        ("offset id", message.msg_id),
        ("stored", shown_time(message.store_timestamp)),
        ("born", f"{shown_time(message.born_timestamp)} at {message.born_host}"),
        ("size", f"{message.store_size} bytes"),
        ("tried again", str(message.reconsume_times)),
        *sorted(message.properties.items()),
    ]
    for name, value in rows:
        output.line(f"{name:<14}{output.plain(value)}")
    output.line("")
    output.line(message_text(message))


async def find(admin: Admin, options: argparse.Namespace) -> int:
    """Find messages by key, or by when they were stored."""
    now_ms = SystemClock().now_ms()
    begin = 0 if options.since is None else time_of(options.since, "--since")
    end = now_ms if options.until is None else time_of(options.until, "--until")
    wanted = matcher(tag=options.tags, sql=options.sql)
    if options.key == "":
        raise UsageError("--key is empty")
    if begin >= end:
        raise UsageError("--since is not before --until: nothing lies between")
    if options.key is not None:
        found = await admin.messages.by_key(
            options.topic, options.key, count=options.count, begin_ms=begin, end_ms=end
        )
        found = [it for it in found if wanted(it)]
    elif options.since is None:
        raise UsageError("give --key, or --since with a time: 10m, 2026-11-20T10:00")
    else:
        between = admin.messages.between(
            options.topic, begin, end, count=options.count, wanted=wanted
        )
        found = [message async for message in between]
        found.sort(key=lambda it: (it.store_timestamp, it.broker_name, it.queue_offset))
        del found[options.count :]
    if options.output != "table":
        for message in found:
            output.one(message_fields(message), options.output)
        return 0
    rows = [
        (
            shown_time(it.store_timestamp),
            it.broker_name,
            it.queue_id,
            it.queue_offset,
            it.unique_key or it.msg_id,
            output.plain(message_text(it))[:60],
        )
        for it in found
    ]
    output.listed(("stored", "broker", "queue", "offset", "id", "body"), rows, options.output)
    return 0
