"""Calls, settings, receives and settlements through the front, and what is answered to bad ones."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import Calls, consumer, fronted, message, producer, received
from roquet.broker.clients.registry import Client
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.limits import (
    FIELDS_MAX,
    REQUEST_MAX,
    SEND_FIELDS_MAX,
    TELEMETRY_MAX,
    ProxyLimits,
)
from roquet.proxy.services.clients import Session
from roquet.service.shares import SMALL
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

UNIMPLEMENTED, INTERNAL, INVALID_ARGUMENT = 12, 13, 3


def run(folder: Path, tell: Callable[[Calls], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fronted(folder) as calls:
            await tell(calls)

    asyncio.run(main())


async def dispatched(calls: Calls) -> None:
    while calls.broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def taken(calls: Calls, group: str = "g", **more: Any) -> list[Any]:
    """Receive once; return the messages."""
    parts = await calls.receive("Normal", group, **more)
    assert parts[0].status.code == Code.OK, parts[0].status
    assert parts[-1].delivery_timestamp.seconds > 0
    return [part.message for part in parts[1:-1]]


def route(topic: str) -> Any:
    request = pb.QueryRouteRequest()
    request.topic.name = topic
    request.endpoints.scheme = 1
    request.endpoints.addresses.add(host="10.1.2.3", port=9999)
    return request


def test_route_names_every_queue_at_the_address_that_the_client_used(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        topics = calls.broker.metadata.topics
        normal = topics.get("Normal")
        assert normal is not None
        topics.put(dataclasses.replace(normal, read_queues=3, write_queues=2))
        answer = await calls.call("QueryRoute", route("Normal"))
        assert answer.status.code == Code.OK
        assert [(one.id, one.permission) for one in answer.message_queues] == [
            (0, 2),
            (1, 4),
            (2, 4),
        ]
        for queue in answer.message_queues:
            assert (queue.broker.name, queue.broker.id) == ("b", 0)
            (address,) = queue.broker.endpoints.addresses
            assert (address.host, address.port) == ("10.1.2.3", calls.front.routes.port)
            assert list(queue.accept_message_types) == [1]
        mixed = await calls.call("QueryRoute", route("Mixed"))
        assert list(mixed.message_queues[0].accept_message_types) == [1, 2, 3, 4]

    run(tmp_path, tell)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", Code.ILLEGAL_TOPIC),
        ("a b", Code.ILLEGAL_TOPIC),
        ("TBW102", Code.ILLEGAL_TOPIC),
        ("rmq_sys_x", Code.ILLEGAL_TOPIC),
        ("nowhere", Code.TOPIC_NOT_FOUND),
    ],
)
def test_route_of_what_is_no_topic_is_refused(tmp_path: Path, topic: str, code: Code) -> None:
    async def tell(calls: Calls) -> None:
        answer = await calls.call("QueryRoute", route(topic))
        assert answer.status.code == code
        assert not answer.message_queues
        # A request without a resource at all is one for a blank topic.
        assert (await calls.call("QueryRoute", pb.QueryRouteRequest())).status.code == 40002

    run(tmp_path, tell)


def test_assignment_is_one_entry_or_each_queue_of_an_ordered_group(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        groups = calls.broker.metadata.groups
        groups.put(SubscriptionGroupConfig(name="ordered", consume_message_orderly=True))
        request = pb.QueryAssignmentRequest()
        request.topic.name = "Normal"
        for group, ids in (("plain", [-1]), ("ordered", [0])):
            request.group.name = group
            answer = await calls.call("QueryAssignment", request)
            assert [one.message_queue.id for one in answer.assignments] == ids
        request.group.name = " "
        answer = await calls.call("QueryAssignment", request)
        assert answer.status.code == Code.ILLEGAL_CONSUMER_GROUP

    run(tmp_path, tell)


def test_heartbeat_needs_settings_and_keeps_the_client_in_its_group(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        beat = pb.HeartbeatRequest(client_type=3)
        beat.group.name = "g"
        answer = await calls.call("Heartbeat", beat)
        assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
        assert answer.status.message == "cannot find client settings for this client"
        assert await calls.show(consumer("g", 3, "Normal")) is None
        assert (await calls.call("Heartbeat", beat)).status.code == Code.OK
        caller = calls.front.context(calls.head("Heartbeat")).caller
        members = calls.broker.local.clients.members("g", caller)
        assert members == ["client-1"]
        end = pb.NotifyClientTerminationRequest()
        end.group.name = "g"
        assert (await calls.call("NotifyClientTermination", end)).status.code == Code.OK
        assert len(calls.front.sessions) == 0
        with pytest.raises(Exception, match="no consumer for this group"):
            calls.broker.local.clients.members("g", caller)
        answer = await calls.call("NotifyClientTermination", end)
        assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE

    run(tmp_path, tell)


def test_client_that_joins_a_group_is_told_to_its_remoting_members_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Session] = []
    monkeypatch.setattr(Session, "send_one_way", lambda session, _: told.append(session))

    async def tell(calls: Calls) -> None:
        clients, peer = calls.broker.local.clients, FakePeer()
        caller = calls.front.context(calls.head("Heartbeat")).caller
        data = HeartbeatData(client_id="remoting", consumers=(ConsumerData(group="g"),))
        await clients.heartbeat(data, Client(peer, "remoting", "JAVA", 0), caller)
        assert peer.notices() == ["g"]
        assert await calls.show(consumer("g", 2, "Normal")) is None
        assert clients.members("g", caller) == ["remoting", "client-1"]
        assert peer.notices() == ["g"]
        # With many members this would take longer with each that comes.
        assert told == []

    run(tmp_path, tell)


def test_settings_are_merged_with_what_the_broker_says(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        groups = calls.broker.metadata.groups
        groups.put(SubscriptionGroupConfig(name="g", retry_max_times=3))
        assert await calls.show(producer("Normal")) is None
        (shown,) = calls.told.commands
        assert shown.status.code == Code.OK
        assert shown.settings.publishing.max_body_size == 4 << 20
        assert shown.settings.publishing.validate_message_type
        assert shown.settings.backoff_policy.max_attempts == 3
        assert shown.settings.backoff_policy.exponential_backoff.initial.nanos == 10_000_000
        assert await calls.show(consumer("g", 2, "Normal")) is None
        settings = calls.told.commands[1].settings
        assert settings.subscription.receive_batch_size == 32
        assert settings.subscription.long_polling_timeout.seconds == 20
        assert not settings.subscription.fifo
        assert settings.backoff_policy.max_attempts == 4
        pauses = settings.backoff_policy.customized_backoff.next
        assert [pauses[0].seconds, pauses[-1].seconds, len(pauses)] == [1, 7200, 18]

    run(tmp_path, tell)


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        (pb.Settings, INVALID_ARGUMENT),
        (lambda: producer("no topic!"), INVALID_ARGUMENT),
        (lambda: producer("nowhere"), INVALID_ARGUMENT),
        (lambda: consumer("", 3), INVALID_ARGUMENT),
        (lambda: consumer("g", 77), INVALID_ARGUMENT),
        (lambda: consumer("g", 3, *(f"t{number}" for number in range(2001))), INVALID_ARGUMENT),
        (lambda: producer(*(f"t{number}" for number in range(2001))), INVALID_ARGUMENT),
    ],
)
def test_settings_that_cannot_be_end_the_stream(
    tmp_path: Path, settings: Callable[[], Any], status: int
) -> None:
    async def tell(calls: Calls) -> None:
        ended = await calls.show(settings())
        assert ended is not None
        assert ended[0] == status
        assert ended[1]
        assert calls.told.commands == []

    run(tmp_path, tell)


def test_telemetry_begins_with_settings_and_has_a_longest_message(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        for data in (
            pb.TelemetryCommand(
                thread_stack_trace=pb.ThreadStackTrace(nonce="n")
            ).SerializeToString(),
            b"",
            bytes(TELEMETRY_MAX + 1),
        ):
            telemetry = calls.front.telemetry(calls.head("Telemetry"))
            ended = await telemetry.take(data, calls.told)
            assert ended is not None
            assert ended[0] == INVALID_ARGUMENT
        telemetry = calls.front.telemetry(calls.head("Telemetry"))
        ended = await telemetry.take(b"\xff", calls.told)
        assert ended == (INTERNAL, "Invalid protobuf byte sequence")

    run(tmp_path, tell)


def test_messages_are_received_acknowledged_and_changed(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        given = message(tag="a", keys=["k1", "k2"], user={"name": "value"})
        assert (await calls.send(given)).status.code == Code.OK
        await dispatched(calls)
        (found,) = await taken(calls)
        system = found.system_properties
        assert (found.body, found.topic.name, dict(found.user_properties)) == (
            b"x",
            "Normal",
            {"name": "value"},
        )
        assert (system.message_id, system.tag, list(system.keys)) == (
            given.system_properties.message_id,
            "a",
            ["k1", "k2"],
        )
        assert (system.delivery_attempt, system.invisible_duration.seconds) == (1, 30)
        change = pb.ChangeInvisibleDurationRequest(receipt_handle=system.receipt_handle)
        change.topic.name, change.group.name = "Normal", "g"
        change.invisible_duration.seconds = 20
        changed = await calls.call("ChangeInvisibleDuration", change)
        assert changed.status.code == Code.OK
        ack = pb.AckMessageRequest()
        ack.topic.name, ack.group.name = "Normal", "g"
        ack.entries.add(message_id="m", receipt_handle=changed.receipt_handle)
        ack.entries.add(message_id="m", receipt_handle="nonsense")
        answer = await calls.call("AckMessage", ack)
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert [one.status.code for one in answer.entries] == [
            Code.OK,
            Code.INVALID_RECEIPT_HANDLE,
        ]

    run(tmp_path, tell)


def test_receive_waits_for_a_message(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        waiting = asyncio.ensure_future(taken(calls))
        polls = calls.broker.local.waits._polls
        while not len(polls):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert (await calls.send(message(body=b"late"))).status.code == Code.OK
        (found,) = await asyncio.wait_for(waiting, 20)
        assert found.body == b"late"

    run(tmp_path, tell)


def test_receive_of_a_client_that_goes_waits_no_more_and_takes_nothing(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        waiting = asyncio.ensure_future(taken(calls))
        polls = calls.broker.local.waits._polls
        while not len(polls):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert len(polls) == 0
        assert (await calls.send(message())).status.code == Code.OK
        assert len(await taken(calls)) == 1

    run(tmp_path, tell)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"invisible_ms": 9_999}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 10_000}, Code.MESSAGE_NOT_FOUND),
        ({"invisible_ms": 10_001}, Code.MESSAGE_NOT_FOUND),
        ({"invisible_ms": 43_199_999}, Code.MESSAGE_NOT_FOUND),
        ({"invisible_ms": 43_200_000}, Code.MESSAGE_NOT_FOUND),
        ({"invisible_ms": 43_200_001}, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 0, "auto_renew": True}, Code.MESSAGE_NOT_FOUND),
        ({"expression": "||"}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"expression": "t" * 4097}, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"expression": "a >", "type": 2}, Code.ILLEGAL_FILTER_EXPRESSION),
    ],
)
def test_receive_answers_each_limit_with_its_code(
    tmp_path: Path, more: dict[str, Any], code: Code
) -> None:
    async def main() -> None:
        # Nothing is there, and none of these waits.
        rules = ProxyLimits(port=0, polling_min_ms=0)
        async with fronted(tmp_path, rules) as calls:
            (part,) = await calls.receive("Normal", "g", wait_ms=0, **more)
            assert Code(part.status.code) is code, part.status

    asyncio.run(main())


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("", "g", Code.ILLEGAL_TOPIC),
        ("nowhere", "g", Code.TOPIC_NOT_FOUND),
        ("Normal", "", Code.ILLEGAL_CONSUMER_GROUP),
        ("Normal", "g" * 121, Code.ILLEGAL_CONSUMER_GROUP),
        ("Normal", "CID_RMQ_SYS_X", Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_receive_needs_a_topic_and_a_group(
    tmp_path: Path, topic: str, group: str, code: Code
) -> None:
    async def tell(calls: Calls) -> None:
        (part,) = await calls.receive(topic, group)
        assert part.status.code == code

    run(tmp_path, tell)


def test_receive_with_too_little_time_left_is_refused_at_once(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        late = dataclasses.replace(calls, more=(("grpc-timeout", "4999m"),))
        (part,) = await late.receive("Normal", "g", wait_ms=20_000)
        assert part.status.code == Code.ILLEGAL_POLLING_TIME
        old = dataclasses.replace(late, more=(*late.more, ("x-mq-client-version", "5.0.2")))
        (part,) = await old.receive("Normal", "g", wait_ms=20_000)
        assert part.status.code == Code.BAD_REQUEST

    run(tmp_path, tell)


@pytest.mark.parametrize(
    ("handle", "code"),
    [
        ("", Code.INVALID_RECEIPT_HANDLE),
        ("1 2 3", Code.INVALID_RECEIPT_HANDLE),
        ("x" * 2000, Code.INVALID_RECEIPT_HANDLE),
        ("0 1 1000 0 0 b 0 0 0", Code.INVALID_RECEIPT_HANDLE),
        ("0 99999999999999 1000 0 0 other 0 0 0", Code.BAD_REQUEST),
        ("0 99999999999999 1000 0 0 b 0 0", Code.INVALID_RECEIPT_HANDLE),
        ("0 99999999999999 1000 0 0 b 0 0 -1", Code.INVALID_RECEIPT_HANDLE),
    ],
)
def test_dead_letter_of_a_handle_that_is_none_is_refused(
    tmp_path: Path, handle: str, code: Code
) -> None:
    async def tell(calls: Calls) -> None:
        request = pb.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle)
        request.topic.name, request.group.name = "Normal", "g"
        answer = await calls.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == code, answer.status

    run(tmp_path, tell)


def test_dead_letter_is_stored_before_its_message_is_acknowledged(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await calls.send(message(body=b"doomed"))
        await dispatched(calls)
        (found,) = await taken(calls)
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            receipt_handle=found.system_properties.receipt_handle
        )
        request.topic.name, request.group.name = "Normal", "g"
        answer = await calls.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == Code.OK, answer.status
        await dispatched(calls)
        assert calls.broker.store.max_offset("%DLQ%g", 0) == 1

    run(tmp_path, tell)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", Code.INVALID_TRANSACTION_ID),
        (" ", Code.INVALID_TRANSACTION_ID),
        ("0102", Code.INTERNAL_SERVER_ERROR),
        ("Z" * 32, Code.INTERNAL_SERVER_ERROR),
        ("F" * 32, Code.INTERNAL_SERVER_ERROR),
        ("0" * 32, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_end_of_what_is_no_transaction_is_refused(tmp_path: Path, text: str, code: Code) -> None:
    async def tell(calls: Calls) -> None:
        request = pb.EndTransactionRequest(transaction_id=text, resolution=1)
        request.topic.name = "Transaction"
        answer = await calls.call("EndTransaction", request)
        assert answer.status.code == code

    run(tmp_path, tell)


def test_half_message_is_read_once_it_is_committed(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        await calls.show(producer("Transaction"))
        sent = await calls.send(message("Transaction", message_type=4))
        await dispatched(calls)
        assert calls.broker.store.max_offset("Transaction", 0) == 0
        request = pb.EndTransactionRequest(resolution=1)
        request.topic.name = "Transaction"
        request.transaction_id = sent.entries[0].transaction_id
        assert (await calls.call("EndTransaction", request)).status.code == Code.OK
        await dispatched(calls)
        assert calls.broker.store.max_offset("Transaction", 0) == 1
        # The id of one topic's message ends nothing in the name of another.
        request.topic.name = "Normal"
        answer = await calls.call("EndTransaction", request)
        assert answer.status.message == "The producer group wrong"

    run(tmp_path, tell)


def test_half_message_that_a_rocketmq_proxy_began_is_found_by_its_id(tmp_path: Path) -> None:
    """Such a proxy before this broker names the transaction by the id of the message."""

    async def tell(calls: Calls) -> None:
        await calls.show(producer("Transaction"))
        name = "0102030405060708090A0B0C0D0E0F1011"
        await calls.send(message("Transaction", message_type=4, message_id=name))
        await dispatched(calls)
        request = pb.EndTransactionRequest(message_id=name, resolution=1)
        for topic, text in (("Mixed", name), ("Transaction", name[:-1]), ("Transaction", "x\n")):
            request.topic.name, request.transaction_id = topic, text
            answer = await calls.call("EndTransaction", request)
            assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        request.topic.name, request.transaction_id = "Transaction", name
        answer = await calls.call("EndTransaction", request)
        assert answer.status.code == Code.OK, answer.status
        await dispatched(calls)
        assert calls.broker.store.max_offset("Transaction", 0) == 1

    run(tmp_path, tell)


def test_recall_of_what_is_no_handle_is_refused(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        request = pb.RecallMessageRequest(recall_handle="nonsense")
        request.topic.name = "Delay"
        answer = await calls.call("RecallMessage", request)
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        assert answer.status.message

    run(tmp_path, tell)


@pytest.mark.parametrize(
    "method", ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "Nonsense", ""]
)
def test_methods_that_java_does_not_serve_are_unimplemented(tmp_path: Path, method: str) -> None:
    async def tell(calls: Calls) -> None:
        answered = await calls.raw(method, b"")
        assert answered.ended is not None
        assert answered.ended[0] == UNIMPLEMENTED
        assert answered.parts == []

    run(tmp_path, tell)


def test_calls_without_a_client_id_are_refused(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        for client_id in ("", " "):
            nobody = dataclasses.replace(calls, client_id=client_id)
            answer = await nobody.send(message())
            assert answer.status.code == Code.CLIENT_ID_REQUIRED
            assert answer.status.message == "client id cannot be empty"
            (part,) = await nobody.receive("Normal", "g")
            assert part.status.code == Code.CLIENT_ID_REQUIRED
            with pytest.raises(Rejected) as rejected:
                await nobody.show(producer("Normal"))
            assert rejected.value.code is Code.CLIENT_ID_REQUIRED
        for size, code in ((1024, Code.OK), (1025, Code.REQUEST_HEADER_FIELDS_TOO_LARGE)):
            long = dataclasses.replace(calls, client_id="c" * size)
            assert (await long.send(message())).status.code == code

    run(tmp_path, tell)


def test_bytes_that_are_no_message_are_answered_and_the_front_goes_on(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        deep = pb.SendMessageRequest().SerializeToString() + b"\x0a" * 200
        for data in (b"\xff" * 10, deep):
            answered = await calls.raw("SendMessage", data)
            assert answered.ended == (INTERNAL, "Invalid protobuf byte sequence")
        unknown = pb.SendMessageRequest(messages=[message(message_type=99, body_encoding=77)])
        answer = await calls.call("SendMessage", unknown)
        assert answer.status.code == Code.OK

    run(tmp_path, tell)


def test_requests_of_more_fields_than_allowed_are_refused_unread(tmp_path: Path) -> None:
    async def tell(calls: Calls) -> None:
        many = b"\x0a\x00" * (SEND_FIELDS_MAX + 1)
        # Properties of one message, and a topic that is given again and again.
        within = b"\x12\x00" * SEND_FIELDS_MAX
        deep = b"\x0a" + _varint(len(within)) + within
        for data in (many, deep, b"\x0a\x02\x0a\x00" * SEND_FIELDS_MAX):
            answered = await calls.raw("SendMessage", data)
            answer = pb.SendMessageResponse.FromString(answered.parts[0])
            assert answer.status.code == Code.BAD_REQUEST
            assert answer.status.message == "a request of SendMessage may have 100000 fields"
        acks = b"\x1a\x00" * (FIELDS_MAX + 1)
        for data, most in ((acks, "20000 fields"), (bytes(REQUEST_MAX + 1), "1048576 bytes")):
            answered = await calls.raw("AckMessage", data)
            answer = pb.AckMessageResponse.FromString(answered.parts[0])
            assert answer.status.code == Code.BAD_REQUEST
            assert answer.status.message == f"a request of AckMessage may have {most}"
        # A long body is one field, and many messages are a batch.
        assert (await calls.send(message(body=bytes(300_000)))).status.code == Code.OK
        batch = pb.SendMessageRequest(messages=[message(user={"a": "b"}) for _ in range(2_000)])
        assert (await calls.call("SendMessage", batch)).status.code == Code.OK

    run(tmp_path, tell)


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x00" * 3_000 + b"\x0b",
        b"\x0a\x00" * 3_000 + b"\x0a\x7f",
        b"\x0a\x00" * 3_000 + b"\xff" * 11,
        b"\x0a\x00" * 3_000 + b"\x0d\x00",
    ],
)
def test_long_requests_that_are_none_are_answered(tmp_path: Path, data: bytes) -> None:
    async def tell(calls: Calls) -> None:
        answered = await calls.raw("SendMessage", data)
        assert answered.ended == (INTERNAL, "Invalid protobuf byte sequence")

    run(tmp_path, tell)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_more_calls_of_a_family_than_allowed_are_turned_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with fronted(tmp_path, ProxyLimits(port=0, in_flight_max=1)) as calls:
            answers = await asyncio.gather(*(calls.send(message()) for _ in range(3)))
            codes = sorted(answer.status.code for answer in answers)
            assert codes == [Code.OK, Code.TOO_MANY_REQUESTS, Code.TOO_MANY_REQUESTS]
            (text,) = {a.status.message for a in answers if a.status.code != Code.OK}
            assert text == "flow limit"
            assert (await calls.send(message())).status.code == Code.OK

    asyncio.run(main())


def test_clients_beyond_the_limit_are_turned_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with fronted(tmp_path, ProxyLimits(port=0, clients_max=1)) as calls:
            assert await calls.show(producer("Normal")) is None
            other = dataclasses.replace(calls, client_id="client-2")
            ended = await other.show(producer("Normal"))
            assert ended == (INVALID_ARGUMENT, "there is no room for more clients")
            assert await calls.show(producer("Normal")) is None

    asyncio.run(main())


def test_clients_of_one_address_leave_room_to_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with fronted(tmp_path, ProxyLimits(port=0, clients_max=SMALL + 5)) as calls:

            async def shown(number: int, host: str) -> tuple[int, str] | None:
                one = dataclasses.replace(calls, client_id=f"c{number}", remote=f"{host}:40001")
                return await one.show(producer("Normal"))

            assert {await shown(number, "10.0.0.1") for number in range(SMALL)} == {None}
            text = f"10.0.0.1 has {SMALL} clients: there is no room for more"
            assert await shown(SMALL, "10.0.0.1") == (INVALID_ARGUMENT, text)
            # A client that is known may come from another address and counts where it did.
            assert await shown(0, "10.0.0.2") is None
            found = [await shown(SMALL + number, "10.0.0.2") for number in range(6)]
            full = (INVALID_ARGUMENT, "there is no room for more clients")
            assert found == [None] * 5 + [full]

    asyncio.run(main())


def test_request_is_as_java_reads_it() -> None:
    assert received("t", "g").batch_size == 32
