"""The front before a cluster of two brokers: the rules of local mode, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING, Any

from grpc_calls import TOPICS, Calls, consumer, message, producer, received
from roquet.base.clock import SystemClock
from roquet.broker.api.caller import Caller
from roquet.broker.clients.registry import Client
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.proxy import messages as pb
from roquet.proxy.app import build_cluster
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.remoting.connections.connection import KEYS
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.testing.cluster import Cluster

NAMES = ("b1", "b2")
GROUP = "g"


@dataclasses.dataclass
class World(Calls):
    """A client of a proxy, and what is behind that."""

    behind: Cluster = dataclasses.field(kw_only=True)

    def named(self, name: str) -> Broker:
        """Return a broker by its name."""
        return next(one for one in self.behind.brokers if one.identity.name == name)


async def until(what: str, is_so: Callable[[], bool]) -> None:
    """Wait for a state of the world."""
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


async def make_topic(behind: Cluster, broker: Broker, name: str, kind: str) -> None:
    """Make a topic with two queues; the name server knows it."""
    fields = {"topic": name, "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    fields |= {"attributes": f"+message.type={kind}", "defaultTopic": "TBW102"}
    command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    answer = await behind.call(command, broker.identity.address)
    assert answer.code == 0, answer.remark


@contextlib.asynccontextmanager
async def before_a_cluster(
    folder: Path, rules: ProxyLimits, **changes: str
) -> AsyncGenerator[World]:
    settings = {"transactionCheckInterval": "500", "transactionTimeOut": "500", **changes}
    async with cluster(folder, *NAMES, **settings) as behind:
        for broker in behind.brokers:
            broker.metadata.groups.put(SubscriptionGroupConfig(name=GROUP))
            for name, kind in TOPICS.items() - {("Mixed", "MIXED")}:
                await make_topic(behind, broker, name, kind)
        config = ClusterConfig(name_servers=behind.name_servers)
        built = build_cluster(config, "127.0.0.1", rules, SystemClock(), random.Random(7))
        async with built.app:
            yield World(built.front, behind.broker, built.port, behind=behind)


def run(
    folder: Path,
    tell: Callable[[World], Awaitable[None]],
    rules: ProxyLimits | None = None,
    **changes: str,
) -> None:
    async def main() -> None:
        async with before_a_cluster(folder, rules or ProxyLimits(port=0), **changes) as world:
            await tell(world)

    asyncio.run(main())


def route(topic: str) -> Any:
    request = pb.QueryRouteRequest()
    request.topic.name = topic
    request.endpoints.addresses.add(host="10.1.2.3", port=9999)
    return request


async def taken(world: World, topic: str = "Normal", **more: Any) -> list[Any]:
    """Receive once; return the messages."""
    parts = await world.receive(topic, GROUP, **more)
    if parts[0].status.code == Code.MESSAGE_NOT_FOUND:
        return []
    assert parts[0].status.code == Code.OK, parts[0].status
    return [part.message for part in parts[1:-1]]


def test_route_has_queues_of_each_broker_behind_the_one_address(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        answer = await world.call("QueryRoute", route("Fifo"))
        assert answer.status.code == Code.OK, answer.status
        found = [(one.broker.name, one.id) for one in answer.message_queues]
        assert found == [("b1", 0), ("b1", 1), ("b2", 0), ("b2", 1)]
        for queue in answer.message_queues:
            (address,) = queue.broker.endpoints.addresses
            assert (address.host, address.port) == ("10.1.2.3", world.port.port)
            assert list(queue.accept_message_types) == [2]
        missing = await world.call("QueryRoute", route("nowhere"))
        assert missing.status.code == Code.TOPIC_NOT_FOUND

    run(tmp_path, tell)


def test_sends_go_to_both_brokers_and_a_group_of_messages_to_one_queue(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        for number in range(8):
            answer = await world.send(message("Normal", b"m%d" % number))
            assert answer.status.code == Code.OK, answer.status
            assert answer.entries[0].message_id
        await until(
            "dispatch",
            lambda: all(one.store.dispatch_behind() == 0 for one in world.behind.brokers),
        )
        stored = [
            [world.named(name).store.max_offset("Normal", queue) for queue in (0, 1)]
            for name in NAMES
        ]
        assert stored == [[2, 2], [2, 2]]
        for number in range(6):
            answer = await world.send(message("Fifo", b"m%d" % number, message_group="x"))
            assert answer.entries[0].offset == number

    run(tmp_path, tell)


def test_message_of_another_kind_and_a_topic_that_is_not_there_are_refused(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        answer = await world.send(message("Normal", message_group="x"))
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        answer = await world.send(message("nowhere"))
        assert answer.status.code == Code.TOPIC_NOT_FOUND

    run(tmp_path, tell)


def test_delayed_message_is_recalled_at_the_broker_that_has_it(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        asked = pb.RecallMessageRequest()
        asked.topic.name = "Delay"
        for _ in range(4):
            made = message("Delay")
            made.system_properties.delivery_timestamp.FromMilliseconds(
                SystemClock().now_ms() + 60_000
            )
            sent = await world.send(made)
            assert sent.status.code == Code.OK, sent.status
            asked.recall_handle = sent.entries[0].recall_handle
            recalled = await world.call("RecallMessage", asked)
            assert recalled.status.code == Code.OK, recalled.status
            assert recalled.message_id == made.system_properties.message_id
        asked.recall_handle = "bm9uZQ=="
        assert (await world.call("RecallMessage", asked)).status.code != Code.OK

    run(tmp_path, tell, recallMessageEnable="true")


def test_producer_and_consumer_show_settings_and_keep_them_by_heartbeats(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        assert await world.show(producer("Normal", "Transaction")) is None
        merged = world.told.commands[-1].settings
        assert merged.publishing.max_body_size == 4 << 20
        assert (await world.call("Heartbeat", pb.HeartbeatRequest())).status.code == Code.OK
        await world.show(producer("nowhere"))
        reader = dataclasses.replace(world, client_id="reader")
        assert await reader.show(consumer(GROUP, 2, "Normal")) is None
        assert reader.told.commands[-1].settings.backoff_policy.max_attempts == 17
        request = pb.HeartbeatRequest()
        request.group.name = GROUP
        assert (await reader.call("Heartbeat", request)).status.code == Code.OK

    run(tmp_path, tell)


def test_broker_that_is_away_is_named_in_the_answer_and_the_other_one_serves(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        assert (await world.send(message("Normal"))).status.code == Code.OK
        await world.named("b2").app.__aexit__()
        codes: list[int] = []
        texts: list[str] = []
        for _ in range(8):
            status = (await world.send(message("Normal"))).status
            codes.append(status.code)
            texts.append(status.message)
        assert codes.count(Code.OK) >= 4
        wrong = {text for text in texts if text != "OK"}
        assert wrong
        assert all(text.startswith("b2 ") for text in wrong), wrong

    run(tmp_path, tell)


def test_each_message_is_received_once_acknowledged_and_gone(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        bodies = {b"m%d" % number for number in range(8)}
        for body in sorted(bodies):
            await world.send(message("Normal", body))
        found: list[Any] = []
        for _ in range(8):
            found += await taken(world)
        assert {one.body for one in found} == bodies
        assert len(found) == len(bodies)
        names = {
            ReceiptHandle.decode(one.system_properties.receipt_handle).broker_name for one in found
        }
        assert names == set(NAMES)
        assert {one.system_properties.delivery_attempt for one in found} == {1}
        request = pb.AckMessageRequest()
        request.topic.name, request.group.name = "Normal", GROUP
        for one in found:
            request.entries.add(
                message_id=one.system_properties.message_id,
                receipt_handle=one.system_properties.receipt_handle,
            )
        answer = await world.call("AckMessage", request)
        assert answer.status.code == Code.OK, answer
        assert len(answer.entries) == len(bodies)

    run(tmp_path, tell)


def test_receive_names_the_broker_that_it_takes_from(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        for number in range(4):
            await world.send(message("Normal", b"m%d" % number))
        request = received("Normal", GROUP)
        request.message_queue.broker.name = "b2"
        answered = await world.raw("ReceiveMessage", request.SerializeToString())
        parts = [pb.ReceiveMessageResponse.FromString(part) for part in answered.parts]
        handles = [one.message.system_properties.receipt_handle for one in parts[1:-1]]
        assert handles
        assert {ReceiptHandle.decode(one).broker_name for one in handles} == {"b2"}
        request.message_queue.broker.name = "b3"
        answered = await world.raw("ReceiveMessage", request.SerializeToString())
        (part,) = answered.parts
        assert pb.ReceiveMessageResponse.FromString(part).status.code == Code.FORBIDDEN

    run(tmp_path, tell)


def test_changed_invisible_time_has_a_new_handle_and_brings_the_message_again(
    tmp_path: Path,
) -> None:
    async def tell(world: World) -> None:
        await world.send(message("Normal", b"again"))
        (first,) = [*await taken(world), *await taken(world)]
        request = pb.ChangeInvisibleDurationRequest(
            message_id=first.system_properties.message_id,
            receipt_handle=first.system_properties.receipt_handle,
        )
        request.topic.name, request.group.name = "Normal", GROUP
        request.invisible_duration.FromMilliseconds(1000)
        changed = await world.call("ChangeInvisibleDuration", request)
        assert changed.status.code == Code.OK, changed.status
        assert changed.receipt_handle != first.system_properties.receipt_handle
        found: list[Any] = []
        for _ in range(12):
            found += await taken(world)
            if found:
                break
        assert [(one.body, one.system_properties.delivery_attempt) for one in found] == [
            (b"again", 2)
        ]

    run(tmp_path, tell)


def test_handle_of_no_broker_here_and_one_that_is_none_are_refused(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        request = pb.AckMessageRequest()
        request.topic.name, request.group.name = "Normal", GROUP
        now_ms = SystemClock().now_ms()
        for text in (f"0 {now_ms} 60000 0 0 b3 0 0 0", "nothing"):
            request.entries.add(message_id="m", receipt_handle=text)
        answer = await world.call("AckMessage", request)
        assert [entry.status.code for entry in answer.entries] == [
            Code.BAD_REQUEST,
            Code.INVALID_RECEIPT_HANDLE,
        ]

    run(tmp_path, tell)


def test_forwarded_message_lies_among_the_dead_letters_of_its_broker(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.send(message("Normal", b"dead"))
        (one,) = [*await taken(world), *await taken(world)]
        system = one.system_properties
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            message_id=system.message_id, receipt_handle=system.receipt_handle
        )
        request.topic.name, request.group.name = "Normal", GROUP
        answer = await world.call("ForwardMessageToDeadLetterQueue", request)
        assert answer.status.code == Code.OK, answer.status
        broker = world.named(ReceiptHandle.decode(system.receipt_handle).broker_name)
        await until("the dead letter", lambda: broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1)

    run(tmp_path, tell)


def test_message_of_a_push_consumer_is_renewed_at_its_broker(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.show(consumer(GROUP, 2, "Normal"))
        await world.send(message("Normal", b"long"))
        found: list[Any] = []
        while not found:
            found = await taken(world, auto_renew=True)
        assert len(world.front.renewals) == 1
        await world.front.renewals.round()
        system = found[0].system_properties
        (session,) = world.front.sessions.all()
        names = GROUP, system.message_id, system.receipt_handle
        async with world.front.renewals.settling(session, *names) as current:
            pass
        assert current != system.receipt_handle
        assert ReceiptHandle.decode(current).invisible_ms == 60_000
        request = pb.AckMessageRequest()
        request.topic.name, request.group.name = "Normal", GROUP
        request.entries.add(message_id=system.message_id, receipt_handle=current)
        assert (await world.call("AckMessage", request)).status.code == Code.OK
        assert len(world.front.renewals) == 0

    # So far ahead that each is due at once.
    run(tmp_path, tell, ProxyLimits(port=0, renew_ahead_ms=100_000))


class _Elsewhere:
    """A connection of another host to a broker."""

    address, key, is_open = "10.9.8.7:1", next(KEYS), True

    def send_one_way(self, command: Command) -> None:
        """Hear nothing."""

    async def call(self, command: Command, timeout_s: float) -> Command:
        raise NotImplementedError

    def close(self, why: str) -> None:
        """Stay."""


def test_half_message_ends_at_its_broker_through_another_proxy(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        sent = await world.send(message("Transaction", b"half", message_type=4))
        text = sent.entries[0].transaction_id
        assert text[32:] in NAMES
        config = ClusterConfig(name_servers=world.behind.name_servers)
        rng = random.Random(8)
        other = build_cluster(config, "127.0.0.1", ProxyLimits(port=0), SystemClock(), rng)
        elsewhere = Client(
            peer=_Elsewhere(),
            client_id="elsewhere",
            language="JAVA",
            version=513,
            heard_at_ms=SystemClock().now_ms(),
        )
        data = HeartbeatData(client_id="elsewhere", producers=("Transaction",), consumers=())
        caller = Caller(address=elsewhere.peer.address)
        await world.named(text[32:]).local.clients.heartbeat(data, elsewhere, caller)
        async with other.app:
            there = dataclasses.replace(world, front=other.front)
            request = pb.EndTransactionRequest(transaction_id=text, resolution=1)
            request.topic.name = "Transaction"
            answer = await there.call("EndTransaction", request)
            assert answer.status.code == Code.OK, answer.status
            for wrong in (text[:32], text[:32] + "b3"):
                request.transaction_id = wrong
                answer = await there.call("EndTransaction", request)
                assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        found = [*await taken(world, "Transaction"), *await taken(world, "Transaction")]
        assert [one.body for one in found] == [b"half"]

    run(tmp_path, tell)


def test_half_message_that_a_rocketmq_proxy_began_is_found_by_its_id(tmp_path: Path) -> None:
    """Such a proxy names the transaction by the id of the message."""

    async def tell(world: World) -> None:
        name = "0102030405060708090A0B0C0D0E0F1011"
        half = message("Transaction", b"half", message_type=4, message_id=name)
        assert (await world.send(half)).status.code == Code.OK
        await until(
            "dispatch",
            lambda: all(one.store.dispatch_behind() == 0 for one in world.behind.brokers),
        )
        request = pb.EndTransactionRequest(message_id=name, resolution=1)
        for topic, text in (("Normal", name), ("Transaction", name[:-1]), ("Transaction", "\n")):
            request.topic.name, request.transaction_id = topic, text
            answer = await world.call("EndTransaction", request)
            assert answer.status.code in {Code.INTERNAL_SERVER_ERROR, Code.INVALID_TRANSACTION_ID}
        request.topic.name, request.transaction_id = "Transaction", name
        answer = await world.call("EndTransaction", request)
        assert answer.status.code == Code.OK, answer.status
        found = [*await taken(world, "Transaction"), *await taken(world, "Transaction")]
        assert [one.body for one in found] == [b"half"]

    run(tmp_path, tell)


def test_broker_asks_a_producer_of_the_proxy_about_a_half_message(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.show(producer("Transaction"))
        sent = await world.send(message("Transaction", b"half", message_type=4))
        orphans: list[Any] = []

        def is_asked() -> bool:
            orphans[:] = [
                one.recover_orphaned_transaction_command
                for one in world.told.commands
                if one.WhichOneof("command") == "recover_orphaned_transaction_command"
            ]
            return bool(orphans)

        await until("a question", is_asked)
        asked = orphans[0]
        assert asked.message.body == b"half"
        assert asked.message.topic.name == "Transaction"
        assert asked.transaction_id[32:] == sent.entries[0].transaction_id[32:]
        request = pb.EndTransactionRequest(
            transaction_id=asked.transaction_id, resolution=1, source=2
        )
        request.topic.name = "Transaction"
        assert (await world.call("EndTransaction", request)).status.code == Code.OK
        found: list[Any] = []
        for _ in range(4):
            found += await taken(world, "Transaction")
        assert [one.body for one in found] == [b"half"]

    run(tmp_path, tell)
