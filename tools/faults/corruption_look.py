"""What a store that was damaged serves, beside what was stored: for `tools.faults.corruption`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from roquet.base.clock import SystemClock
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.store.records import read_records
from roquet.store.results import Draft, GetStatus, PutStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from roquet.broker.app import Broker
    from roquet.store.records import Record

Place = tuple[str, int, int]
"""Topic, queue, offset."""
Table = dict[Any, Any]
"""One table: its rows by name."""
Call = Callable[[Command], Awaitable[Command]]
"""Asks the broker."""
LATER = b"later"
"""The body of messages that are delayed."""
TIME_MAX = (1 << 63) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What was stored: body, property text, key, and bytes of the record."""

    body: bytes
    properties: str
    key: str
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """What must come back: messages by place, tables by name."""

    messages: Mapping[Place, Message]
    tables: Mapping[str, Table]


@dataclasses.dataclass(slots=True)
class Look:
    """What a damaged store served."""

    wrong: list[str] = dataclasses.field(default_factory=list[str])
    missing: dict[Place, int] = dataclasses.field(default_factory=dict[Place, int])
    """Messages that are not served, with the bytes of their records."""
    expired: int = 0
    """How many of them a consumer is told of: its queue begins later (21), as after cleaning."""
    damaged: int = 0
    """Messages that were passed over and counted while the queues were read."""
    lost_bytes: int = 0
    """Bytes of the log that recovery has cut, as it says."""
    properties: int = 0
    keys: int = 0
    """Keys of messages that are there, but are not found by them."""
    key_faults: int = 0
    """Keys whose lookup is an error."""
    changed: set[str] = dataclasses.field(default_factory=set[str])
    """Tables with other values."""
    older: set[str] = dataclasses.field(default_factory=set[str])
    """Tables of offsets with lower ones: what was consumed since comes again."""

    def uncounted(self) -> str:
        """Say which missing messages nothing accounts for; empty when all are accounted for.

        Messages are held against messages, and what is left against the bytes that were cut.
        """
        left = len(self.missing) - self.expired - self.damaged
        if left <= 0:
            return ""
        least = sum(sorted(self.missing.values())[:left])
        if least <= self.lost_bytes:
            return ""
        return (
            f"{len(self.missing)} messages are missing, {self.damaged} were passed over,"
            f" {self.expired} expired; {left} of at least {least} bytes are left, and recovery"
            f" says {self.lost_bytes} bytes"
        )


async def look(broker: Broker, stored: Stored, topics: Sequence[str], group: str) -> Look:
    """Start a broker and read everything. Raises RoquetError when it refuses."""
    seen = Look()
    async with broker.app:
        if any(row[0] == "Gone" and row[3] for row in broker.store.native.queues()):
            seen.changed.add("deleted topic")
        seen.lost_bytes = broker.store.native.stats()["recovered_lost_bytes"]
        for queue in sorted({place[:2] for place in stored.messages}):
            read_queue(broker, queue, stored, seen)
        seen.damaged = broker.store.native.stats()["damaged_reads"]
        async with calling(broker) as call:
            await look_up_keys(call, stored, seen)
            compare_tables(await tables_of(broker, call, topics, group), stored.tables, seen)
        await put_more(broker, stored, seen)
    return seen


def read_queue(broker: Broker, queue: tuple[str, int], stored: Stored, seen: Look) -> None:
    """Read a queue from its begin and compare it with what was stored."""
    topic, queue_id = queue
    wanted = {place: it for place, it in stored.messages.items() if place[:2] == queue}
    found: dict[int, Record] = {}
    offset = 0
    while offset < len(wanted):
        got = broker.store.get(topic, queue_id, offset, 32)
        if got.status is GetStatus.FOUND:
            found.update((record.queue_offset, record) for record in read_records(got.records))
        offset = max(got.next_begin_offset, offset + 1)
    for place, message in wanted.items():
        there = found.pop(place[2], None)
        if there is None:
            seen.missing[place] = message.size
            seen.expired += place[2] < broker.store.min_offset(topic, queue_id)
        elif there.body != message.body:
            seen.wrong.append(f"{place}: another body")
        elif there.properties.decode(errors="replace") != message.properties:
            seen.properties += 1
    seen.wrong += [f"{topic} {queue_id} {extra}: nobody sent it" for extra in found]


async def put_more(broker: Broker, stored: Stored, seen: Look) -> None:
    """Put one message into each queue: no offset that was given out may come again."""
    for topic, queue_id in sorted({place[:2] for place in stored.messages}):
        draft = Draft(
            topic=topic,
            queue_id=queue_id,
            body=b"later still",
            properties={"UNIQ_KEY": "later"},
            born_timestamp=1,
            born_host=broker.identity.store_host,
            store_host=broker.identity.store_host,
        )
        result = await broker.store.put(draft)
        highest = max(place[2] for place in stored.messages if place[:2] == (topic, queue_id))
        if result.status is PutStatus.PUT_OK and result.queue_offset <= highest:
            text = f"{topic} {queue_id}: offset {result.queue_offset} is given out again"
            seen.wrong.append(text)


async def look_up_keys(call: Call, stored: Stored, seen: Look) -> None:
    """Look every message up by its key: what is there is found, and nothing that nobody sent."""
    bodies = {message.body for message in stored.messages.values()}
    for place, message in stored.messages.items():
        ext = {"topic": place[0], "key": message.key, "maxNum": "32", "beginTimestamp": "0"}
        ext["endTimestamp"] = str(TIME_MAX)
        answer = await call(Command(RequestCode.QUERY_MESSAGE, ext=ext))
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            seen.key_faults += 1
            continue
        found = {record.body for record in read_records(answer.body, check_crc=False)}
        if strange := found - bodies - {LATER}:
            seen.wrong.append(f"key {message.key}: {len(strange)} bodies that nobody sent")
        seen.keys += message.body not in found and place not in seen.missing


@contextlib.asynccontextmanager
async def calling(broker: Broker) -> AsyncIterator[Call]:
    """Connect to a broker that runs in this process."""
    client = Client(clock=SystemClock())
    await client.start()

    async def call(command: Command) -> Command:
        return await client.call(broker.identity.address, command, 20.0)

    try:
        yield call
    finally:
        await client.stop()


async def tables_of(
    broker: Broker, call: Call, topics: Sequence[str], group: str
) -> dict[str, Table]:
    """Return the tables as the broker has them."""
    meta = broker.metadata
    offsets = {topic: meta.offsets.queues(group, topic) for topic in topics}
    answer = await call(Command(RequestCode.GET_ALL_DELAY_OFFSET))
    assert answer.code == ResponseCode.SUCCESS, answer
    return {
        "topics": {topic: meta.topics.get(topic) for topic in topics},
        "groups": {group: meta.groups.get(group)},
        "offsets": {(topic, queue): at for topic in topics for queue, at in offsets[topic].items()},
        "delays": dict(DelayOffsetBody.decode(answer.body).offsets),
    }


def compare_tables(found: Mapping[str, Table], stored: Mapping[str, Table], seen: Look) -> None:
    """Tell tables with other values from those whose offsets are only lower."""
    for name, wanted in stored.items():
        there = found[name]
        if there == wanted:
            continue
        lower = all(
            isinstance(old := there.get(key, 0), int) and isinstance(new, int) and old <= new
            for key, new in wanted.items()
        )
        if lower and not there.keys() - wanted.keys():
            seen.older.add(name)
        else:
            seen.changed.add(name)
