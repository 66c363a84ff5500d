"""Requests over a real socket: registrations in every form, routes, lists, permissions, silence."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from namesrv_harness import Asker, Serving, looped, serving
from roquet.model.data_version import DataVersion
from roquet.model.topic import TopicConfig
from roquet.namesrv.registration import LONG
from roquet.protocol.bodies.routes import ClusterInfo, decode_member_group, decode_route
from roquet.protocol.bodies.stats import decode_kv_table
from roquet.protocol.bodies.topics import (
    TopicTableBody,
    decode_data_version,
    decode_topic_list,
    encode_data_version,
)
from roquet.protocol.command import Command
from roquet.protocol.messages.compression import REGISTER_SIZE_MAX
from roquet.protocol.registration.body import RegisterBody, crc32_of
from roquet.remoting.codec import encode
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


VERSION = DataVersion(state_version=0, timestamp=7, counter=3)


def register_body(
    topics: Sequence[str] = ("T", "U"), counter: int = 3, filters: tuple[str, ...] = ()
) -> RegisterBody:
    return RegisterBody(
        table=TopicTableBody(
            topics={name: TopicConfig(name=name, read_queues=4, write_queues=4) for name in topics},
            version=DataVersion(timestamp=7, counter=counter),
        ),
        filter_servers=filters,
    )


def register_ext(**changes: str) -> dict[str, str]:
    return {
        "brokerName": "broker-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c1",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": "0",
        **changes,
    }


async def register(asker: Asker, **changes: str) -> Command:
    return await asker.ask(103, register_ext(**changes), register_body().encode())


async def topics_of(asker: Asker) -> list[str]:
    return decode_topic_list((await asker.ask(206)).body)[0]


async def has_route(asker: Asker, topic: str) -> bool:
    return (await asker.ask(105, {"topic": topic})).code == 0


@looped
async def test_every_form_of_registration_is_understood(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        plain = register_body(("A1", "A2")).encode()
        packed = register_body(("B1", "B2")).encode(compressed=True)
        unflagged = register_body(("C1", "C2")).encode(compressed=True)
        ancient = register_body(("D1", "D2")).table.encode()
        for index, (body, compressed, version) in enumerate(
            (
                (plain, "false", 513),
                (packed, "true", 513),
                (unflagged, "false", 513),
                (ancient, "false", 30),
            )
        ):
            name = {"brokerName": f"b{index}", "brokerAddr": f"10.0.0.{index}:10911"}
            ext = register_ext(**name, compressed=compressed, bodyCrc32=str(crc32_of(body)))
            answer = await asker.ask(103, ext, body, version=version)
            assert (answer.code, answer.ext, answer.body) == (0, {}, b"")
        names = ["A1", "A2", "B1", "B2", "C1", "C2", "D1", "D2"]
        assert await topics_of(asker) == names


@looped
async def test_a_long_registration_makes_the_same_routes_as_a_short_one(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(2_000)]
    async with serving(tmp_path) as served:
        asker = await served.connect()
        long, short = register_body(names).encode(), register_body(names[:2]).encode()
        assert len(long) > LONG > len(short)
        ext = register_ext()
        assert (await asker.ask(103, ext, short)).code == 0
        short_route = (await asker.ask(105, {"topic": "t1"})).body
        assert (await asker.ask(104, ext)).code == 0
        assert not await has_route(asker, "t1")
        assert (await asker.ask(103, ext, long)).code == 0
        assert await topics_of(asker) == sorted(names)
        assert (await asker.ask(105, {"topic": "t1"})).body == short_route
        # A prime slave that stands in for its master may not be written to.
        assert (await asker.ask(104, ext)).code == 0
        slave = register_ext(brokerId="1", enableActingMaster="true")
        assert (await asker.ask(103, slave, long)).code == 0
        route = json.loads((await asker.ask(105, {"topic": "t1999"})).body)
        assert route["queueDatas"][0]["perm"] == 4


@looped
async def test_a_registration_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        body = register_body().encode()
        answer = await asker.ask(103, register_ext(bodyCrc32=str(crc32_of(body) ^ 1)), body)
        assert (answer.code, answer.remark) == (1, "crc32 not match")
        assert await topics_of(asker) == []
        assert (await asker.ask(103, register_ext(bodyCrc32="0"), body)).code == 0


@looped
async def test_a_first_registration_with_one_topic_fails_as_in_java(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        answer = await asker.ask(103, register_ext(), register_body(("T",)).encode())
        assert (answer.code, answer.remark) == (1, "register broker failed")


BAD = [
    {"brokerAddr": "127.0.0.1:22"},
    {"brokerAddr": "host:99999"},
    {"brokerAddr": "host"},
    {"brokerAddr": "10.0.0.9:10911\r\nx"},
    {"brokerAddr": ""},
    {"brokerId": "-7"},
    {"brokerId": "1_0"},
    {"brokerId": "99999999999999999999"},
    {"brokerName": ""},
    {"brokerName": "x\ny"},
    {"brokerName": "x" * 256},
    {"clusterName": "c 1"},
    {"clusterName": "another"},
    {"heartbeatTimeoutMillis": "-1"},
    {"heartbeatTimeoutMillis": "9999999999999"},
    {"__ZONE_NAME": "a\x1b[2J"},
    {"haServerAddr": "h" * 300},
]


@pytest.mark.parametrize("changes", BAD, ids=[str(bad)[:40] for bad in BAD])
@looped
async def test_b16_a_bad_registration_changes_nobody(
    changes: dict[str, str], tmp_path: Path
) -> None:
    async with serving(tmp_path) as served:
        good, bad = await served.connect(), await served.connect()
        await register(good)
        before = (await good.ask(105, {"topic": "T"})).body
        answer = await register(bad, **changes)
        assert answer.code == 29
        assert answer.remark
        assert (await good.ask(105, {"topic": "T"})).body == before
        assert ClusterInfo.decode((await good.ask(106)).body).clusters == {"c1": {"broker-a"}}


@pytest.mark.parametrize(
    "topic",
    [
        TopicConfig(name="X", read_queues=2**31 - 1),
        TopicConfig(name="X", write_queues=-1),
        TopicConfig(name="X", perm=255),
        TopicConfig(name="X\r\nY"),
        TopicConfig(name="x" * 256),
    ],
    ids=["too many queues", "negative queues", "perm", "line break", "long"],
)
@looped
async def test_a_bad_topic_refuses_the_whole_registration(
    topic: TopicConfig, tmp_path: Path
) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        table = TopicTableBody(
            topics={"T": TopicConfig(name="T"), topic.name: topic}, version=VERSION
        )
        answer = await asker.ask(103, register_ext(), RegisterBody(table=table).encode())
        assert answer.code == 29
        assert await topics_of(asker) == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"x\x9c\x00",
        b"\xff\xfe",
        b'{"topicConfigSerializeWrapper":7}',
        register_body().encode(compressed=True)[:-9],
    ],
)
@looped
async def test_an_undecodable_registration_is_refused(body: bytes, tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        answer = await asker.ask(103, register_ext(), body)
        assert (answer.code, answer.remark) == (1, "Failed to decode RegisterBrokerBody")
        assert await topics_of(asker) == []


@looped
async def test_b9_a_bomb_is_not_inflated(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(256 * 1024 * 1024), 9)
    async with serving(tmp_path) as served:
        asker = await served.connect()
        tracemalloc.start()
        try:
            answer = await asker.ask(103, register_ext(compressed="true"), bomb)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (answer.code, answer.remark) == (1, "Failed to decode RegisterBrokerBody")
        # Twice the limit, and what the request itself takes.
        assert peak < 2 * REGISTER_SIZE_MAX + 1024 * 1024
        assert await topics_of(asker) == []


@looped
async def test_a_hundred_thousand_topics_are_too_many(tmp_path: Path) -> None:
    # Before the connection: one that says nothing for seconds is closed.
    body = register_body([f"t{n}" for n in range(100_000)]).encode(compressed=True)
    async with serving(tmp_path) as served:
        asker = await served.connect()
        answer = await asker.ask(103, register_ext(compressed="true"), body)
        assert answer.code == 29
        assert await topics_of(asker) == []


@looped
async def test_a_registration_without_body_keeps_the_broker_alive_and_topicless(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        assert (await asker.ask(103, register_ext())).code == 0
        found = ClusterInfo.decode((await asker.ask(106)).body)
        assert found.brokers["broker-a"].addresses == {0: "10.0.0.1:10911"}
        assert await topics_of(asker) == []


@looped
async def test_keys_are_quoted_for_those_who_can_read_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await register(asker)
        bare, quoted = b'"brokerAddrs":{0:"10.0.0.1:10911"}', b'{"0":"10.0.0.1:10911"}'
        old = await asker.ask(105, {"topic": "T"}, version=400)
        assert bare in old.body
        asking = {"topic": "T", "acceptStandardJsonOnly": "true"}
        assert quoted in (await asker.ask(105, asking, version=400)).body
        assert quoted in (await asker.ask(105, {"topic": "T"}, version=401)).body
        assert bare in (await asker.ask(106)).body


@looped
async def test_a_route_nobody_asked_for_by_name_is_that_of_null(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        answer = await asker.ask(105, {})
        assert answer.code == 17
        assert answer.remark is not None
        assert "for the topic: null\n" in answer.remark


@looped
async def test_a_slave_is_told_of_its_master(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await register(asker)
        answer = await register(
            asker, brokerId="1", brokerAddr="10.0.0.2:10911", haServerAddr="10.0.0.2:10912"
        )
        assert answer.ext == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}
        group = await asker.ask(901, {"clusterName": "c1", "brokerName": "broker-a"})
        assert decode_member_group(group.body) == (
            "c1",
            "broker-a",
            {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
        )
        nobody = await asker.ask(901, {"clusterName": "c1", "brokerName": "nobody"})
        assert decode_member_group(nobody.body) == ("c1", "nobody", {})
        assert nobody.remark == group.remark == "not set any response code"


@looped
async def test_a_version_query_tells_whether_topics_changed(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        ext = register_ext()
        unknown = await asker.ask(322, ext, encode_data_version(VERSION))
        assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
        await register(asker)
        same = await asker.ask(322, ext, encode_data_version(VERSION))
        assert same.ext == {"changed": "false"}
        assert decode_data_version(same.body) == VERSION
        other = await asker.ask(322, ext, encode_data_version(DataVersion(counter=9)))
        assert other.ext == {"changed": "true"}
        assert decode_data_version(other.body) == VERSION
        assert (await asker.ask(322, ext, b"no json")).code == 29


@looped
async def test_lists_of_topics(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await register(asker)
        assert decode_topic_list((await asker.ask(224, {"cluster": "c1"})).body)[0] == ["T", "U"]
        assert decode_topic_list((await asker.ask(224, {"cluster": "c2"})).body)[0] == []
        assert decode_topic_list((await asker.ask(304)).body) == (
            ["broker-a", "c1"],
            "10.0.0.1:10911",
        )
        for code in (311, 312, 313):
            assert decode_topic_list((await asker.ask(code)).body)[0] == []


@looped
async def test_lists_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(tmp_path, enable_all_topic_list=False, enable_topic_list=False) as served:
        asker = await served.connect()
        for code in (206, 224, 311, 312, 313):
            answer = await asker.ask(code, {"cluster": "c1"})
            assert (answer.code, answer.remark) == (1, "disable"), code


@looped
async def test_write_permission_is_wiped_and_added(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await register(asker)

        async def perm() -> int:
            answer = await asker.ask(105, {"topic": "T"})
            return int(decode_route(answer.body).queues[0].perm)

        wiped = await asker.ask(205, {"brokerName": "broker-a"})
        assert (wiped.ext, await perm()) == ({"wipeTopicCount": "2"}, 4)
        added = await asker.ask(327, {"brokerName": "broker-a"})
        assert (added.ext, await perm()) == ({"addTopicCount": "2"}, 6)


@looped
async def test_topics_are_deleted_and_registered_by_hand(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await register(asker)
        route = (await asker.ask(105, {"topic": "T"})).body
        assert (await asker.ask(216, {"topic": "T", "clusterName": "c2"})).code == 0
        assert await has_route(asker, "T")
        assert (await asker.ask(216, {"topic": "T", "clusterName": "c1"})).code == 0
        assert not await has_route(asker, "T")
        assert (await asker.ask(216, {"topic": "U"})).code == 0
        assert await topics_of(asker) == []
        assert (await asker.ask(217, {"topic": "N"}, route)).code == 0
        assert (await asker.ask(105, {"topic": "N"})).body == route
        assert (await asker.ask(217, {"topic": "N"}, b"[")).code == 29
        assert (await asker.ask(217, {"topic": "M\n"}, route)).code == 29


@looped
async def test_unregistering_takes_effect_after_its_answer(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        await register(asker)
        assert (await asker.ask(104, register_ext())).code == 0
        assert not await has_route(asker, "T")
        await register(asker)
        # One that unregisters and registers in one breath stays.
        asker.writer.write(b"")
        assert (await asker.ask(104, register_ext())).code == 0
        assert (await register(asker)).code == 0
        assert await has_route(asker, "T")


@looped
async def test_a_broker_whose_connection_ends_is_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker, client = await served.connect(), await served.connect()
        await register(broker)
        assert await has_route(client, "T")
        broker.close()
        await broker.writer.wait_closed()
        for _ in range(100):
            if not await has_route(client, "T"):
                break
        assert not await has_route(client, "T")


@looped
async def test_a_silent_broker_expires_and_a_living_one_does_not(tmp_path: Path) -> None:
    clock = FakeClock()
    async with serving(tmp_path, clock, idle_s=100_000) as served:
        quiet, lively, client = [await served.connect() for _ in range(3)]
        await register(quiet)
        await register(
            lively, brokerName="b", brokerAddr="10.0.0.2:10911", heartbeatTimeoutMillis="30000"
        )
        for _ in range(12):
            await clock.advance(10)
            beat = {"clusterName": "c1", "brokerAddr": "10.0.0.2:10911", "brokerName": "b"}
            assert (await lively.ask(904, beat)).code == 0
        names = ClusterInfo.decode((await client.ask(106)).body).brokers
        assert set(names) == {"broker-a", "b"}
        await clock.advance(10)
        names = ClusterInfo.decode((await client.ask(106)).body).brokers
        assert set(names) == {"b"}
        await quiet.until_closed()
        await clock.advance(31)
        assert ClusterInfo.decode((await client.ask(106)).body).brokers == {}


@looped
async def test_wall_clock_that_jumps_expires_no_broker_and_keeps_no_dead_one(
    tmp_path: Path,
) -> None:
    for set_by_s in (3600, -3600):
        clock = FakeClock()
        async with serving(tmp_path, clock, idle_s=100_000) as served:
            quiet, client = await served.connect(), await served.connect()
            await register(quiet)
            clock.set_by(set_by_s)
            await clock.advance(60)
            names = ClusterInfo.decode((await client.ask(106)).body).brokers
            assert set(names) == {"broker-a"}, set_by_s
            await clock.advance(80)
            names = ClusterInfo.decode((await client.ask(106)).body).brokers
            assert names == {}, set_by_s


@looped
async def test_a_young_name_server_may_ask_for_patience(tmp_path: Path) -> None:
    clock = FakeClock()
    async with serving(
        tmp_path, clock, need_wait_for_service=True, wait_seconds_for_service=20
    ) as served:
        asker = await served.connect()
        await register(asker)
        answer = await asker.ask(105, {"topic": "T"})
        assert (answer.code, answer.remark) == (1, "name server not ready")
        await clock.advance(20)
        assert await has_route(asker, "T")


@looped
async def test_what_it_does_not_know_is_answered_three(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        for code in (10, 0, 99_999):
            answer = await asker.ask(code)
            assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


async def put(served: Serving, namespace: str, key: str, value: str) -> Command:
    asker = await served.connect()
    return await asker.ask(100, {"namespace": namespace, "key": key, "value": value})


@looped
async def test_key_values_are_kept_over_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert (await put(served, "n", "k", "v")).code == 0
        assert (await put(served, "n", "gone", "v")).code == 0
        asker = await served.connect()
        assert (await asker.ask(102, {"namespace": "n", "key": "gone"})).code == 0
        assert (await asker.ask(102, {"namespace": "no", "key": "no"})).code == 0
    async with serving(tmp_path) as served:
        asker = await served.connect()
        got = await asker.ask(101, {"namespace": "n", "key": "k"})
        assert (got.code, got.ext) == (0, {"value": "v"})
        missing = await asker.ask(101, {"namespace": "n", "key": "gone"})
        assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: gone")
        assert decode_kv_table((await asker.ask(219, {"namespace": "n"})).body) == {"k": "v"}
        nothing = await asker.ask(219, {"namespace": "m"})
        assert (nothing.code, nothing.remark) == (22, "No config item, Namespace: m")


@looped
async def test_a_broken_key_value_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    async with serving(tmp_path) as served:
        await put(served, "n", "k", "v")
        await put(served, "n", "k", "w")
    path.write_bytes(path.read_bytes()[:20])
    async with serving(tmp_path) as served:
        asker = await served.connect()
        assert (await asker.ask(101, {"namespace": "n", "key": "k"})).ext == {"value": "v"}
    assert json.loads((tmp_path / "kvConfig.json.bak").read_text())


@looped
async def test_bad_key_values_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        assert (await asker.ask(100, {"namespace": "n", "key": "k"})).code == 1
        assert (await put(served, "", "k", "v")).code == 29
        assert (await put(served, "n", "k\n", "v")).code == 29
        assert (await put(served, "n", "k", "v\nw")).code == 29
        assert not (tmp_path / "kvConfig.json").exists()


@looped
async def test_a_value_that_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        (tmp_path / "kvConfig.json.tmp").mkdir()
        answer = await put(served, "n", "k", "v")
        assert answer.code == 1
        asker = await served.connect()
        assert (await asker.ask(101, {"namespace": "n", "key": "k"})).code == 22


@looped
async def test_order_topics_go_to_brokers_and_to_clients(tmp_path: Path) -> None:
    async with serving(tmp_path, order_message_enable=True) as served:
        asker = await served.connect()
        await put(served, "ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        answer = await register(asker)
        assert decode_kv_table(answer.body) == {"T": "broker-a:4"}
        route = decode_route((await asker.ask(105, {"topic": "T"})).body)
        assert route.order_topic_conf == "broker-a:4"
        other = await asker.ask(105, {"topic": "U"})
        assert b"orderTopicConf" not in other.body
    async with serving(tmp_path, return_order_topics=False) as served:
        assert (await register(await served.connect())).body == b""


@looped
async def test_ten_thousand_topics_do_not_stop_the_answers(tmp_path: Path) -> None:
    topics = [f"topic-{number}" for number in range(10_000)]
    async with serving(tmp_path) as served:
        broker, client = await served.connect(), await served.connect()
        await register(client, brokerName="other", brokerAddr="10.0.0.9:10911")
        body = register_body(topics).encode(compressed=True)
        pauses: list[float] = []
        async with asyncio.TaskGroup() as group:
            registering = group.create_task(broker.ask(103, register_ext(compressed="true"), body))
            while not registering.done():
                begin = time.perf_counter()
                assert await has_route(client, "T")
                pauses.append(time.perf_counter() - begin)
        assert registering.result().code == 0
        assert await has_route(client, "topic-9999")
    # Read on the loop it would be one pause of the whole work, and two answers at most.
    assert len(pauses) > 5


@looped
async def test_a_departure_right_behind_a_long_registration_comes_second(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        asker = await served.connect()
        body = register_body([f"topic-{n}" for n in range(3_000)]).encode(compressed=True)
        come = Command(code=103, ext=register_ext(compressed="true"), body=body)
        leave = Command(code=104, ext=register_ext())
        asker.writer.write(encode(come, opaque=1, flag=0) + encode(leave, opaque=2, flag=0))
        answers = [await asker.answer(), await asker.answer()]
        assert [(one.opaque, one.code) for one in answers] == [(1, 0), (2, 0)]
        assert not await has_route(asker, "topic-1")
        assert await topics_of(asker) == []


@looped
async def test_a_broker_that_left_while_its_registration_was_read_is_not_kept(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        broker, client = await served.connect(), await served.connect()
        body = register_body([f"topic-{n}" for n in range(3_000)]).encode(compressed=True)
        command = Command(code=103, ext=register_ext(compressed="true"), body=body)
        broker.writer.write(encode(command, opaque=1, flag=0))
        await broker.writer.drain()
        broker.close()
        for _ in range(50):
            await asyncio.sleep(0.01)
            assert not await has_route(client, "topic-1")


@looped
async def test_its_numbers_can_be_scraped(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics="PROM", metrics_port=0) as served:
        await register(await served.connect())
        assert served.namesrv.health is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", served.namesrv.health.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        shown = (await reader.read()).decode().splitlines()
        writer.close()
        assert shown[0] == "HTTP/1.1 200 OK"
        assert {"roquet_brokers 1.0", "roquet_topics 2.0", "roquet_connections 1.0"} <= set(shown)


@looped
async def test_broker_below_the_smallest_port_of_the_settings_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, broker_port_min=20_000) as served:
        asker = await served.connect()
        body = register_body().encode(compressed=False)
        for port, code in (("10911", 29), ("19999", 29), ("20000", 0)):
            address = f"10.0.0.1:{port}"
            answer = await asker.ask(103, register_ext(brokerAddr=address), body)
            assert answer.code == code, (port, answer.remark)
