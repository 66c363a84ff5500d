"""Messages, as RocketMQ's tool looks them up, prints and sends them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.members import is_push
from roquet.cli.mqadmin.shared import (
    charset,
    java_bool,
    java_map,
    java_order,
    java_time,
    moment,
    number,
    queue_text,
    text_of,
    truth,
)
from roquet.model.queue import MessageQueue
from roquet.protocol import tags
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Mapping

    from roquet.admin import Admin
    from roquet.model.message import StoredMessage

    _Read = tuple[MessageQueue, int, tuple[int, int], list[StoredMessage]]

BODIES = Path("/tmp/rocketmq/msgbodys")  # noqa: S108  (where RocketMQ's tool writes them)
_PROPERTIES_CAPACITY = 128
_HOUR_MS = 3_600_000
_LIGHT_MAX = 1_000_000


async def query_msg_by_id(admin: Admin, options: argparse.Namespace) -> int:
    """Print messages by their offset ids, send them again, or have one member consume them."""
    names = [name.strip() for name in options.msgId.split(",") if name.strip()]
    if options.consumerGroup is not None and options.clientId is not None:
        for name in names:
            await _push(admin, options, await admin.messages.by_offset_id(name))
        return 0
    if options.sendMessage is not None:
        for name in names if truth(options.sendMessage, default=False) else ():
            message = await admin.messages.by_offset_id(name)
            again = await admin.messages.send_again(message)
            output.line(
                f"prepare resend msg. originalMsgId={name}"
                f"SendResult [sendStatus=SEND_OK, msgId={message.unique_key or message.msg_id},"
                f" offsetMsgId={again.offset_id}, messageQueue={queue_text(again.queue)},"
                f" queueOffset={again.queue_offset}, recallHandle=null]"
            )
        return 0
    as_text = None if options.bodyFormat is None else charset(options.bodyFormat, "-f")
    for name in names:
        await _details(admin, await admin.messages.by_offset_id(name), as_text=as_text)
    return 0


async def _push(admin: Admin, options: argparse.Namespace, message: StoredMessage) -> None:
    """Have one member of a group consume a message now; print what it says."""
    group, client = options.consumerGroup.strip(), options.clientId.strip()
    info = await admin.groups.running_info(group, client)
    if not is_push(info):
        raise UsageError(f"this {client[:80]} client is not push consumer, not support direct push")
    said = await admin.messages.consume_directly(group, client, message)
    output.line(
        f"ConsumeMessageDirectlyResult [order={java_bool(said.order)},"
        f" autoCommit={java_bool(said.auto_commit)}, consumeResult={output.plain(said.result)},"
        f" remark={'null' if said.remark is None else output.plain(said.remark)},"
        f" spentTimeMills={said.spent_ms}]"
    )


async def query_msg_by_offset(admin: Admin, options: argparse.Namespace) -> int:
    """Print the message at a queue offset."""
    queue = MessageQueue(options.topic, options.brokerName, number(options.queueId, "-i", 0))
    found = await admin.messages.at(queue, number(options.offset, "-o", 0))
    if not found:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"{queue} has no message at {options.offset}")
    bounds = (await admin.topics.offsets(options.topic))[queue]
    places = {"MIN_OFFSET": str(bounds.min_offset), "MAX_OFFSET": str(bounds.max_offset)}
    carried = {**found[0].properties, **places}
    as_text = None if options.bodyFormat is None else charset(options.bodyFormat, "-f")
    message = dataclasses.replace(found[0], properties=carried)
    await _details(admin, message, as_text=as_text)
    return 0


async def query_msg_by_unique_key(admin: Admin, options: argparse.Namespace) -> int:
    """Print messages by the id that the producer made, or have one member consume one."""
    found = await admin.messages.by_id(
        options.topic,
        options.msgId,
        begin_ms=number(options.startTime, "-s", 0),
        end_ms=number(options.endTime, "-e", 2**63 - 1),
    )
    if not found:
        raise Refused(ResponseCode.QUERY_NOT_FOUND, f"{options.topic} has no {options.msgId[:80]}")
    if options.consumerGroup is not None and options.clientId is not None:
        await _push(admin, options, found[0])
        return 0
    for message in found if options.showAll else found[:1]:
        await _details(admin, message, is_by_id=True)
    return 0


async def query_msg_by_key(admin: Admin, options: argparse.Namespace) -> int:
    """Print where messages with a key are."""
    kind = "K" if options.keyType is None else options.keyType.strip()
    if kind not in ("K", "T"):
        raise UsageError(f"-p {kind[:40]!r}: K, keys, or T, tags")
    found = await admin.messages.by_key(
        options.topic,
        options.msgKey,
        count=number(options.maxNum, "-m", 64),
        begin_ms=number(options.beginTimestamp, "-b", 0),
        end_ms=number(options.endTimestamp, "-e", 2**63 - 1),
        by_tag=kind == "T",
    )
    if not found:
        raise Refused(
            ResponseCode.QUERY_NOT_FOUND, "query message by key finished, but no message."
        )
    widths = "{:<50} {:>4} {:>40} {}"
    output.line(widths.format("#Message ID", "#QID", "#Offset", "#IndexKey"))
    for it in found:
        name = it.unique_key or it.msg_id
        hour = it.store_timestamp // _HOUR_MS * _HOUR_MS
        key = f"{hour}@{it.topic}@{kind}@{options.msgKey}@{name}@{it.physical_offset}"
        output.line(widths.format(name, it.queue_id, it.queue_offset, key))
    return 0


async def print_msg(admin: Admin, options: argparse.Namespace) -> int:
    """Print the messages of a topic, queue by queue."""
    wanted = tags.subscribe(options.topic, options.subExpression)
    bodies = charset(options.charsetName, "-c") if truth(options.printBody, default=True) else None
    begin = moment(options.beginTimestamp, "-b", 0)
    end = moment(options.endTimestamp, "-e", 2**63 - 1)
    is_light = options.lmqParentTopic is not None
    reads = _light_reads if is_light else _reads
    async for queue, low, (first, last), found in reads(admin, options.topic, begin):
        output.line(f"minOffset={low}, maxOffset={last}, {queue_text(queue)}")
        for message in found:
            if message.store_timestamp <= end and wanted.takes_tag(message.tag):
                bounds = {"MIN_OFFSET": str(first), "MAX_OFFSET": str(last)}
                output.line(message_line(message, bounds, bodies=bodies))
        output.line("-" * 56)
    return 0


async def _reads(admin: Admin, topic: str, begin: int) -> AsyncGenerator[_Read]:
    """Yield each queue: where reading begins, its bounds, and the messages from there on."""
    starts = await admin.topics.offsets_at(topic, begin) if begin else {}
    for queue, at in (await admin.topics.offsets(topic)).items():
        low = starts.get(queue, at.min_offset)
        found = await admin.messages.at(queue, low, max(0, at.max_offset - low))
        yield queue, low, (at.min_offset, at.max_offset), found


async def _light_reads(admin: Admin, topic: str, begin: int) -> AsyncGenerator[_Read]:
    """Yield what `_reads` does for a light queue, which each broker of its parent may have.

    No broker tells the bounds of a light queue with those of topics, so it is read to its end.
    """
    for broker in (await admin.topics.route(topic)).brokers:
        if broker.master is None:
            continue
        queue = MessageQueue(topic, broker.broker_name, 0)
        low = await admin.topics.offset_at(queue, begin)
        found = await admin.messages.at(queue, low, _LIGHT_MAX)
        end = found[-1].queue_offset + 1 if found else low
        yield queue, low, (low, end), found


def message_line(message: StoredMessage, bounds: Mapping[str, str], *, bodies: str | None) -> str:
    """Return a message as the tool prints it in one line.

    `bounds`: what a pull adds to it; `bodies`: the character set of bodies, None to leave them out.
    """
    name = message.unique_key or message.msg_id
    octets = ", ".join(str(it - 256 if it > 127 else it) for it in message.body)
    shown = "NOT PRINT BODY" if bodies is None else text_of(message.body, bodies)
    whole = message_ext(message, {**message.properties, **bounds}, f"[{octets}]")
    return f"MSGID: {name} {whole} BODY: {shown}"


def message_ext(message: StoredMessage, carried: Mapping[str, str], body: str) -> str:
    """Return a message with these properties as a MessageExt's toString does."""
    transaction = message.properties.get("__transactionId__", "null")
    properties = output.plain(java_map(carried, _PROPERTIES_CAPACITY))
    return (
        f"MessageExt [brokerName={message.broker_name or 'null'},"
        f" queueId={message.queue_id}, storeSize={message.store_size},"
        f" queueOffset={message.queue_offset}, sysFlag={message.sys_flag},"
        f" bornTimestamp={message.born_timestamp}, bornHost=/{message.born_host},"
        f" storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host},"
        f" msgId={message.msg_id}, commitLogOffset={message.physical_offset},"
        f" bodyCRC={message.body_crc}, reconsumeTimes={message.reconsume_times},"
        f" preparedTransactionOffset={message.prepared_transaction_offset},"
        f" toString()=Message{{topic='{message.topic}', flag={message.flag},"
        f" properties={properties},"
        f" body={body}, transactionId='{output.plain(transaction)}'}}]"
    )


