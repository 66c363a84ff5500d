"""Messages that RocketMQ's tool sends: one, or many whose latency it prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import NotFound, RoquetError, UsageError
from roquet.cli import output
from roquet.cli.exits import EXIT_REFUSED
from roquet.cli.mqadmin.shared import number, queue_text, truth
from roquet.cli.reach import client
from roquet.model.queue import MessageQueue

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin
    from roquet.client import Producer, SendReceipt

_GROUP = "roquet_mqadmin"
_WORD = b"hello jodie"
_ROW = "{:<32}  {:<4}  {:<20}    {}"
_CHINA = timezone(timedelta(hours=8))
"""The tool writes its log of latencies in this zone wherever it runs."""


async def send_message(admin: Admin, options: argparse.Namespace) -> int:
    """Send one message."""
    del admin
    if options.qid is not None and options.broker is None:
        raise UsageError("-i needs -b: the broker of the queue")
    queue = None
    if options.broker is not None and options.qid is not None:
        queue = MessageQueue(options.topic.strip(), options.broker, number(options.qid, "-i", 0))
    traced = truth(options.msgTraceEnable, default=False)
    async with client(options, trace=traced) as mq, mq.producer(_GROUP) as producer:
        receipt = await producer.send(
            options.topic.strip(),
            options.body.strip().encode(errors="surrogateescape"),
            tag=options.tags,
            keys=() if options.key is None else options.key.split(),
            queue=queue,
        )
    output.line(_ROW.format("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    place = receipt.queue
    row = (place.broker_name, place.queue_id, receipt.status.value, receipt.message_id)
    output.line(_ROW.format(*row))
    return 0


async def send_msg_status(admin: Admin, options: argparse.Namespace) -> int:
    """Send messages to the topic that a broker has of its own, and print what it answers."""
    size, count = number(options.messageSize, "-s", 128), number(options.count, "-c", 50)
    topic = options.brokerName.strip()
    if topic not in (await admin.brokers.cluster()).brokers:
        raise NotFound(f"there is no broker {topic[:80]!r}")
    clock = SystemClock()
    async with client(options) as mq, mq.producer(_GROUP) as producer:
        await producer.send(topic, _body(16))
        for _ in range(count):
            begin = clock.steady_ms()
            receipt = await producer.send(topic, _body(size))
            output.line(f"rt={clock.steady_ms() - begin}ms, SendResult={_result(receipt)}")
    return 0


async def check_msg_send_rt(admin: Admin, options: argparse.Namespace) -> int:
    """Send messages to the queues of a topic in turn, and print how long each took."""
    del admin
    amount, size = number(options.amount, "-a", 100), number(options.size, "-s", 128)
    topic, clock = options.topic.strip(), SystemClock()
    taken: list[int] = []
    failure: RoquetError | None = None
    async with client(options) as mq, mq.producer(_GROUP) as producer:
        queues = await producer.queues(topic)
        output.line(_ROW.format("#Broker Name", "#QID", "#Send Result", "#RT"))
        for turn in range(amount):
            queue, begin = queues[turn % len(queues)], clock.steady_ms()
            try:
                await producer.send(topic, b"a" * max(0, size), queue=queue)
            except UsageError:
                raise
            except RoquetError as error:
                failure = error
            taken.append(clock.steady_ms() - begin)
            sent = "false" if failure is not None else "true"
            output.line(_ROW.format(queue.broker_name, queue.queue_id, sent, taken[-1]))
    output.line(f"Avg RT: {_mean(taken)}")
    return _failed(failure)


async def cluster_rt(admin: Admin, options: argparse.Namespace) -> int:
    """Send messages to the own topic of each broker, again and again, and print the latency."""
    amount, size = number(options.amount, "-a", 100), number(options.size, "-s", 128)
    every_s = number(options.interval, "-i", 10)
    as_log, room = truth(options.print_log, default=False), options.machine_room or "noname"
    clock = SystemClock()
    if not as_log:
        output.line(
            f"{'#Cluster Name':<24}  {'#Broker Name':<24}  {'#RT':<4}  {'#successCount':<8}"
            f"  {'#failCount':<8}"
        )
    async with client(options) as mq, mq.producer(_GROUP) as producer:
        while True:
            for cluster, broker in await _brokers(admin, options.cluster):
                taken, failed = await _round(producer, broker, amount, size)
                if as_log:
                    at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).astimezone(_CHINA)
                    mean = sum(taken[1:]) / max(1, len(taken) - 1)
                    place = f"{room}|{cluster}|{broker}"
                    output.line(f"{at:%Y-%m-%d %H:%M:%S}|{place}|{int(mean + 0.5)}")
                else:
                    done = len(taken) - failed
                    output.line(
                        f"{cluster:<24}  {broker:<24}  {_mean(taken):<8}  {done:<16}  {failed:<16}"
                    )
            output.flush()
            await clock.sleep(max(1, every_s))


async def _brokers(admin: Admin, cluster: str | None) -> list[tuple[str, str]]:
    known = (await admin.brokers.cluster()).brokers
    found = sorted((it.cluster, name) for name, it in known.items())
    if cluster is not None:
        found = [it for it in found if it[0] == cluster.strip()]
    if not found:
        raise NotFound(f"there is no broker in the cluster {(cluster or '')[:80]!r}")
    return found


async def _round(producer: Producer, topic: str, amount: int, size: int) -> tuple[list[int], int]:
    """Send so many messages; return how long each took in milliseconds, and how many failed."""
    clock = SystemClock()
    taken: list[int] = []
    failed = 0
    for _ in range(amount):
        begin = clock.steady_ms()
        try:
            await producer.send(topic, b"a" * max(0, size))
        except UsageError:
            raise
        except RoquetError:
            failed += 1
        taken.append(clock.steady_ms() - begin)
    return taken, failed


def _body(size: int) -> bytes:
    """Return whole words of at least so many bytes, as the tool makes them."""
    return _WORD * -(-max(0, size) // len(_WORD))


def _result(receipt: SendReceipt) -> str:
    handle = "null" if receipt.recall_handle is None else receipt.recall_handle
    return (
        f"SendResult [sendStatus={receipt.status.value}, msgId={receipt.message_id},"
        f" offsetMsgId={receipt.offset_id}, messageQueue={queue_text(receipt.queue)},"
        f" queueOffset={receipt.queue_offset}, recallHandle={handle}]"
    )


def _mean(taken: list[int]) -> str:
    """Return the mean of all but the first, which has made the connection."""
    return f"{sum(taken[1:]) / (len(taken) - 1):.2f}" if len(taken) > 1 else "NaN"


def _failed(failure: RoquetError | None) -> int:
    if failure is None:
        return 0
    output.error(str(failure))
    return EXIT_REFUSED
