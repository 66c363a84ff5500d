"""The Java admin tool against our broker: what it prints is read and compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from interop_world import messages, until

if TYPE_CHECKING:
    from interop_world import Sent, World

TOPIC = "Admin"
GROUP = "admin_group"


@pytest.fixture(scope="module")
def sent(world: World) -> list[Sent]:
    """Twelve messages in our broker, consumed by a group."""
    topic = world.topic(TOPIC, world.ours)
    answers = world.driver.send(world.ours.namesrv, topic, messages(12, seed=42))
    world.driver.consume(world.ours.namesrv, topic, GROUP, 12)
    return answers


def run(world: World, command: str, *arguments: str) -> str:
    return world.driver.mqadmin(command, "-n", world.ours.namesrv, *arguments)


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line.split() for line in lines]


def test_cluster_list(world: World) -> None:
    found = {row[1]: row for row in rows(run(world, "clusterList"))}
    ours = found[world.ours.name]
    assert ours[0] == world.ours.cluster
    assert ours[2] == "0"
    assert ours[3] == world.ours.broker.address
    assert ours[4].startswith("V5_5_0")


def test_topic_route(world: World, sent: list[Sent]) -> None:
    assert sent
    text = run(world, "topicRoute", "-t", TOPIC)
    assert f'0:"{world.ours.broker.address}"' in text
    assert '"readQueueNums":4' in text


def test_topic_status(world: World, sent: list[Sent]) -> None:
    expected = {
        queue: max(a["offset"] + 1 for a in sent if a["queue"] == queue) for queue in range(4)
    }
    found = rows(run(world, "topicStatus", "-t", TOPIC))
    shown = {int(row[1]): int(row[3]) for row in found if row[0] == world.ours.name}
    assert shown == expected


def test_update_topic(world: World) -> None:
    text = run(world, "updateTopic", "-b", world.ours.broker.address, "-t", "Made", "-w", "3")
    assert "success" in text
    until("the topic", lambda: '"writeQueueNums":3' in run(world, "topicRoute", "-t", "Made"))
    text = run(world, "updateTopic", "-c", world.ours.cluster, "-t", "Made", "-w", "5", "-r", "5")
    assert "success" in text
    until("the change", lambda: '"writeQueueNums":5' in run(world, "topicRoute", "-t", "Made"))


def test_consumer_progress(world: World, sent: list[Sent]) -> None:
    text = run(world, "consumerProgress", "-g", GROUP)
    found = [row for row in rows(text) if row[0] == TOPIC]
    assert len(found) == 4
    for row in found:
        assert row[1] == world.ours.name
        assert row[3] == row[4], "the group has consumed everything"
    assert sum(int(row[3]) for row in found) == len(sent)
    assert re.search(r"Diff Total: 0\b", text)


def test_query_message_by_key(world: World, sent: list[Sent]) -> None:
    text = run(world, "queryMsgByKey", "-t", TOPIC, "-k", "key-42-5")
    (row,) = rows(text)
    assert row[0] == sent[5]["msg_id"]
    assert [int(row[1]), int(row[2])] == [sent[5]["queue"], sent[5]["offset"]]


def test_query_message_by_unique_key(world: World, sent: list[Sent]) -> None:
    text = run(world, "queryMsgByUniqueKey", "-t", TOPIC, "-i", sent[6]["msg_id"])
    assert "key-42-6" in text
    assert re.search(rf"Queue ID:\s+{sent[6]['queue']}\b", text)
    assert re.search(rf"Queue Offset:\s+{sent[6]['offset']}\b", text)


def test_query_message_by_id(world: World, sent: list[Sent]) -> None:
    text = run(world, "queryMsgById", "-t", TOPIC, "-i", sent[3]["offset_msg_id"])
    assert sent[3]["offset_msg_id"] in text
    assert re.search(rf"Queue Offset:\s+{sent[3]['offset']}\b", text)
    assert "key-42-3" in text


def test_query_message_by_offset(world: World, sent: list[Sent]) -> None:
    queue, offset = sent[4]["queue"], sent[4]["offset"]
    text = run(
        world,
        "queryMsgByOffset",
        *("-t", TOPIC, "-b", world.ours.name, "-i", str(queue), "-o", str(offset)),
    )
    assert sent[4]["offset_msg_id"] in text


def test_broker_status(world: World, sent: list[Sent]) -> None:
    text = run(world, "brokerStatus", "-b", world.ours.broker.address)
    found = dict(re.findall(r"^(\S+)\s+: (.*?)\s*$", text, re.MULTILINE))
    assert found["brokerVersionDesc"] == "V5_5_0"
    assert int(found["msgPutTotalTodayNow"]) >= len(sent)
    assert int(found["commitLogMaxOffset"]) > 0


def test_send_message(world: World, sent: list[Sent]) -> None:
    assert sent
    text = run(world, "sendMessage", "-t", TOPIC, "-p", "from the tool", "-c", "tool", "-k", "tk")
    (row,) = rows(text)
    assert row[0] == world.ours.name
    assert row[2] == "SEND_OK"
    found = run(world, "queryMsgByKey", "-t", TOPIC, "-k", "tk")
    assert rows(found)[0][0] == row[3]


def test_lists(world: World, sent: list[Sent]) -> None:
    assert sent
    assert TOPIC in run(world, "topicList").split()
    assert GROUP in run(world, "topicList", "-c")


def test_a_consume_queue_is_shown_unit_by_unit(world: World, sent: list[Sent]) -> None:
    text = run(world, "queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "-b", world.ours.broker.address)
    mine = sorted(answer["offset"] for answer in sent if answer["queue"] == 1)
    limits = re.search(r"max: (\d+), min: 0", text)
    assert limits is not None
    # The tool's own message may have gone to this queue as well.
    assert int(limits[1]) - (mine[-1] + 1) in (0, 1)
    found = [int(at) for at in re.findall(r"physicOffset=(\d+)", text)]
    in_log = [int(a["offset_msg_id"][16:], 16) for a in sent if a["queue"] == 1]
    assert found[: len(in_log)] == sorted(in_log)
    assert len(found) == int(limits[1])


def test_a_groups_offsets_are_reset_and_counted(world: World, sent: list[Sent]) -> None:
    topic = world.topic("Reset", world.ours)
    world.driver.send(world.ours.namesrv, topic, messages(9, seed=43))
    world.driver.consume(world.ours.namesrv, topic, "reset_group", 9)
    text = run(world, "resetOffsetByTime", "-t", topic, "-g", "reset_group", "-s", "0")
    offsets = [row for row in rows(text) if row[0] == world.ours.name]
    assert [row[2] for row in offsets] == ["0"] * 4
    again = world.driver.consume(world.ours.namesrv, topic, "reset_group", 9)
    assert len(again) == 9
    assert sent


def test_a_topic_and_a_group_are_deleted(world: World) -> None:
    topic = world.topic("Doomed", world.ours)
    world.driver.send(world.ours.namesrv, topic, messages(3, seed=44))
    at = ("-b", world.ours.broker.address)
    assert "success" in run(world, "updateSubGroup", *at, "-g", "doomed_group", "-r", "3")
    assert "retryMaxTimes" in run(world, "getConsumerConfig", "-g", "doomed_group")
    assert "success" in run(world, "deleteSubGroup", *at, "-g", "doomed_group")
    assert "success" in run(world, "deleteTopic", "-c", world.ours.cluster, "-t", topic)
    assert topic not in run(world, "topicList").split()
    # A topic of that name begins anew.
    world.topic("Doomed", world.ours)
    sent = world.driver.send(world.ours.namesrv, topic, messages(4, seed=45))
    assert {answer["offset"] for answer in sent} == {0}
