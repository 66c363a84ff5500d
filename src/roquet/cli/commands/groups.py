"""`roquet group …`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.base.times import place_of, shown_time, some_time
from roquet.cli import output
from roquet.cli.commands.asking import ask
from roquet.cli.commands.brokers import say_when_none
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.codes import ResponseCode
from roquet.protocol.versions import describe

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin, SeekStep


async def ls(admin: Admin, options: argparse.Namespace) -> int:
    """List groups with their members and how far they are behind."""
    try:
        names = await admin.groups.names(system=options.everything)
    except NotFound:
        if (await admin.brokers.cluster()).brokers:
            raise
        names = []
    rows = [await _row(admin, name) for name in names]
    head = ("group", "members", "model", "lag")
    output.listed(head, rows, options.output, none="")
    if not names:
        await say_when_none(admin, options)
    return 0


async def _row(admin: Admin, group: str) -> tuple[str, int, str | None, int]:
    online = await admin.groups.connection(group)
    model = None
    if online is not None and online.message_model is not None:
        model = str(online.message_model).lower()
    return (
        group,
        0 if online is None else len(online.connections),
        model,
        await admin.groups.lag(group),
    )


async def get(admin: Admin, options: argparse.Namespace) -> int:
    """Show a group's configuration on each broker."""
    found = await admin.groups.get(options.group)
    if not found:
        raise _unknown(options.group)
    head = ("broker", "enabled", "retries", "ordered", "broadcast", "attributes")
    rows = [
        (
            broker,
            it.consume_enable,
            it.retry_max_times,
            it.consume_message_orderly,
            it.consume_broadcast_enable,
            dict(it.attributes),
        )
        for broker, it in found.items()
    ]
    output.listed(head, rows, options.output, {"group": options.group})
    return 0


async def members(admin: Admin, options: argparse.Namespace) -> int:
    """Show who of a group is connected."""
    online = await admin.groups.connection(options.group)
    if online is None:
        await _demand(admin, options.group)
    rows = [
        (it.client_id, it.client_address, it.language, describe(it.version))
        for it in (() if online is None else online.connections)
    ]
    head = ("client", "address", "language", "version")
    output.listed(head, rows, options.output, {"group": options.group}, none="")
    if online is None and options.output == "table":
        output.line(f"nobody of {options.group} is online")
    return 0


async def lag(admin: Admin, options: argparse.Namespace) -> int:
    """Show how far a group is in each queue; with --watch again and again."""
    while True:
        try:
            await _show_lag(admin, options)
        except (Unreachable, OutcomeUnknown) as error:
            if options.watch is None:
                raise
            output.error(str(error))
        if options.watch is None:
            return 0
        output.flush()
        await SystemClock().sleep(options.watch)


async def _show_lag(admin: Admin, options: argparse.Namespace) -> None:
    if options.topic is not None:
        await admin.topics.route(options.topic)
    offsets = await admin.groups.offsets(options.group, options.topic)
    if options.topic is not None or not offsets:
        await _demand(admin, options.group)
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            at.consumer_offset,
            at.broker_offset,
            max(0, at.broker_offset - at.consumer_offset),
            some_time(at.last_timestamp),
        )
        for queue, at in offsets.items()
    ]
    head = ("topic", "broker", "queue", "offset", "end", "lag", "last consumed")
    if options.watch is not None and options.output == "table":
        output.line(f"--- {shown_time(SystemClock().now_ms())}")
    output.listed(head, rows, options.output, {"group": options.group})
    if options.output == "table":
        output.line(f"lag of {options.group}: {sum(row[5] for row in rows)}")


async def create(admin: Admin, options: argparse.Namespace) -> int:
    """Create a group on every master."""
    if await admin.groups.get(options.group):
        text = f"there is a group {options.group}; to see it: roquet group get {options.group}"
        raise Refused(ResponseCode.INVALID_PARAMETER, text)
    config = SubscriptionGroupConfig(
        name=options.group,
        retry_max_times=options.retries,
        consume_message_orderly=options.order,
    )
    await admin.groups.put(config)
    output.line(f"{options.group}: created, {options.retries} retries")
    return 0


async def alter(admin: Admin, options: argparse.Namespace) -> int:
    """Change what is given of a group, on every master that has it."""
    found = await admin.groups.get(options.group)
    if not found:
        raise _unknown(options.group)
    retries, order, enabled = options.retries, options.order, options.enabled
    if retries is None and order is None and enabled is None:
        raise UsageError("nothing is to be changed: give --retries, --order or --enabled")
    for broker, config in found.items():
        changed = dataclasses.replace(
            config,
            retry_max_times=config.retry_max_times if retries is None else retries,
            consume_message_orderly=config.consume_message_orderly if order is None else order,
            consume_enable=config.consume_enable if enabled is None else enabled,
        )
        await admin.groups.put(changed, brokers=[broker])
        state = "enabled" if changed.consume_enable else "disabled"
        output.line(f"{options.group}: {changed.retry_max_times} retries, {state} on {broker}")
    return 0


