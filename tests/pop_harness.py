"""What the tests of POP share: requests as clients send them, and what their answers say."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING

from broker_harness import ext, records
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.handle import (
    ReceiptHandle,
    read_msg_offset_info,
    read_start_offset_info,
)
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.store.records import Record
    from roquet.testing.cluster import Cluster

GROUP = "poppers"
TOPIC = "orders"
TIMER_LOG = {"mappedFileSizeTimerLog": "65536"}


def now_ms() -> int:
    """Return the time that brokers and clients go by."""
    return time.time_ns() // 1_000_000


def pop_command(topic: str = TOPIC, /, **fields: str) -> Command:
    """Return a pop of group `poppers` for all queues that does not wait."""
    given = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "0",
        "bornTime": str(now_ms()),
        "initMode": "0",
        "exp": "*",
        "expType": "TAG",
        "order": "false",
        **fields,
    }
    return Command(RequestCode.POP_MESSAGE, ext=given)


@dataclasses.dataclass(frozen=True)
class Popped:
    """The answer to a pop."""

    code: int
    remark: str | None
    ext: dict[str, str]
    records: list[Record]
    handles: list[ReceiptHandle]
    """One for each record, as a client builds them."""

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies."""
        return [record.body for record in self.records]


def popped(answer: Command, broker_name: str = "broker-a") -> Popped:
    """Read the answer to a pop as the Java client does."""
    fields = ext(answer)
    starts = read_start_offset_info(fields.get("startOffsetInfo", ""))
    offsets = read_msg_offset_info(fields.get("msgOffsetInfo", ""))
    assert starts.keys() == offsets.keys()
    found = records(answer)
    handles: list[ReceiptHandle] = []
    for record in found:
        key = "0", record.queue_id
        if b"POP_CK" in record.properties:
            text = record.properties.split(b"POP_CK\x01")[1].split(b"\x02")[0].decode()
            handles.append(ReceiptHandle.decode(text))
            key = handles[-1].retry_flag, record.queue_id
            assert handles[-1].start_offset == starts[key]
        else:
            handle = ReceiptHandle(
                start_offset=starts[key],
                pop_time_ms=int(fields["popTime"]),
                invisible_ms=int(fields["invisibleTime"]),
                revive_queue=int(fields["reviveQid"]),
                retry_flag="0",
                broker_name=broker_name,
                queue_id=record.queue_id,
                queue_offset=record.queue_offset,
            )
            handles.append(handle)
        assert record.queue_offset in offsets[key]
    assert sum(map(len, offsets.values())) == len(found)
    return Popped(int(answer.code), answer.remark, fields, found, handles)


async def pop(it: Cluster, topic: str = TOPIC, /, **fields: str) -> Popped:
    """Pop once."""
    return popped(await it.call(pop_command(topic, **fields)))


def ack_command(handle: ReceiptHandle, topic: str = TOPIC, /, **fields: str) -> Command:
    """Return the acknowledgement of a message."""
    given = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": str(handle.queue_id),
        "extraInfo": handle.encode(),
        "offset": str(handle.queue_offset),
        **fields,
    }
    return Command(RequestCode.ACK_MESSAGE, ext=given)


def invisible_command(handle: ReceiptHandle, topic: str = TOPIC, /, **fields: str) -> Command:
    """Return a request for another invisible time."""
    given = {"invisibleTime": "90000", **fields}
    command = ack_command(handle, topic, **given)
    return dataclasses.replace(command, code=RequestCode.CHANGE_MESSAGE_INVISIBLETIME)


def checkpoints(it: Cluster, topic: str = "rmq_sys_wheel_timer") -> list[dict[str, object]]:
    """Return what waits for its time in the timer topic: each with its tag under `tag`."""
    found: list[dict[str, object]] = []
    at = 0
    while True:
        result = it.broker.store.get(topic, 0, at, 32)
        if not result.messages:
            return found
        for record in read_records(result.records):
            properties = dict(
                entry.split("\x01") for entry in record.properties.decode().split("\x02") if entry
            )
            found.append(
                json.loads(record.body)
                | {
                    "tag": properties["TAGS"],
                    "queue": properties.get("REAL_QID"),
                    "due": properties["TIMER_DELIVER_MS"],
                }
            )
        at = result.next_begin_offset
