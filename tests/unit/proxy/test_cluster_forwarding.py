"""Plain sends and acknowledgements before a cluster go to brokers without the front."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from cluster_calls import GROUP, World, asked, before_a_broker, born, run
from grpc_calls import Counting, acknowledgement, message, received
from odd_broker import OddBroker
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import JSON
from roquet.proxy import messages as pb
from roquet.proxy.cluster.brokers import SEND_S
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.remoting.codec import decode
from roquet.remoting.connections.connection import Connection
from roquet.store.records import read_records

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def stored(world: World, topic: str, offset: int) -> dict[str, Any]:
    """Return what is the same of two messages that were sent alike."""
    while world.broker.store.max_offset(topic, 0) <= offset:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (record,) = read_records(world.broker.store.get(topic, 0, offset, 1).records)
    return {
        "topic": record.topic,
        "body": record.body,
        "properties": props.read(record.properties),
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born": record.born_timestamp,
        "attempts": record.reconsume_times,
    }


def test_forwarded_send_is_stored_and_answered_as_the_front_does_it(tmp_path: Path) -> None:
    plain = (
        born(),
        born(
            body=b"b" * 5000,
            tag="Tag-é",
            keys=["k1", "k2"],
            user={"a": "1", "blank ": " "},
            born_host="10.0.0.7",
            trace_context="00-trace",
            delivery_attempt=3,
        ),
        born(body=b"\x1f\x8b-not-looked-at", body_encoding=2),
        born(topic="Fifo", message_group="group 1"),
    )

    async def tell(world: World) -> None:
        for made in plain:
            slow = await world.send(made)
            counting = Counting(world)
            (fast,) = await world.over_the_wire("SendMessage", asked(made))
            assert counting.count == 0
            offset = slow.entries[0].offset
            assert fast.entries[0].offset == offset + 1
            fast.entries[0].offset -= 1
            assert fast == slow
            topic = made.topic.name
            assert await stored(world, topic, offset) == await stored(world, topic, offset + 1)

    run(tmp_path, tell)


def test_many_sends_of_one_read_have_an_answer_each_and_odd_ones_the_fronts(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        counting = Counting(world)
        requests = [
            asked(born(body=b"%d" % number, topic="Normal" if number % 3 else "Delay"))
            for number in range(60)
        ]
        found = await world.over_the_wire("SendMessage", *requests)
        assert counting.count == 20
        for number, answer in enumerate(found):
            if number % 3 == 0:
                assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
                continue
            record = await stored(world, "Normal", answer.entries[0].offset)
            assert record["body"] == b"%d" % number

    run(tmp_path, tell)


def test_refusal_of_a_broker_is_told_as_the_front_tells_it(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        made = born(user={"long": "x" * 32_768})  # longer than brokers take
        slow = await world.send(made)
        counting = Counting(world)
        (fast,) = await world.over_the_wire("SendMessage", asked(made))
        assert counting.count == 0
        assert fast == slow
        assert fast.status.code == Code.INTERNAL_SERVER_ERROR

    run(tmp_path, tell, ProxyLimits(port=0, property_bytes_max=0))


async def popped(world: World, count: int) -> list[Any]:
    """Send messages and receive them."""
    requests = [asked(born(body=b"%d" % number)) for number in range(count)]
    await world.over_the_wire("SendMessage", *requests)
    found: list[Any] = []
    while len(found) < count:
        data = received("Normal", GROUP).SerializeToString()
        parts = (await world.raw("ReceiveMessage", data)).parts
        answers = [pb.ReceiveMessageResponse.FromString(part) for part in parts]
        found += [one.message for one in answers if one.HasField("message")]
    return found


def test_request_longer_than_a_frame_is_refused_and_ends_nobody_elses_call(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        waiting = asyncio.ensure_future(world.receive("Normal", GROUP, expression="none"))
        await asyncio.sleep(0.2)
        many = [message(body=b"x" * 4_000_000) for _ in range(5)]
        answer = await world.call("SendMessage", asked(*many))
        assert answer.status.code == Code.PAYLOAD_TOO_LARGE, answer.status
        assert answer.status.message.endswith("bytes is too long, max is 16777216")
        last = (await waiting)[-1]
        assert last.status.code == Code.MESSAGE_NOT_FOUND, last

    run(tmp_path, tell)


def test_forwarded_acknowledgements_end_flights_and_are_answered_by_entry(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.raw("ReceiveMessage", received("Normal", GROUP).SerializeToString())
        found = await popped(world, 8)
        request = acknowledgement("Normal", GROUP, *found)
        counting = Counting(world)
        (answer,) = await world.over_the_wire("AckMessage", request)
        assert counting.count == 0
        assert answer.status.code == Code.OK
        assert [entry.status.code for entry in answer.entries] == [Code.OK] * 8
        assert [entry.message_id for entry in answer.entries] == [
            one.system_properties.message_id for one in found
        ]
        assert answer == await world.call("AckMessage", request)

    run(tmp_path, tell)


def test_acknowledgements_go_to_brokers_in_json_as_their_code_has_more_than_16_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    plain = Connection.write

    def write(connection: Connection, data: bytes) -> None:
        written.append(bytes(data))
        plain(connection, data)

    async def tell(world: World) -> None:
        await world.raw("ReceiveMessage", received("Normal", GROUP).SerializeToString())
        request = acknowledgement("Normal", GROUP, *(await popped(world, 3)))
        monkeypatch.setattr(Connection, "write", write)
        (answer,) = await world.over_the_wire("AckMessage", request)
        assert answer.status.code == Code.OK
        commands = [it for data in written for it in decode(data)[0]]
        acks = [it for it in commands if it.code == RequestCode.ACK_MESSAGE]
        assert [it.encoding for it in acks] == [JSON] * 3

    run(tmp_path, tell)


def test_acknowledgement_that_a_broker_refuses_in_part_has_the_fronts_codes(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        await world.raw("ReceiveMessage", received("Normal", GROUP).SerializeToString())
        request = acknowledgement("Normal", GROUP, *(await popped(world, 3)))
        handle = request.entries[1].receipt_handle.split(" ")
        handle[6], handle[7] = "7", "99"  # a queue that the topic has not
        request.entries[1].receipt_handle = " ".join(handle)
        counting = Counting(world)
        (fast,) = await world.over_the_wire("AckMessage", request)
        assert counting.count == 0
        slow = await world.call("AckMessage", request)
        # The broker names the proxy's connection, which is another one.
        told = [re.sub("127.0.0.1:[0-9]+", "", str(answer)) for answer in (fast, slow)]
        assert told[0] == told[1]
        assert fast.status.code == Code.MULTIPLE_RESULTS
        codes = [entry.status.code == Code.OK for entry in fast.entries]
        assert codes == [True, False, True]

    run(tmp_path, tell)


async def before_an_odd_broker(
    folder: Path, patch: pytest.MonkeyPatch, odd: OddBroker
) -> tuple[Any, float]:
    """Return the answer to a send that is forwarded to an odd broker, and what it took."""
    async with await odd.stand_in(patch):
        async with before_a_broker(folder, ProxyLimits(port=0), is_odd=True) as world:
            answer, began = None, 0.0
            while not odd.asked:
                began = time.monotonic()
                (answer,) = await world.over_the_wire("SendMessage", asked(born()))
            took_s = time.monotonic() - began
        assert odd.served is not None
        await odd.served
        return answer, took_s


def test_call_that_a_broker_sends_away_is_served_by_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(ResponseCode.GO_AWAY)
    answer, _ = asyncio.run(before_an_odd_broker(tmp_path, monkeypatch, odd))
    assert odd.asked == 1
    assert answer.status.code == Code.OK


def test_call_that_a_broker_does_not_answer_ends_after_the_time_of_a_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(None)
    answer, took_s = asyncio.run(before_an_odd_broker(tmp_path, monkeypatch, odd))
    assert answer.status.code == Code.PROXY_TIMEOUT
    assert "did not answer 'send message v2' within 3 s" in answer.status.message
    assert took_s >= SEND_S


def test_call_whose_connection_ends_has_an_outcome_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = OddBroker(None)
    odd.closes = True
    answer, _ = asyncio.run(before_an_odd_broker(tmp_path, monkeypatch, odd))
    assert answer.status.code == Code.PROXY_TIMEOUT
    assert answer.status.message.endswith("closed the connection")


def test_calls_of_a_broker_that_went_are_answered_and_the_next_ones_named(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.behind.broker.app.__aexit__()
        (answer,) = await world.over_the_wire("SendMessage", asked(born()))
        assert answer.status.code in {Code.INTERNAL_SERVER_ERROR, Code.PROXY_TIMEOUT}
        assert answer.status.message.startswith("b1 "), answer.status

    run(tmp_path, tell)


def test_more_calls_than_may_be_in_flight_are_refused_by_the_front(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        requests = [asked(born(body=b"%d" % number)) for number in range(50)]
        found = await world.over_the_wire("SendMessage", *requests)
        codes = {answer.status.code for answer in found}
        assert codes == {Code.OK, Code.TOO_MANY_REQUESTS}

    run(tmp_path, tell, ProxyLimits(port=0, in_flight_max=4))
