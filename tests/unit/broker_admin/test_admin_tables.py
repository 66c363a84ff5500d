"""Topics, groups, settings and state through the administration processors."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from broker_admin_harness import Broker, administered
from roquet.base.properties_file import read_properties
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.groups import GroupTableBody, decode_group, encode_group, encode_groups
from roquet.protocol.bodies.stats import decode_kv_table
from roquet.protocol.bodies.topics import (
    TopicTableBody,
    decode_topic_list,
    encode_data_version,
    encode_topic_configs,
)
from roquet.protocol.codes import RequestCode
from roquet.store.tables.groups import GroupTableConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

TOPIC = {
    "topic": "AdminTopic",
    "defaultTopic": "TBW102",
    "readQueueNums": "3",
    "writeQueueNums": "3",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "",
    "force": "false",
}


def play(tmp_path: Path, story: Callable[[Broker], Coroutine[object, object, None]]) -> None:
    async def main() -> None:
        async with administered(tmp_path) as broker:
            await story(broker)

    asyncio.run(main())


def paths(root: Path) -> set[str]:
    """Names under `root`, the files apart that the store makes ahead of need."""
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    return {path for path in found if not path.startswith("commitlog/")}


def test_topic_is_created_shown_changed_and_deleted(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC)
        assert (answer.code, answer.remark, answer.body) == (0, "not set any response code", b"")
        shown = await broker.ask(RequestCode.GET_TOPIC_CONFIG, topic="AdminTopic", lo="true")
        # Byte for byte what 5.5.0 answered for such a topic.
        assert shown.body == (
            b'{"attributes":{},"order":false,"perm":6,"readQueueNums":3,'
            b'"topicFilterType":"SINGLE_TAG","topicName":"AdminTopic","topicSysFlag":0,'
            b'"writeQueueNums":3}'
        )
        on_disk = json.loads((tmp_path / "config" / "topics.json").read_bytes())
        assert on_disk["topicConfigTable"]["AdminTopic"]["readQueueNums"] == 3
        version = broker.topics.version
        await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC)
        assert broker.topics.version == version, "nothing changed"
        await broker.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC | {"perm": "4", "readQueueNums": "5"}
        )
        changed = broker.topics.get("AdminTopic")
        assert changed is not None
        assert (changed.perm, changed.read_queues, changed.write_queues) == (4, 5, 3)
        await broker.put("AdminTopic", 0, b"x")
        broker.offsets.commit("g", "AdminTopic", 0, 1)
        assert ("AdminTopic", 0, 0, 1) in broker.store.native.queues()
        answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="AdminTopic")
        assert answer.code == 0
        assert broker.topics.get("AdminTopic") is None
        assert broker.offsets.topics_of("g") == []
        assert "AdminTopic" not in {row[0] for row in broker.store.native.queues()}
        assert not (tmp_path / "consumequeue" / "AdminTopic").exists()
        gone = await broker.ask(RequestCode.GET_TOPIC_CONFIG, topic="AdminTopic")
        assert (gone.code, gone.remark) == (17, "No topic in this broker. topic: AdminTopic")

    play(tmp_path, story)


def test_bad_topics_change_nothing(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, str], int, str]] = [
        ({"topic": ""}, 29, "blank"),
        ({"topic": "../../etc"}, 29, "illegal characters"),
        ({"topic": "a\n"}, 29, "illegal characters"),
        ({"topic": "t" * 128}, 29, "longer"),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "rmq_sys_any"}, 29, "conflict with system topic"),
        ({"topic": "broker-a"}, 29, "conflict with system topic"),
        ({"readQueueNums": "-1"}, 29, "read queue number"),
        ({"writeQueueNums": "-1"}, 29, "write queue number"),
        ({"readQueueNums": "2147483648"}, 29, "readQueueNums"),
        ({"readQueueNums": "1_0"}, 29, "readQueueNums"),
        ({"perm": "255"}, 29, "perm"),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+message.type=ODD"}, 1, "value is not in set"),
        ({"attributes": "+colour=red"}, 1, "unsupported key: colour"),
        ({"attributes": "-message.type"}, 1, "only add attribute is supported"),
        ({"attributes": "message.type=FIFO"}, 1, "kv string format wrong"),
    ]

    async def story(broker: Broker) -> None:
        before, version = paths(tmp_path), broker.topics.version
        for change, code, remark in wrong:
            answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC | change)
            assert answer.code == code, change
            assert remark in (answer.remark or ""), change
        missing = {key: value for key, value in TOPIC.items() if key != "perm"}
        assert (await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **missing)).code == 1
        for topic in ("", " ", "..", "../x", "a/b", "/etc", "TBW102", "a\0b"):
            answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            assert answer.code == 29, topic
        good = TopicConfig(name="Good")
        bad = TopicConfig(name="Bad", perm=99)
        answer = await broker.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, encode_topic_configs([good, bad])
        )
        assert answer.code == 29
        answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b"{nonsense")
        assert answer.code == 29
        assert broker.topics.version == version
        assert paths(tmp_path) == before

    play(tmp_path, story)


def test_attributes_of_a_topic(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        async def change(attributes: str) -> tuple[int, dict[str, str]]:
            answer = await broker.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC, **TOPIC | {"attributes": attributes}
            )
            config = broker.topics.get("AdminTopic")
            return answer.code, dict(config.attributes) if config else {}

        assert await change("+message.type=FIFO,+cleanup.policy=DELETE") == (
            0,
            {"message.type": "FIFO", "cleanup.policy": "DELETE"},
        )
        assert (await change("+message.type=DELAY,+topic.reserve.time=5"))[0] == 0
        code, attributes = await change("+cleanup.policy=DELETE")
        assert (code, attributes["cleanup.policy"]) == (1, "DELETE")
        assert await change("-message.type") == (
            0,
            {"cleanup.policy": "DELETE", "topic.reserve.time": "5"},
        )

    play(tmp_path, story)


def test_retry_topics_of_pop_go_with_their_topic(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        names = ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%other_T", "%RETRY%g")
        broker.topics.put(*(TopicConfig(name=name) for name in names))
        broker.offsets.commit("g", "T", 0, 1)
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        left = [name for name in names if broker.topics.get(name) is not None]
        assert left == ["%RETRY%other_T", "%RETRY%g"]

    play(tmp_path, story)


def test_queues_of_no_topic_are_cleaned(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.topics.put(TopicConfig(name="Known"))
        for topic in ("Known", "Unknown", "SCHEDULE_TOPIC_XXXX"):
            await broker.put(topic, 0, b"x")
        assert (await broker.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        left = {row[0] for row in broker.store.native.queues()}
        assert left == {"Known", "SCHEDULE_TOPIC_XXXX"}
        assert (await broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        assert broker.store.max_offset("Known", 0) == 1

    play(tmp_path, story)


def test_topic_table_whole_and_in_pages(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        configs = [TopicConfig(name=f"T{n}") for n in range(5)]
        answer = await broker.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, encode_topic_configs(configs)
        )
        assert answer.code == 0
        whole = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = TopicTableBody.decode(whole.body)
        assert table.topics == broker.topics.all()
        assert table.version == broker.topics.version
        assert whole.ext == {"totalTopicNum": str(len(table.topics))}
        seen: dict[str, TopicConfig] = {}
        version = encode_data_version(broker.topics.version).decode()
        for start in range(0, len(table.topics), 4):
            page = await broker.ask(
                RequestCode.GET_ALL_TOPIC_CONFIG,
                topicSeq=str(start),
                maxTopicNum="4",
                dataVersion=version,
            )
            part = TopicTableBody.decode(page.body).topics
            assert 0 < len(part) <= 4
            seen |= part
        assert seen == table.topics
        old = await broker.ask(
            RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq="4", maxTopicNum="2", dataVersion="{}"
        )
        assert set(TopicTableBody.decode(old.body).topics) == set(list(broker.topics.all())[:2])
        bad = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq="-1")
        assert bad.code == 29
        system = await broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        topics, _ = decode_topic_list(system.body)
        assert "TBW102" in topics
        assert "T0" not in topics

    play(tmp_path, story)


def test_groups(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        config = SubscriptionGroupConfig(
            name="G", retry_max_times=3, consume_broadcast_enable=False
        )
        create = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await broker.ask(create, encode_group(config))).code == 0
        shown = await broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
        assert decode_group(shown.body) == config
        others = [SubscriptionGroupConfig(name=f"G{n}") for n in range(3)]
        create_list = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        assert (await broker.ask(create_list, encode_groups(others))).code == 0
        whole = await broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = GroupTableBody.decode(whole.body)
        assert {"G", "G0", "G1", "G2", "TOOLS_CONSUMER"} <= set(table.groups)
        assert (whole.ext or {})["totalGroupNum"] == str(len(table.groups))
        version = broker.groups.version
        for bad in ("", "a b", "g" * 121, "../x"):
            body = encode_group(SubscriptionGroupConfig(name=bad))
            assert (await broker.ask(create, body)).code == 29, bad
        assert (await broker.ask(create, b"[]")).code == 29
        mixed = [SubscriptionGroupConfig(name="H"), SubscriptionGroupConfig(name="H H")]
        assert (await broker.ask(create_list, encode_groups(mixed))).code == 29
        assert broker.groups.version == version
        broker.offsets.commit("G", "T", 0, 7)
        broker.offsets.commit("G0", "T", 0, 7)
        delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
        assert (await broker.ask(delete, groupName="G", cleanOffset="true")).code == 0
        assert (await broker.ask(delete, groupName="G0")).code == 0
        assert (broker.offsets.topics_of("G"), broker.offsets.topics_of("G0")) == ([], ["T"])
        broker.groups.follow(GroupTableConfig(auto_create=False))
        gone = await broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
        assert (gone.code, gone.remark) == (26, "No group in this broker. group: G")
        on_disk = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
        assert "G" not in on_disk["subscriptionGroupTable"]

    play(tmp_path, story)


def test_forbidden_bits(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

        async def ask(**ext: str) -> object:
            return json.loads((await broker.ask(code, group="G", topic="T", **ext)).body)

        assert await ask() == {"group": "G", "readable": True, "topic": "T"}
        assert await ask(readable="false") == {"group": "G", "readable": False, "topic": "T"}
        assert broker.groups.forbidden("G", "T") == 1
        assert await ask() == {"group": "G", "readable": False, "topic": "T"}
        assert await ask(readable="true") == {"group": "G", "readable": True, "topic": "T"}

    play(tmp_path, story)


def test_b13_cve_2023_33246_settings_change_by_allow_list_only(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        shown = await broker.ask(RequestCode.GET_BROKER_CONFIG)
        assert shown.body.decode().splitlines() == [
            "brokerPermission=6",
            "fileReservedTime=72",
            "greeting=hello",
            "storePathRootDir=/data",
        ]
        assert json.loads((shown.ext or {})["version"])["stateVersion"] == 0
        heard: list[tuple[int, frozenset[str]]] = []
        broker.settings.listen(lambda new, changed: heard.append((new.permission, changed)))
        update = RequestCode.UPDATE_BROKER_CONFIG
        answer = await broker.ask(update, b"brokerPermission=4\nfileReservedTime=72\n")
        assert answer.code == 0
        assert heard == [(4, frozenset({"brokerPermission"}))]
        written = (tmp_path / "conf" / "broker.conf").read_bytes()
        assert read_properties(written) == {"brokerPermission": "4"}
        assert (await broker.ask(update)).code == 0
        before = broker.settings.texts()
        for body, code in (
            (b"noSuchKey=1", 29),
            (b"storePathRootDir=/etc", 29),
            (b"rocketmqHome=/tmp\nfilterServerNums=1", 16),
            (rb"\u0072ocketmqHome=/tmp", 16),
            (rb"brokerConfigPath =/tmp", 16),
            (rb"greeting=a\nstorePathRootDir=/x", 29),
            (b"brokerPermission=-1", 29),
            (b"brokerPermission=six", 29),
            (b"brokerPermission=6\nfileReservedTime=x", 29),
            (b"BrokerPermission=6", 29),
            (b"greeting=" + b"x" * 1_000_000, 29),
        ):
            answer = await broker.ask(update, body)
            assert answer.code == code, body[:60]
        assert broker.settings.texts() == before
        assert (tmp_path / "conf" / "broker.conf").read_bytes() == written
        (tmp_path / "conf" / "broker.conf.tmp").mkdir()
        assert (await broker.ask(update, b"greeting=hi")).code == 1
        assert broker.settings.texts() == before

    play(tmp_path, story)


def test_runtime_info_has_every_key(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        await broker.put("T", 0, b"x" * 100)
        await broker.clock.advance(61)
        answer = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        table = decode_kv_table(answer.body)
        wanted = """bootTimestamp runtime brokerVersionDesc putTps getTransferredTps getFoundTps
            getTransferedTps getMissTps getTotalTps putMessageTimesTotal putMessageSizeTotal
            putMessageDistributeTime msgPutTotalTodayNow msgPutTotalTodayMorning
            msgPutTotalYesterdayMorning msgGetTotalTodayNow msgGetTotalTodayMorning
            msgGetTotalYesterdayMorning commitLogMinOffset commitLogMaxOffset commitLogDiskRatio
            consumeQueueDiskRatio commitLogDirCapacity dispatchBehindBytes earliestMessageTimeStamp
            pageCacheLockTimeMills sendThreadPoolQueueSize sendThreadPoolQueueCapacity
            sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize queryThreadPoolQueueSize
            litePullThreadPoolQueueSize ackThreadPoolQueueSize EndTransactionQueueSize
            EndTransactionThreadPoolQueueCapacity timerReadBehind timerOffsetBehind timerCongestNum
            timerEnqueueTps timerDequeueTps remainHowManyDataToFlush brokerActive
            remainHowManyDataToCommit startAcceptSendRequestTimeStamp dispatchMaxBuffer
            getMessageEntireTimeMax putMessageEntireTimeMax putMessageAverageSize
            putMessageFailedTimes putLatency99 putLatency999 remainTransientStoreBufferNumbs"""
        assert set(wanted.split()) <= set(table)
        assert table["putMessageTimesTotal"] == "1"
        spans = [pair.rpartition(":") for pair in table["putMessageDistributeTime"].split()]
        assert [span[0] for span in spans][:2] == ["[<=0ms]", "[0~10ms]"]
        assert sum(int(span[2]) for span in spans) == 1
        assert 0 < float(table["putLatency99"]) <= float(table["putLatency999"])
        assert int(table["putMessageEntireTimeMax"]) <= float(table["putLatency999"])
        assert table["brokerVersionDesc"] == "V5_5_0"
        assert table["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
        assert table["sendThreadPoolQueueCapacity"] == "10000"
        assert int(table["commitLogMaxOffset"]) == int(table["putMessageSizeTotal"]) > 100
        assert len(table["putTps"].split()) == 3
        assert 0 < float(table["commitLogDiskRatio"]) < 1

    play(tmp_path, story)
