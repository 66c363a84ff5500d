"""Assignment of queues by the broker: shares as Java's, request modes, and routes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import play
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.base.errors import TableFull, Unreachable
from roquet.broker.remoting.clients.topic_queues import TopicQueues
from roquet.broker.services.clients.assignments import AssignmentConfig
from roquet.broker.state import Identity
from roquet.model.balance import STRATEGIES, pop_share
from roquet.model.queue import MessageQueue
from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.protocol.bodies.assignments import (
    QueryAssignmentBody,
    RequestModeTable,
    decode_assignments,
    request_mode_json,
)
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.bodies.routes import encode_route
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.store.tables import request_modes
from roquet.store.tables.files import JsonFile
from roquet.store.tables.request_modes import RequestModes
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from roquet.testing.cluster import Cluster

VECTORS = Path(__file__).parents[2] / "vectors/pop/shares.jsonl"
POP = GroupRequestMode(topic="Orders", group="g", mode=RequestMode.POP, pop_share=3)


def test_shares_are_those_of_java() -> None:
    lines = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    assert len(lines) == 720
    for line in lines:
        queues = [MessageQueue("T", "ab"[i % 2], i // 2) for i in range(line["queues"])]
        members = [f"c{i}" for i in range(line["members"])]
        strategy, me = STRATEGIES[line["strategy"]], f"c{line['me']}"
        if line["share"] == -2:
            got = strategy(queues, members, me)
        else:
            got = pop_share(strategy, queues, members, me, line["share"])
        shown = [f"{queue.broker_name}{queue.queue_id}" for queue in sorted(got)]
        assert shown == line["got"], line


async def ask(
    it: Cluster, **changes: str
) -> tuple[Command, dict[MessageQueue, RequestMode] | None]:
    values: dict[str, Any] = {
        "topic": "Orders",
        "group": "g",
        "client_id": it_id(it),
        "strategy": "AVG",
        **changes,
    }
    body = QueryAssignmentBody(**values).encode()
    answer = await it.call(Command(RequestCode.QUERY_ASSIGNMENT, body=body))
    return answer, decode_assignments(answer.body) if answer.code == 0 else None


def it_id(it: Cluster) -> str:
    return f"client@{it.broker.listeners.port}"


async def join(it: Cluster) -> None:
    heartbeat = HeartbeatData(client_id=it_id(it), consumers=(ConsumerData(group="g"),))
    answer = await it.call(Command(RequestCode.HEART_BEAT, body=heartbeat.encode()))
    assert answer.code == 0


async def set_mode(it: Cluster, mode: GroupRequestMode) -> Command:
    body = json.dumps(request_mode_json(mode)).encode()
    return await it.call(Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body))


def test_member_gets_its_queues_and_how_to_fetch_them(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        _, unknown_member = await ask(it)
        assert unknown_member is None, "no heartbeat yet: the client keeps what it has"
        await join(it)
        _, pulled = await ask(it)
        queues = [MessageQueue("Orders", "broker-a", number) for number in range(len(pulled or ()))]
        assert pulled == dict.fromkeys(queues, RequestMode.PULL)
        assert queues
        assert (await set_mode(it, POP)).code == 0
        _, popped = await ask(it)
        assert popped == {MessageQueue("Orders", "broker-a", -1): RequestMode.POP}
        _, everything = await ask(it, model="BROADCASTING")
        assert everything == dict.fromkeys(queues, RequestMode.POP)
        for changes in ({"strategy": "CONFIG"}, {"topic": "None"}, {"client_id": " "}):
            answer, nothing = await ask(it, **changes)
            assert (answer.code, nothing) == (0, None)
        _, stranger = await ask(it, client_id="stranger", group="g", topic="Orders")
        assert stranger == {MessageQueue("Orders", "broker-a", -1): RequestMode.POP}
        _, light = await ask(it, topic="%LMQ%light")
        assert light == {MessageQueue("%LMQ%light", "broker-a", 0): RequestMode.PULL}

    play(tmp_path, tell)


def test_defaults_follow_the_settings_but_a_retry_topic_is_always_pulled(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        await join(it)
        _, popped = await ask(it)
        assert popped == {MessageQueue("Orders", "broker-a", -1): RequestMode.POP}
        _, retried = await ask(it, topic="%RETRY%g")
        assert set((retried or {}).values()) == {RequestMode.PULL}

    play(tmp_path, tell, defaultMessageRequestMode="POP", defaultPopShareQueueNum="-1")


def test_queues_of_a_popping_member_are_shared_as_far_as_the_settings_say(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        async with contextlib.AsyncExitStack() as stack:
            for name in ("a", "b", "c", "d"):
                client = Client(clock=SystemClock())
                await client.start()
                stack.push_async_callback(client.stop)
                heartbeat = HeartbeatData(client_id=name, consumers=(ConsumerData(group="g"),))
                command = Command(RequestCode.HEART_BEAT, body=heartbeat.encode())
                assert (await client.call(it.address, command, 20.0)).code == 0
            _, found = await ask(it, client_id="b")
        # Its own queue, and that of the next member.
        queues = [MessageQueue("Orders", "broker-a", number) for number in (1, 2)]
        assert found == dict.fromkeys(queues, RequestMode.POP)

    play(tmp_path, tell, defaultMessageRequestMode="POP", defaultPopShareQueueNum="1")


def test_without_balancing_everybody_is_told_all_queues(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        _, found = await ask(it, client_id="nobody", strategy="unknown")
        assert found

    play(tmp_path, tell, serverLoadBalancerEnable="false")


def test_mode_is_kept_over_a_restart_in_java_s_form(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        await join(it)
        assert (await set_mode(it, POP)).code == 0

    async def again(it: Cluster) -> None:
        answer = await it.call(Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        assert RequestModeTable.decode(answer.body).modes == (POP,)

    play(tmp_path, tell)
    (file,) = tmp_path.rglob("messageRequestMode.json")
    assert file.read_text() == (
        '{\n\t"messageRequestModeMap":{\n\t\t"Orders":{\n\t\t\t"g":{\n\t\t\t\t"consumerGroup":"g",'
        '\n\t\t\t\t"mode":"POP",\n\t\t\t\t"popShareQueueNum":3,\n\t\t\t\t"topic":"Orders"\n\t\t\t}'
        "\n\t\t}\n\t}\n}"
    )
    play(tmp_path, again)


@pytest.mark.parametrize(
    ("topic", "group", "code", "remark"),
    [
        ("%RETRY%g", "g", 16, "retry topic is not allowed to set mode"),
        ("None", "g", 17, "topic[None] not exist"),
        ("Orders", "unknown", 26, "subscription group does not exist"),
    ],
)
def test_mode_of_what_is_unknown_is_refused(
    tmp_path: Path, topic: str, group: str, code: int, remark: str
) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        answer = await set_mode(it, GroupRequestMode(topic=topic, group=group))
        assert (answer.code, answer.remark) == (code, remark)

    play(tmp_path, tell, autoCreateSubscriptionGroup="false")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b'{"topic":[]}',
        b'{"topic":null,"mode":7}',
        b"{" * 5000,
        b'{"topic":"Orders","consumerGroup":"g","mode":"PUSH","messageModel":"NONE"}',
    ],
)
def test_bad_body_gets_an_answer(tmp_path: Path, body: bytes) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("Orders")
        for code in (RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE):
            answer = await it.call(Command(code, body=body))
            assert answer.code in (1, 17, 29)
            assert answer.remark
            assert "Traceback" not in answer.remark

    play(tmp_path, tell)


class NameServers:
    """Two of them, with a route that the test changes."""

    def __init__(self) -> None:
        self.route = TopicRoute(
            queues=(
                QueueData(broker_name="a", read_queues=2, write_queues=1),
                QueueData(broker_name="b", read_queues=1, write_queues=4),
                QueueData(broker_name="c", read_queues=9, write_queues=9, perm=2),
            ),
            brokers=(BrokerData(cluster="c", broker_name="a", addresses={0: "x:1"}),),
        )
        self.code = 0
        self.asked: list[str] = []
        self.away: set[str] = set()

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        assert timeout_s == 3.0
        self.asked.append(address)
        await asyncio.sleep(0)
        if address in self.away:
            raise Unreachable("away")
        return Command(self.code, flag=1, body=encode_route(self.route, standard=True))


IDENTITY = Identity(cluster="c", name="a", broker_id=0, ip="x", ha_ip="x", port=1, ha_port=2)


def routes(
    caller: NameServers, clock: FakeClock, rules: AssignmentConfig | None = None
) -> TopicQueues:
    found = rules or AssignmentConfig()
    return TopicQueues(
        caller,
        ("n1:1", "n2:1"),
        None,  # type: ignore[arg-type]
        identity=IDENTITY,
        period_ms=lambda: found.routes_ms,
        clock=clock,
    )


@pytest.mark.parametrize(
    "code", [RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE]
)
def test_bad_body_is_no_failure_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: RequestCode
) -> None:
    async def tell(it: Cluster) -> None:
        answer = await it.call(Command(code, body=b"["))
        assert answer.code == 1
        assert "the body cannot be read" in (answer.remark or "")

    play(tmp_path, tell)
    assert not [record for record in caplog.records if record.exc_info]


def test_queues_are_those_of_all_brokers_and_asked_for_once_a_period() -> None:
    async def story() -> None:
        caller, clock = NameServers(), FakeClock()
        queues = routes(caller, clock)
        wanted = frozenset(
            {MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0)}
        )
        assert set(await asyncio.gather(queues.of("T"), queues.of("T"))) == {wanted}
        assert caller.asked == ["n1:1"]
        await clock.advance(29)
        assert await queues.of("T") == wanted
        await clock.advance(2)
        caller.away.add("n1:1")
        caller.route = TopicRoute()
        assert await queues.of("T") == frozenset()
        assert caller.asked == ["n1:1", "n1:1", "n2:1"]

    asyncio.run(story())


def test_queues_are_asked_for_again_after_the_time_of_the_settings() -> None:
    rules, _ = load(AssignmentConfig, {"loadBalancePollNameServerInterval": "5000"}, {}, {})

    async def story() -> None:
        caller, clock = NameServers(), FakeClock()
        queues = routes(caller, clock, rules)
        for seconds, asked in ((0, 1), (4, 1), (2, 2)):
            await clock.advance(seconds)
            await queues.of("T")
            assert len(caller.asked) == asked

    asyncio.run(story())


def test_last_route_counts_while_no_name_server_answers_and_not_when_the_topic_is_gone() -> None:
    async def story() -> None:
        caller, clock = NameServers(), FakeClock()
        queues = routes(caller, clock)
        caller.away |= {"n1:1", "n2:1"}
        assert await queues.of("T") is None
        caller.away.clear()
        before = await queues.of("T")
        await clock.advance(40)
        caller.away |= {"n1:1", "n2:1"}
        assert await queues.of("T") == before
        caller.away.clear()
        caller.code = 17
        assert await queues.of("T") is None

    asyncio.run(story())


def test_table_of_modes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_modes, "MODES_MAX", 1)
    modes = RequestModes(JsonFile(tmp_path / "modes.json"))
    modes.put(POP)
    modes.put(POP)
    with pytest.raises(TableFull):
        modes.put(GroupRequestMode(topic="Other", group="g"))
