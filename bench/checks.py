"""What was acknowledged is read back: every record whole, every queue without a gap."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.roquet_native import decode_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.processes import Broker

Ends = dict[tuple[str, int], int]
"""(topic, queue) to the offset behind its last message."""

_NOBODY = re.compile(r"(?i)accessKey|username|signature|authenticat")

_QUEUE_OFFSET = 4
"""Place of the queue offset in a decoded record."""


def ends(broker: Broker, topics: Iterable[str], queues: int) -> Ends:
    """Ask how far each queue reaches."""
    found: Ends = {}
    with broker.connect() as connection:
        for topic in topics:
            for queue_id in range(queues):
                ext = {"topic": topic, "queueId": str(queue_id)}
                answer = connection.call(Command(RequestCode.GET_MAX_OFFSET, ext=ext), timeout=10)
                found[topic, queue_id] = int((answer.ext or {}).get("offset", 0))
    return found


def refuses_strangers(broker: Broker) -> None:
    """Ask without a signature. Raises RuntimeError when that is answered."""
    ext = {"topic": "Nobody", "queueId": "0"}
    with BlockingConnection(broker.address) as connection:
        answer = connection.call(Command(RequestCode.GET_MAX_OFFSET, ext=ext), timeout=10)
    remark = answer.remark or ""
    if answer.code == 0 or not _NOBODY.search(remark):
        raise RuntimeError(f"{broker.kind} answers anybody: {answer.code} {remark}")


def wait_for(broker: Broker, begin: Ends, count: int, limit_s: float = 120) -> None:
    """Wait until so many messages more are to be had. Raises TimeoutError."""
    until = time.monotonic() + limit_s
    topics = sorted({topic for topic, _ in begin})
    queues = 1 + max(queue_id for _, queue_id in begin)
    while sum(ends(broker, topics, queues).values()) - sum(begin.values()) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{broker.kind} has not delivered everything in {limit_s:.0f} s")
        time.sleep(0.1)


def read_back(broker: Broker, begin: Ends, end: Ends) -> int:
    """Read all messages between two states, check CRC and offsets; return how many there are.

    Raises RuntimeError at the first message that is missing or damaged.
    """
    count = 0
    with broker.connect() as connection:
        for where, last in end.items():
            at = begin.get(where, 0)
            while at < last:
                at, found = _pull(connection, where, at)
                count += found
    return count


def _pull(connection: BlockingConnection, where: tuple[str, int], at: int) -> tuple[int, int]:
    topic, queue_id = where
    ext = {
        "consumerGroup": "bench_read_back",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(at),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    answer = connection.call(Command(RequestCode.PULL_MESSAGE, ext=ext), timeout=30)
    if answer.code != 0:
        raise RuntimeError(f"{topic} queue {queue_id} at {at}: {answer.code} {answer.remark}")
    offsets = [record[_QUEUE_OFFSET] for record in decode_records(answer.body)]
    if offsets != list(range(at, at + len(offsets))) or not offsets:
        raise RuntimeError(f"{topic} queue {queue_id}: {offsets} instead of those from {at} on")
    return at + len(offsets), len(offsets)
