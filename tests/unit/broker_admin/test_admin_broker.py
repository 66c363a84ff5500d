"""Administration of a whole broker with its name server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.protocol.bodies.stats import TopicStats, decode_kv_table
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = {
    "topic": "Orders",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (threads and sockets set no events)
            await asyncio.sleep(0.005)


async def routed(it: Cluster, perm: int) -> None:
    """Wait until the name server gives a topic this permission."""
    question = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Orders"})
    wanted = f'"perm":{perm}'.encode()
    for _ in range(3000):
        if wanted in (await it.call(question, it.name_servers)).body:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(perm)


async def change(it: Cluster, text: bytes) -> Command:
    return await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=text))


def test_permission_reaches_sends_and_the_name_server(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as it:
            assert (await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC))).code == 0
            await routed(it, 6)
            assert (await change(it, b"brokerPermission=4")).code == 0
            await routed(it, 4)
            assert (await change(it, b"brokerPermission=6")).code == 0
            await routed(it, 6)
            assert (await it.send("Orders")).code == 0

    asyncio.run(main())


def test_live_settings_have_effect(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as it:
            assert (await it.send("Auto1")).code == 0
            assert (await change(it, b"autoCreateTopicEnable=false")).code == 0
            refused = await it.send("Auto2")
            assert (refused.code, it.broker.metadata.topics.get("Auto2")) == (17, None)
            later = b"startAcceptSendRequestTimeStamp=9000000000000"
            assert (await change(it, later)).code == 0
            refused = await it.send("Auto1")
            assert (refused.code, str(refused.remark)[:24]) == (1, "broker unable to service")
            assert (await change(it, b"startAcceptSendRequestTimeStamp=0")).code == 0
            assert (await it.send("Auto1")).code == 0
            shown = await it.call(Command(RequestCode.GET_BROKER_CONFIG))
            assert b"autoCreateTopicEnable=false\n" in shown.body
            assert (await change(it, b"listenPort=1")).code == 29

    asyncio.run(main())


def test_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as it:
            await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC))
            for _ in range(3):
                assert (await it.send("Orders")).code == 0
            await until(lambda: it.broker.store.max_offset("Orders", 0) == 3)
            stats = await it.call(Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Orders"}))
            assert max(o.max_offset for o in TopicStats.decode(stats.body).offsets.values()) == 3
            info = await it.call(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
            table = decode_kv_table(info.body)
            assert (table["putMessageTimesTotal"], table["scheduleMessageOffset_18"]) == (
                "3",
                "0,0",
            )
            gone = await it.call(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}))
            assert gone.code == 0
            assert (await it.send("Later")).code == 0
        async with cluster(tmp_path) as it:
            missing = await it.call(Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Orders"}))
            assert missing.code == 17
            await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC))
            assert it.broker.store.max_offset("Orders", 0) == 0
            assert (await it.send("Orders")).code == 0

    asyncio.run(main())