async def rm(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a group, with --offsets also how far it was."""
    group = options.group
    await _demand(admin, group)
    online = await admin.groups.connection(group)
    count = 0 if online is None else len(online.connections)
    what = "its configuration and offsets" if options.offsets else "its configuration"
    ask(f"{group} ({count} members online) loses {what}", options, group)
    await admin.groups.delete(group, offsets=options.offsets)
    output.line(f"{group}: deleted")
    return 0


async def seek(admin: Admin, options: argparse.Namespace) -> int:
    """Let a group go on elsewhere; with --preview only show where."""
    if (options.to is None) == (options.by is None):
        raise UsageError("give either --to or --by")
    await admin.topics.route(options.topic)
    online = await admin.groups.connection(options.group)
    if online is None:
        await _demand(admin, options.group)
    queue = None if options.queue is None else _queue(options.queue)
    place = None if options.to is None else _place(options.to, one_queue=queue is not None)
    steps = await admin.groups.preview_seek(
        options.group, options.topic, place, by=options.by, queue=queue
    )
    if online is not None:
        output.error(
            f"members online: {len(online.connections)}; they commit every few seconds, so they may"
            " be further than shown, and go on elsewhere at their next poll, within 30 s"
        )
    if options.preview or options.dry_run:
        _show_steps(steps, options)
        return 0
    repeated = sum(max(0, it.repeated) for it in steps)
    skipped = sum(max(0, -it.repeated) for it in steps)
    ask(
        f"{options.group} would get {repeated} messages of {options.topic} again and skip"
        f" {skipped}",
        options,
    )
    await admin.groups.take_steps(options.group, options.topic, steps)
    _show_steps(steps, options)
    return 0


def _place(text: str, *, one_queue: bool) -> str | int:
    """Return where a seek goes; of one queue that may be an offset. Raises UsageError."""
    if not one_queue:
        return place_of(text)
    if text in ("earliest", "latest"):
        return text
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise UsageError(f"--to {text!r}: of one queue, earliest, latest or an offset")
    return int(text)


def _queue(text: str) -> tuple[str, int]:
    broker, _, number = text.rpartition(":")
    if not (broker and number.isascii() and number.isdigit() and len(number) < 6):
        raise UsageError(f"--queue {text!r}: should look like BROKER:0")
    return broker, int(number)


async def clone(admin: Admin, options: argparse.Namespace) -> int:
    """Give one group the offsets of another, once it is seen what that means."""
    source, target = options.group, options.target
    if source == target:
        raise UsageError(f"{source} is where it is already")
    topics = await admin.groups.topics(source)
    if options.topic is not None:
        await admin.topics.route(options.topic)
        topics = [it for it in topics if it == options.topic]
    if not topics:
        where = "" if options.topic is None else f" in {options.topic}"
        text = f"{source} has no offsets{where}; try: roquet group lag {source}"
        raise Refused(ResponseCode.QUERY_NOT_FOUND, text)
    online = await admin.groups.connection(target)
    if online is not None:
        count = len(online.connections)
        raise UsageError(f"{count} members of {target} are online, and would commit over it")
    ask(f"{target} would go on where {source} is in {', '.join(topics)}", options)
    if not await admin.groups.get(target):
        await admin.groups.put(target)
    for topic in topics:
        await admin.groups.clone_offsets(source, target, topic)
        output.line(f"{target} goes on where {source} is in {topic}")
    return 0


def _show_steps(steps: list[SeekStep], options: argparse.Namespace) -> None:
    rows = [
        (
            it.queue.broker_name,
            it.queue.queue_id,
            it.now,
            it.then,
            max(0, it.repeated),
            max(0, -it.repeated),
        )
        for it in steps
    ]
    head = ("broker", "queue", "now", "then", "again", "skipped")
    output.listed(head, rows, options.output, {"group": options.group, "topic": options.topic})


async def _demand(admin: Admin, group: str) -> None:
    """Raise Refused unless there is such a group."""
    if not await admin.groups.get(group):
        raise _unknown(group)


def _unknown(group: str) -> Refused:
    text = f"there is no group {group}; try: roquet group ls"
    return Refused(ResponseCode.QUERY_NOT_FOUND, text)
