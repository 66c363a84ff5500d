"""Pulls with SQL92 filters over real sockets."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from broker_harness import dispatched, play, records
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

ON = {"enablePropertyFilter": "true"}
BY_SQL = {"expressionType": "SQL92", "subscription": "price > 2 AND color = 'red'"}
WAIT = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}


async def offer(it: Cluster, *prices: int, topic: str = "orders", more: str = "") -> None:
    for price in prices:
        color = "red" if price % 2 else "blue"
        text = f"price\x01{price}\x02color\x01{color}\x02{more}"
        await it.send(topic, b"%d" % price, properties=text)
    await dispatched(it)


def orders(it: Cluster, name: str = "orders") -> None:
    it.broker.metadata.topics.put(TopicConfig(name=name, read_queues=1, write_queues=1))


async def beat(it: Cluster, expression: str, version: int, topic: str = "orders") -> None:
    subscription = {
        "topic": topic,
        "subString": expression,
        "expressionType": "SQL92",
        "subVersion": version,
    }
    consumer = {
        "groupName": "readers",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": []})
    answer = await it.call(Command(RequestCode.HEART_BEAT, ext={}, body=body.encode()))
    assert answer.code == 0


def test_an_expression_of_the_pull_chooses(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        await offer(it, 1, 2, 3, 4, 5)
        answer = await it.pull("orders", **BY_SQL)
        assert [record.body for record in records(answer)] == [b"3", b"5"]
        assert answer.ext is not None
        assert answer.ext["nextBeginOffset"] == "5"
        nothing = await it.pull("orders", expressionType="SQL92", subscription="price > 90")
        assert (nothing.code, nothing.remark) == (20, "NO_MATCHED_MESSAGE")

    play(tmp_path, tell, **ON)


def test_what_a_pull_brings_is_judged_once_and_then_taken_by_the_fast_path(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        await offer(it, 1, 2, 3, more="TAGS\x01T\x02")
        tags = {"sysFlag": "4", "subscription": "T || U"}
        await it.pull("orders")  # Makes the group.
        for wanted, bodies in ((BY_SQL, [b"3"]), (tags, [b"1", b"2", b"3"])):
            before = it.broker.path.native.counters()["pulls"]
            for taken in (0, 1, 2):
                answer = await it.pull("orders", **wanted)
                assert [record.body for record in records(answer)] == bodies
                assert it.broker.path.native.counters()["pulls"] == before + taken
        bad = {**BY_SQL, "subscription": "price >"}
        assert [(await it.pull("orders", **bad)).code for _ in range(2)] == [23, 23]

    play(tmp_path, tell, **ON)


def test_the_filter_of_a_heartbeat_is_followed_by_the_fast_path(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        await offer(it, 1, 2, 3)
        by_group = {"sysFlag": "0", "subscription": "", "expressionType": "SQL92"}
        await beat(it, "price = 1", 1)
        first = await it.pull("orders", subVersion="1", **by_group)
        await beat(it, "price = 2", 2)
        second = await it.pull("orders", subVersion="2", **by_group)
        assert [record.body for record in records(first) + records(second)] == [b"1", b"2"]
        assert it.broker.path.native.counters()["pulls"] == 2
        assert (await it.pull("orders", subVersion="3", **by_group)).code == 25

    play(tmp_path, tell, **ON)


def test_a_held_pull_is_woken_by_a_match_only(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        waiting = asyncio.create_task(it.pull("orders", **{**BY_SQL, **WAIT}))
        await asyncio.sleep(0.1)
        await offer(it, 1, 2, 4)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await offer(it, 7)
        answer = await asyncio.wait_for(waiting, 30)
        assert [record.body for record in records(answer)] == [b"7"]

    play(tmp_path, tell, **ON)


def test_the_heartbeats_filter_is_used_and_its_version_is_checked(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        await offer(it, 1, 2, 3)
        await beat(it, "price = 3", 100)
        answer = await it.pull("orders", sysFlag="0", subVersion="100")
        assert [record.body for record in records(answer)] == [b"3"]
        assert (await it.pull("orders", sysFlag="0", subVersion="101")).code == 25
        await beat(it, "price = ", 200)
        answer = await it.pull("orders", sysFlag="0", subVersion="200")
        assert answer.code == 28
        await beat(it, "price = 1", 300)
        answer = await it.pull("orders", sysFlag="0", subVersion="300")
        assert [record.body for record in records(answer)] == [b"1"]

    play(tmp_path, tell, **ON)


def test_a_filter_that_never_parsed_does_not_exist(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        await beat(it, "((", 100)
        answer = await it.pull("orders", sysFlag="0", subVersion="100")
        assert answer.code == 27

    play(tmp_path, tell, **ON)


def test_b11_a_wrong_expression_is_23_and_an_unserved_language_1(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        await offer(it, 1)
        assert (await it.pull("orders", expressionType="SQL92", subscription="price >")).code == 23
        deep = "(" * 1000 + "price = 1" + ")" * 1000
        assert (await it.pull("orders", expressionType="SQL92", subscription=deep)).code == 23
        assert (await it.pull("orders", expressionType="XPATH", subscription="//a")).code == 1

    play(tmp_path, tell, **ON)


def test_without_the_setting_sql_is_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        orders(it)
        answer = await it.pull("orders", **BY_SQL)
        assert answer.code == 1
        assert answer.remark is not None
        assert answer.remark.endswith("does not support consumer to filter message by SQL92")

    play(tmp_path, tell)


def test_clients_may_ask_first(tmp_path: Path) -> None:
    async def ask(it: Cluster, expression: str) -> int:
        body = {
            "clientId": "c",
            "group": "readers",
            "subscriptionData": {
                "topic": "orders",
                "subString": expression,
                "expressionType": "SQL92",
            },
        }
        command = Command(RequestCode.CHECK_CLIENT_CONFIG, ext={}, body=json.dumps(body).encode())
        return (await it.call(command)).code

    async def tell(it: Cluster) -> None:
        assert await ask(it, "price > 3") == 0
        assert await ask(it, "price >") == 23

    play(tmp_path, tell, **ON)


def test_retried_messages_are_filtered_by_their_origin_when_wanted(tmp_path: Path) -> None:
    retries = "%RETRY%readers"

    async def tell(it: Cluster) -> None:
        orders(it)
        orders(it, retries)
        await beat(it, "price = 3", 100)
        await offer(it, 1, 3, topic=retries, more="RETRY_TOPIC\x01orders\x02")
        await offer(it, 4, topic=retries, more="RETRY_TOPIC\x01unknown\x02")
        answer = await it.pull(retries)
        assert [record.body for record in records(answer)] == [b"3", b"4"]

    play(tmp_path, tell, **ON, filterSupportRetry="true")
