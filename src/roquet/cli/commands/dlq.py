"""`roquet msg resend` and `roquet dlq …`: messages sent again, and those that groups gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.lookup import found_by_id
from roquet.admin.messages import origin_of
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.base.times import some_time, time_of
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.commands.brokers import say_when_none
from roquet.cli.exits import EXIT_REFUSED
from roquet.cli.shown import message_fields, message_text
from roquet.protocol import names
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from roquet.admin import Admin
    from roquet.model.message import StoredMessage

_RESULT = ("id", "to", "broker", "queue", "offset", "result")


async def resend(admin: Admin, options: argparse.Namespace) -> int:
    """Send a copy of one message."""
    (message, *_) = await found_by_id(admin, options.topic, options.id)
    target = options.to or origin_of(message)
    reader = "" if options.group is None else f", for {options.group} alone"
    ask(f"a copy of {options.id} would be sent to {target}{reader}", options)
    return await _send(admin, [message], options)


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List groups with messages that they gave up."""
    rows: list[tuple[str, int, str | None]] = []
    for topic in await admin.topics.names():
        if names.is_dlq(topic):
            bounds = (await admin.topics.offsets(topic)).values()
            count = sum(it.max_offset - it.min_offset for it in bounds)
            last = max((it.last_update for it in bounds), default=0)
            rows.append((topic.removeprefix(names.DLQ_PREFIX), count, some_time(last)))
    output.listed(("group", "messages", "last"), rows, options.output, none="")
    if not rows:
        await say_when_none(admin, options)
    return 0


async def show(admin: Admin, options: argparse.Namespace) -> int:
    """Show what a group gave up."""
    found = await _dead(admin, options)
    if options.output != "table":
        for message in found:
            output.one(
                message_fields(message) | {"origin_topic": origin_of(message)}, options.output
            )
        return 0
    rows = [
        (
            some_time(it.store_timestamp),
            origin_of(it),
            it.unique_key or it.msg_id,
            it.reconsume_times,
            output.plain(message_text(it))[:60],
        )
        for it in found
    ]
    output.listed(("stored", "topic", "id", "tries", "body"), rows, options.output)
    return 0


async def resend_dead(admin: Admin, options: argparse.Namespace) -> int:
    """Send what a group gave up again: to the group alone, or to a topic."""
    if bool(options.id) == options.everything:
        raise UsageError("give ids, or --all")
    found = await _dead(admin, options)
    if options.id:
        known = {it.unique_key or it.msg_id: it for it in found}
        known |= {it.msg_id: it for it in found}
        missing = [it for it in options.id if it not in known]
        if missing:
            text = f"{options.group} has not given up {missing[0][:80]}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
        found = [known[it] for it in options.id]
    where = options.to or f"{options.group} alone"
    ask(f"{len(found)} messages would be sent again, to {where}", options)
    if options.to is not None:
        options.group = None
    return await _send(admin, found, options)


async def _send(
    admin: Admin, messages: Iterable[StoredMessage], options: argparse.Namespace
) -> int:
    """Send each; show each result. A failure stops none of the others."""
    rows: list[tuple[object, ...]] = []
    failed = False
    for message in messages:
        name = message.unique_key or message.msg_id
        try:
            sent = await admin.messages.send_again(message, topic=options.to, group=options.group)
        except RoquetError as error:
            failed = True
            rows.append((name, None, None, None, None, output.plain(str(error))))
            continue
        queue = sent.queue
        place = (queue.topic, queue.broker_name, queue.queue_id, sent.queue_offset)
        rows.append((name, *place, "sent"))
        output.progress(f"{len(rows)} sent")
    output.listed(_RESULT, rows, options.output)
    return EXIT_REFUSED if failed else 0


async def _dead(admin: Admin, options: argparse.Namespace) -> list[StoredMessage]:
    topic = names.dlq_topic(options.group)
    try:
        await admin.topics.route(topic)
    except Refused as refusal:
        if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        text = f"{options.group} has given up nothing; try: roquet dlq ls"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, text) from refusal
    begin = 0 if options.since is None else time_of(options.since, "--since")
    end = SystemClock().now_ms() + 60_000
    found: list[StoredMessage] = []
    async for message in admin.messages.between(topic, begin, end, count=options.count):
        found.append(message)
        output.progress(f"{len(found)} read")
    found.sort(key=lambda it: (it.store_timestamp, it.queue_offset))
    return found[: options.count]