async def _details(
    admin: Admin, message: StoredMessage, *, is_by_id: bool = False, as_text: str | None = None
) -> None:
    file = _body_file(message)
    rows = [
        *([] if is_by_id else [("OffsetID", message.msg_id)]),
        ("Topic", message.topic),
        ("Tags", f"[{'null' if message.tag is None else message.tag}]"),
        ("Keys", f"[{message.properties.get('KEYS', 'null')}]"),
        ("Queue ID", message.queue_id),
        ("Queue Offset", message.queue_offset),
        ("CommitLog Offset", message.physical_offset),
        ("Reconsume Times", message.reconsume_times),
        ("Born Timestamp", java_time(message.born_timestamp, millis=True)),
        ("Store Timestamp", java_time(message.store_timestamp, millis=True)),
        ("Born Host", message.born_host),
        ("Store Host", message.store_host),
        ("System Flag", message.sys_flag),
        ("Properties", java_map(message.properties, _PROPERTIES_CAPACITY)),
        ("Message Body Path", file),
    ]
    for name, value in rows:
        output.line(f"{name + ':':<20} {output.plain(str(value))}")
    if as_text is not None:
        output.line(f"{'Message Body:':<20} {text_of(message.body, as_text)}")
    tracks = await _tracks(admin, message)
    output.line("")
    output.line(("" if is_by_id else "\n").join(tracks) if tracks else "\nWARN: No Consumer")


