"""Plain sends over gRPC are stored by the core as by the front, and the rest is the front's."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import Calls, Counting, called, message, plain_messages, ready
from roquet._native import GrpcSends
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.polling import queue_of_group
from roquet.store.records import Record, read_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BORN_S = 1_700_000_000
MANY = {f"key{number}": "v" for number in range(20)}


def born(**more: Any) -> Any:
    """Return a message that says when it was made, so that two of them are stored alike."""
    made = message(**more)
    made.system_properties.born_timestamp.seconds = BORN_S
    made.system_properties.born_timestamp.nanos = 123_456_789
    return made


def twice(field: str) -> bytes:
    """Return a request with a message whose field is there twice."""
    part = pb.Message()
    part.topic.name = "Normal"
    part.system_properties.message_id = "M1"
    more = pb.Message()
    getattr(more, field).SetInParent()
    inner = (
        part.SerializeToString()
        + more.SerializeToString()
        + pb.Message(body=b"x").SerializeToString()
    )
    return bytes(b"\x0a" + bytes([len(inner)]) + inner)


def digested(digest: bytes) -> bytes:
    """Return a request with a message that has these bytes as its digest."""
    made = born()
    system = made.system_properties.SerializeToString() + bytes([0x22, len(digest)]) + digest
    topic = pb.Message(topic=made.topic).SerializeToString()
    inner = topic + bytes([0x1A, len(system)]) + system + pb.Message(body=b"x").SerializeToString()
    return bytes(b"\x0a" + bytes([len(inner)]) + inner)


PLAIN: dict[str, Callable[[], Any]] = {
    **plain_messages(born),
    "as many properties as the core takes": lambda: born(user=MANY),
    "a user property without a value": lambda: born(user={"empty": ""}),
    "a group in a topic of all types": lambda: born(topic="Mixed", message_group="g"),
    "no group in a topic of all types": lambda: born(topic="Mixed"),
}
FRONT: dict[str, Callable[[], Any]] = {
    "a type that the topic is not for": lambda: born(topic="Fifo"),
    "a group in a topic without": lambda: born(message_group="g"),
    "a delay": lambda: _due(born(topic="Delay")),
    "a half message": lambda: born(topic="Transaction", message_type=4),
    "a priority": lambda: born(priority=1),
    "a light topic": lambda: born(lite_topic="l"),
    "an unknown topic": lambda: born(topic="Nowhere"),
    "a system topic": lambda: born(topic="SCHEDULE_TOPIC_XXXX"),
    "no body": lambda: born(body=b""),
    "no id": lambda: born(message_id=""),
    "an id with a blank": lambda: born(message_id="a b"),
    "a reserved name": lambda: born(user={"UNIQ_KEY": "x"}),
    "a control character": lambda: born(user={"a": "\x01b"}),
    "a tag with a bar": lambda: born(tag="a|b"),
    "a blank tag": lambda: born(tag=" "),
    "a key with a blank": lambda: born(keys=["a b"]),
    "too many properties for the core": lambda: born(user={**MANY, "one": "more"}),
    "a year after 9999": lambda: _born_late(born()),
}


def _due(made: Any) -> Any:
    made.system_properties.delivery_timestamp.seconds = BORN_S
    return made


def _born_late(made: Any) -> Any:
    made.system_properties.born_timestamp.seconds = 253_402_300_799 + 1
    return made


def data_of(made: Any) -> bytes:
    return bytes(pb.SendMessageRequest(messages=[made]).SerializeToString())


def sent(port: int, *requests: bytes, client: str = "c", source: str = "127.0.0.1") -> list[Any]:
    """Send requests on one connection, in one write; return the answers by their order."""
    answered = called(port, "SendMessage", *requests, client=client, source=source)
    return [pb.SendMessageResponse.FromString(part) for (part,) in answered]


async def stored(calls: Calls, topic: str, offset: int) -> Record:
    """Return a message of the only queue, once it can be read there."""
    while calls.broker.store.max_offset(topic, 0) <= offset:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (record,) = read_records(calls.broker.store.get(topic, 0, offset, 1).records)
    return record


def seen(record: Record) -> dict[str, Any]:
    """Return what is the same of two messages that were sent alike."""
    return {
        "topic": record.topic,
        "body": record.body,
        "properties": props.read(record.properties),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born": record.born_timestamp,
        "host": record.born_host[:4],
        "attempts": record.reconsume_times,
        "queue": record.queue_id,
    }


@pytest.mark.parametrize("name", PLAIN)
def test_plain_send_is_stored_and_answered_as_the_front_does_it(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            made = PLAIN[name]()
            slow = await calls.send(made)
            counting = Counting(calls)
            (fast,) = await asyncio.to_thread(sent, calls.port.port, data_of(made))
            assert counting.count == 0
            assert fast.status.code == Code.OK
            assert fast.entries[0].offset == slow.entries[0].offset + 1
            fast.entries[0].offset -= 1
            assert fast == slow
            topic = made.topic.name
            one, other = await stored(calls, topic, 0), await stored(calls, topic, 1)
            assert seen(one) == seen(other)

    asyncio.run(main())


def test_sends_that_are_not_plain_are_answered_by_the_front(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            for name, make in FRONT.items():
                data = data_of(make())
                answered = await calls.raw("SendMessage", data)
                slow = pb.SendMessageResponse.FromString(answered.parts[0])
                counting = Counting(calls)
                (found,) = await asyncio.to_thread(sent, calls.port.port, data)
                assert counting.count == 1, name
                assert found.status == slow.status, name
            for field in ("topic", "system_properties"):
                counting = Counting(calls)
                (found,) = await asyncio.to_thread(sent, calls.port.port, twice(field))
                assert (counting.count, found.status.code) == (1, Code.OK), field
            for digest in (b"\xff\xff", b"\x12\x01\xff", b"\x0f", b"\x12\x05a"):
                counting = Counting(calls)
                at = calls.port.port
                parts = await asyncio.to_thread(called, at, "SendMessage", digested(digest))
                assert (counting.count, parts) == (1, [[]]), digest
            counting = Counting(calls)
            (found,) = await asyncio.to_thread(
                sent, calls.port.port, digested(b"\x08\x01\x12\x01A")
            )
            assert (counting.count, found.status.code) == (0, Code.OK)
            for client in ("", " ", "c" * 1025):
                counting = Counting(calls)
                one = data_of(born())
                (found,) = await asyncio.to_thread(sent, calls.port.port, one, client=client)
                assert (counting.count, found.status.code != Code.OK) == (1, True), client

    asyncio.run(main())


def test_sends_of_one_read_have_an_answer_each(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            counting = Counting(calls)
            requests = [
                data_of(born(body=b"%d" % number, topic="Normal" if number % 3 else "Delay"))
                for number in range(60)
            ]
            found = await asyncio.to_thread(sent, calls.port.port, *requests)
            assert counting.count == 20
            for number, answer in enumerate(found):
                if number % 3 == 0:
                    assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
                    continue
                record = await stored(calls, "Normal", answer.entries[0].offset)
                assert record.body == b"%d" % number

    asyncio.run(main())


def test_sends_of_several_connections_have_their_own_address_and_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            counting = Counting(calls)
            port, places = calls.port.port, [f"127.0.0.{number}" for number in range(2, 7)]
            bodies = {place: [f"{place} {turn}".encode() for turn in range(3)] for place in places}
            sending = [
                asyncio.create_task(
                    asyncio.to_thread(
                        sent, port, *(data_of(born(body=body)) for body in own), source=place
                    )
                )
                for place, own in bodies.items()
            ]
            await asyncio.sleep(0)
            # What comes meanwhile is taken in one turn of the loop.
            time.sleep(0.3)  # noqa: ASYNC251
            found = await asyncio.gather(*sending)
            assert counting.count == 0
            for (place, own), answers in zip(bodies.items(), found, strict=True):
                for body, answer in zip(own, answers, strict=True):
                    record = await stored(calls, "Normal", answer.entries[0].offset)
                    assert (record.body, record.born_host[:4]) == (body, socket.inet_aton(place))

    asyncio.run(main())


def test_change_of_a_topic_holds_for_the_next_send(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path) as calls:
            port, data = calls.port.port, data_of(born())
            topics = calls.broker.metadata.topics
            changes = {
                "read only": (TopicConfig(name="Normal", perm=4), Code.FORBIDDEN),
                "of another type": (
                    TopicConfig(name="Normal", attributes={"message.type": "FIFO"}),
                    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                ),
                "as it was": (TopicConfig(name="Normal"), Code.OK),
            }
            for name, (config, code) in changes.items():
                topics.put(config)
                (found,) = await asyncio.to_thread(sent, port, data)
                assert found.status.code == code, name

    asyncio.run(main())


def test_sends_that_wait_for_a_flush_are_the_fronts(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(tmp_path, flushDiskType="SYNC_FLUSH") as calls:
            counting = Counting(calls)
            (found,) = await asyncio.to_thread(sent, calls.port.port, data_of(born()))
            assert (counting.count, found.status.code) == (1, Code.OK)

    asyncio.run(main())


def test_fast_sends_are_counted_as_calls_of_grpc(tmp_path: Path) -> None:
    async def main() -> None:
        async with ready(
            tmp_path, metricsExporterType="PROM", metricsPromExporterPort="0"
        ) as calls:
            await asyncio.to_thread(sent, calls.port.port, *([data_of(born())] * 5))
            await asyncio.sleep(0.3)
            page = calls.broker.local.metrics.render().decode()
            (line,) = [
                line
                for line in page.splitlines()
                if "rpc_latency_milliseconds_count" in line and 'protocol_type="grpc"' in line
            ]
            assert 'request_code="send_message"' in line
            assert line.endswith(" 5.0")

    asyncio.run(main())


def test_queue_of_a_message_group_is_that_of_the_front() -> None:
    for queues in range(1, 40):
        for group in ("g", "group-1", "é", "😀", "x" * 63):
            assert GrpcSends.queue_of_group(group, queues) == queue_of_group(group, queues)
