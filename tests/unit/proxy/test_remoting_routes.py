"""What the proxy's remoting port says of topics, and which broker a request reaches by its name."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from remoting_harness import on_loop, until
from remoting_proxy_harness import proxy, proxy_client, until_so
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.protocol import names
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.proxy.remoting.limits import ROUTE_FIELDS_MAX
from roquet.proxy.remoting.routes import through
from roquet.testing.cluster import cluster, pull_command, send_command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TOPIC = "Through"


def test_route_keeps_queues_and_names_one_address() -> None:
    route = TopicRoute(
        queues=(
            QueueData(broker_name="a", read_queues=8, write_queues=4, perm=6),
            QueueData(broker_name="b", read_queues=2, write_queues=2, perm=6),
        ),
        brokers=(
            BrokerData(cluster="c", broker_name="a", addresses={0: "10.0.0.1:1", 2: "10.0.0.2:1"}),
            BrokerData(cluster="c", broker_name="b", addresses={3: "10.0.0.3:1"}),
        ),
        order_topic_conf="a:4",
    )
    shown = through(route, "192.0.2.9:8080")
    assert [dict(broker.addresses) for broker in shown.brokers] == [{0: "192.0.2.9:8080"}] * 2
    assert [broker.broker_name for broker in shown.brokers] == ["a", "b"]
    assert shown.queues[0] == route.queues[0]
    # Without a master nobody could write there: the addresses do not show it any more.
    assert (shown.queues[1].perm, shown.queues[1].read_queues) == (4, 2)
    assert shown.order_topic_conf == "a:4"


@on_loop
async def _both_brokers(folder: Path) -> None:
    async with cluster(folder, "broker-a", "broker-b") as it, proxy(it.name_servers) as door:
        for broker in it.brokers:
            answer = await it.call(send_command(TOPIC, b"made"), broker.identity.address)
            assert answer.code == 0, answer.remark
        async with proxy_client(door) as client:
            await until(lambda: len(it.name_server.table.topics.get(TOPIC, {})) == 2)
            route = await client.route(TOPIC)
            own = {0: f"127.0.0.1:{door.server.port}"}
            assert {it.broker_name: dict(it.addresses) for it in route.brokers} == {
                "broker-a": own,
                "broker-b": own,
            }
            for name in ("broker-a", "broker-b"):
                assert (await client.send(TOPIC, name)).code == 0

                async def received(broker: str = name) -> bool:
                    return b"hello" in (await client.pull(TOPIC, 1, broker)).body

                await until_so(received)
        for broker in it.brokers:
            assert broker.store.max_offset(TOPIC, 0) == 2


def test_requests_reach_the_broker_that_they_name(tmp_path: Path) -> None:
    _both_brokers(tmp_path)


@on_loop
async def _refusals(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(folder) as it, proxy(it.name_servers) as door, proxy_client(door) as client:
        assert (await it.send(TOPIC)).code == 0
        unnamed = await client.call(send_command(TOPIC, b"from 4.x"))
        assert unnamed.code == 15
        assert (unnamed.remark or "").startswith("Request doesn't have field bname")
        assert (await client.call(pull_command(TOPIC))).code == 15
        # The names of a topic and of nothing, an address, and nonsense.
        for forged in (TOPIC, "nobody", "127.0.0.1:22", "", "x" * 300, "../etc", "a\nb"):
            answer = await client.send(TOPIC, forged)
            assert answer.code == 17, forged
            assert "no broker" in (answer.remark or ""), forged
        assert door.sessions.connections == 0
        # Code 1 for what has no answer: nobody hears of it but the log.
        lost = pull_command(TOPIC, bname="nobody")
        lost.flag = FLAG_ONE_WAY
        with caplog.at_level(logging.WARNING):
            await client.tell(lost)
            await until(lambda: "is lost" in caplog.text)
        other = await client.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "T"}))
        assert other.code == 3
        missing = await client.call(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "gone"}))
        assert missing.code == 17
        big = Command(RequestCode.GET_MAX_OFFSET, {"bname": "broker-a"}, b"x" * 5000)
        assert (await client.call(big)).code == 29


@on_loop
async def _long(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(folder) as it, proxy(it.name_servers) as door, proxy_client(door) as client:
        assert (await it.send(TOPIC)).code == 0
        code, most = RequestCode.GET_ROUTEINFO_BY_TOPIC, names.RETRY_TOPIC_LENGTH_MAX
        longest = await client.call(Command(code, {"topic": "y" * most}))
        assert (longest.code, "No topic route info" in (longest.remark or "")) == (17, True)
        for length in (most + 1, 60_000, 1_000_000):
            name = "y" * length
            missing = await client.call(Command(code, {"topic": name}))
            assert missing.code == 17
            assert missing.remark == f"no topic has a name of {length} characters"
            assert (await client.beat("long", "readers", name[:60_000])).code == 0
            sent = await client.send(name)
            assert sent.code != 0
        # Signed questions are remembered as they came.
        fields = {"topic": TOPIC, "Signature": "any", "AccessKey": "ann"}
        assert (await client.call(Command(code, fields))).code == 0
        large = await client.call(Command(code, {**fields, "more": "x" * ROUTE_FIELDS_MAX}))
        assert (large.code, f"may have {ROUTE_FIELDS_MAX}" in (large.remark or "")) == (29, True)
        assert "Traceback" not in caplog.text


def test_long_names_and_fields_are_refused_and_not_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _long(tmp_path, caplog)


def test_unnamed_unknown_and_forged_brokers_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _refusals(tmp_path, caplog)


@on_loop
async def _types(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        door = await stack.enter_async_context(proxy(it.name_servers))
        client = await stack.enter_async_context(proxy_client(door))
        for topic, kind in (("Plain", "NORMAL"), ("Rows", "FIFO"), ("Later", "DELAY")):
            fields = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "2",
                "writeQueueNums": "2",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": f"+message.type={kind}",
            }
            made = await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
            assert made.code == 0, made.remark
        delayed = "TIMER_DELAY_SEC\x011\x02"
        codes = {
            (topic, text): (await client.send(topic, properties=text)).code
            for topic in ("Plain", "Rows", "Later", "untyped")
            for text in ("", delayed)
        }
        assert codes == {
            ("Plain", ""): 0,
            ("Plain", delayed): 13,
            ("Rows", ""): 13,
            ("Rows", delayed): 13,
            ("Later", ""): 13,
            ("Later", delayed): 0,
            # A topic that its first send makes is for normal messages.
            ("untyped", ""): 0,
            ("untyped", delayed): 13,
        }
        refused = await client.send("Rows")
        assert "expected type is FIFO, but actual type is NORMAL" in (refused.remark or "")
        recall = Command(RequestCode.RECALL_MESSAGE, {"topic": "Plain", "bname": "broker-a"})
        assert (await client.call(recall)).code == 13
        unchecked = proxy(it.name_servers, enableTopicMessageTypeCheck="false")
        other = await stack.enter_async_context(
            proxy_client(await stack.enter_async_context(unchecked))
        )
        assert (await other.send("Rows")).code == 0


def test_messages_of_another_type_than_the_topic_are_refused(tmp_path: Path) -> None:
    _types(tmp_path)


@on_loop
async def _stale(folder: Path) -> None:
    async with cluster(folder) as it:
        assert (await it.send(TOPIC)).code == 0
        async with proxy(it.name_servers) as door, proxy_client(door) as client:
            before = await client.route(TOPIC)
            assert (await client.send(TOPIC)).code == 0
            # A route that was asked for in vain is there as soon as the name server has it.
            asked = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "new"})
            assert (await client.call(asked)).code == 17
            assert (await client.send("new")).code == 0
            await until(lambda: "new" in it.name_server.table.topics)
            assert (await client.call(asked)).code == 0
            await it.name_server.server.stop()
            assert await client.route(TOPIC) == before
            assert (await client.send(TOPIC)).code == 0
            unknown = await client.call(
                Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "never-asked"})
            )
            assert unknown.code == 1
            assert "name server" in (unknown.remark or "")


def test_routes_outlive_the_name_server(tmp_path: Path) -> None:
    _stale(tmp_path)
