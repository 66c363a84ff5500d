"""Look-ups that create a group, topics without queues, attributes of features that are missing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from broker_admin_harness import Broker, administered
from roquet.base.config import load
from roquet.protocol import names
from roquet.protocol.bodies.groups import decode_group
from roquet.protocol.bodies.topics import decode_topic_list
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.tables.groups import GroupTableConfig
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


def play(tmp_path: Path, story: Callable[[Broker], Coroutine[object, object, None]]) -> None:
    async def main() -> None:
        async with administered(tmp_path) as broker:
            await story(broker)

    asyncio.run(main())


NO_SYSTEM = {"enableCreateSysGroup": False}


def test_group_config_of_a_new_group_is_created_durably(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        shown = await broker.ask(code, group="new_group")
        assert decode_group(shown.body).name == "new_group"
        on_disk = json.loads((tmp_path / "config" / "subscriptionGroup.json").read_bytes())
        assert "new_group" in on_disk["subscriptionGroupTable"]
        for bad in ("", "a b", "g" * 121):
            assert (await broker.ask(code, group=bad)).code == 26, bad
        broker.groups.follow(GroupTableConfig(auto_create_max=len(broker.groups.all())))
        assert (await broker.ask(code, group="one_too_many")).code == 26
        broker.groups.follow(GroupTableConfig(auto_create=False))
        assert (await broker.ask(code, group="forbidden")).code == 26
        assert (await broker.ask(code, group="CID_RMQ_SYS_OWN")).code == 0
        none, _ = load(
            GroupTableConfig, {}, {}, {"autoCreateSubscriptionGroup": False, **NO_SYSTEM}
        )
        broker.groups.follow(none)
        assert (await broker.ask(code, group="CID_RMQ_SYS_OTHER")).code == 26

    play(tmp_path, story)


def test_a_leaver_of_a_new_group_creates_it_as_in_java(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        fields = {"clientID": "c", "consumerGroup": "left_group"}
        answer = await it.call(Command(RequestCode.UNREGISTER_CLIENT, fields))
        assert answer.code == 0
        assert it.broker.metadata.groups.get("left_group") is not None

    async def main() -> None:
        async with cluster(tmp_path) as it:
            await tell(it)

    asyncio.run(main())


def test_topic_without_queues_is_taken_and_closed_for_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path) as it:
            closed = {**TOPIC, "readQueueNums": "0", "writeQueueNums": "0"}
            create = RequestCode.UPDATE_AND_CREATE_TOPIC
            assert (await it.call(Command(create, closed))).code == 0
            for queue_id in (-1, 0):
                sent = await it.send("T", queue_id=queue_id)
                assert sent.code in (1, 29), sent.remark
            assert (await it.pull("T")).code == 29
            assert (await it.call(Command(create, {**closed, "writeQueueNums": "-1"}))).code == 29
            assert (await it.call(Command(create, TOPIC))).code == 0
            assert (await it.send("T")).code == 0

    asyncio.run(main())


def test_attributes_of_missing_features_are_refused_by_the_features_name(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        for attribute, feature in (
            ("+queue.type=BatchCQ", "batch consume queues"),
            ("+queue.type=RocksDBCQ", "consume queues in RocksDB"),
            ("+cleanup.policy=COMPACTION", "compacted topics"),
        ):
            fields = {**TOPIC, "attributes": attribute}
            answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
            wanted = f"not supported by this broker yet: {feature} ({attribute[1:]})"
            assert (answer.code, answer.remark) == (1, wanted)
        for attribute, remark in (
            ("+queue.type=Odd", "value is not in set"),
            ("+odd=1", "unsupported key"),
            ("+lite.topic.expiration=-2", "value is not in range(-1, 43200)"),
            ("+lite.topic.expiration=43201", "value is not in range(-1, 43200)"),
            ("+lite.topic.expiration=soon", "value is not a number"),
        ):
            fields = {**TOPIC, "attributes": attribute}
            answer = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
            assert (answer.code, remark in str(answer.remark)) == (1, True)
        assert broker.topics.get("T") is None

    play(tmp_path, story)


def test_system_topics_are_listed_before_anything_was_stored_there(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        answer = await broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        listed = set(decode_topic_list(answer.body)[0])
        assert listed >= names.SYSTEM_TOPICS
        assert {"CHECKPOINT_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "broker-a"} <= listed

    play(tmp_path, story)


def test_topic_with_an_unknown_filter_type_is_refused_as_by_java(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        refused = await broker.ask(code, **{**TOPIC, "topicFilterType": "ANY_TAG"})
        assert (refused.code, refused.remark) == (1, "topicFilterType = [ANY_TAG] value invalid")
        assert broker.topics.get("T") is None
        taken = await broker.ask(code, **{**TOPIC, "topicFilterType": "MULTI_TAG"})
        assert (taken.code, taken.remark) == (0, "not set any response code")

    play(tmp_path, story)


def test_created_topic_list_is_answered_with_javas_remark(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        body = json.dumps({"topicConfigList": [{"topicName": "T"}, {"topicName": "U"}]}).encode()
        taken = await broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
        assert (taken.code, taken.remark) == (0, "not set any response code")

    play(tmp_path, story)