def _body_file(message: StoredMessage) -> str:
    """Write the body where the tool writes it, and return where; say so when it cannot be."""
    file = BODIES / (message.unique_key or message.msg_id).replace("/", "_")
    try:
        BODIES.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The folder is one that everybody may write to: no link is followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        descriptor = os.open(file, flags, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(message.body)
    except (OSError, ValueError) as error:
        return f"not written: {error}"
    return str(file)


async def _tracks(admin: Admin, message: StoredMessage) -> list[str]:
    """Return what became of a message in each group, as the tool judges it."""
    found: list[str] = []
    for group in java_order(await admin.topics.groups(message.topic)):
        kind, text = await _track(admin, group, message)
        found.append(
            f"MessageTrack [consumerGroup={group}, trackType={kind}, exceptionDesc={text}]"
        )
    return found


async def _track(admin: Admin, group: str, message: StoredMessage) -> tuple[str, str]:
    online = await admin.groups.connection(group)
    if online is None:
        return "NOT_ONLINE", f"CODE:206 DESC:the consumer group[{group}] not online"
    if not str(online.consume_type).endswith("PASSIVELY"):
        return "PULL", "null"
    if str(online.message_model) == "BROADCASTING":
        return "CONSUME_BROADCASTING", "null"
    offsets = await admin.groups.offsets(group, message.topic)
    consumed = any(
        queue.queue_id == message.queue_id
        and message.broker_name in ("", queue.broker_name)
        and at.consumer_offset > message.queue_offset
        for queue, at in offsets.items()
    )
    if not consumed:
        return "NOT_CONSUME_YET", "null"
    subscription = online.subscriptions.get(message.topic)
    if subscription is not None and not subscription.takes_tag(message.tag):
        return "CONSUMED_BUT_FILTERED", "null"
    return "CONSUMED", "null"
