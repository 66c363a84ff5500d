"""Sends over real sockets: what is stored, what is refused, in whose words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, properties, records
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import BINARY, FLAG_ONE_WAY, Command
from roquet.protocol.hosts import host_bytes
from roquet.protocol.messages import batch, message_id
from roquet.testing.cluster import Cluster, send_command

if TYPE_CHECKING:
    from pathlib import Path

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def test_a_message_is_stored_as_java_stores_it(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        answer = await it.send(
            "orders",
            b"hello",
            queue_id=3,
            properties="TAGS\x01TagA\x02KEYS\x01k1\x02POP_CK\x01x y\x02CLUSTER\x01lie\x02"
            "UNIQ_KEY\x01MINE\x02color\x01red",
            h="7",
            f="513",
        )
        assert answer.code == 0
        assert answer.remark is None
        place = message_id.offset_id(host_bytes(it.address), 0)
        assert answer.ext == {
            **ALWAYS,
            "msgId": place,
            "queueId": "3",
            "queueOffset": "0",
            "transactionId": "MINE",
        }
        await dispatched(it)
        (record,) = records(await it.pull("orders", queueId="3"))
        assert (record.body, record.flag, record.sys_flag) == (b"hello", 7, 513)
        assert (record.topic, record.queue_id, record.queue_offset) == ("orders", 3, 0)
        assert record.born_timestamp == 1_700_000_000_000
        assert record.store_host == host_bytes(it.address)
        assert properties(record) == {
            **ALWAYS,
            "TAGS": "TagA",
            "KEYS": "k1",
            "CLUSTER": "DefaultCluster",
            "UNIQ_KEY": "MINE",
            "color": "red",
        }

    play(tmp_path, tell)


def test_both_headers_and_both_forms_of_the_request_are_taken(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        short = send_command("orders", b"short")
        short.encoding = BINARY
        long_ext = {
            "producerGroup": "testers",
            "topic": "orders",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
        }
        long = Command(RequestCode.SEND_MESSAGE, ext=long_ext, body=b"long")
        assert (await it.send("orders", b"first")).code == 0
        one_way = send_command("orders", b"one way")
        one_way.flag = FLAG_ONE_WAY
        await it.client.call_one_way(it.address, one_way)
        assert [(await it.call(command)).code for command in (short, long)] == [0, 0]
        await dispatched(it)
        found = records(await it.pull("orders"))
        assert [record.body for record in found] == [b"first", b"one way", b"short", b"long"]
        assert len({properties(record)["UNIQ_KEY"] for record in found}) == 4

    play(tmp_path, tell)


def test_the_first_send_creates_the_topic_and_the_name_server_hears_of_it(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", d="3")).code == 0
        for _ in range(3000):
            if "orders" in it.name_server.table.topics:
                break
            await asyncio.sleep(0.01)
        config = it.broker.metadata.topics.get("orders")
        assert config == TopicConfig(name="orders", read_queues=3, write_queues=3, perm=6)

    play(tmp_path, tell)


def test_a_negative_queue_is_the_brokers_choice(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        answers = [await it.send("orders", queue_id=-1) for _ in range(40)]
        assert {ext(answer)["queueId"] for answer in answers} == {"0", "1", "2", "3"}

    play(tmp_path, tell)


def test_what_is_refused(tmp_path: Path) -> None:
    faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

    async def tell(it: Cluster) -> None:
        async def refused(code: int, remark: str, answer: Command) -> None:
            assert (answer.code, answer.remark) == (code, remark)
            assert answer.ext == ALWAYS

        topics = it.broker.metadata.topics
        topics.put(
            TopicConfig(name="narrow", read_queues=2, write_queues=1),
            TopicConfig(name="compacted", attributes={"cleanup.policy": "COMPACTION"}),
            TopicConfig(name="none", read_queues=1, write_queues=0),
        )
        await refused(
            17,
            "topic[orders] not exist, apply first please!" + faq,
            await it.send("orders", c="nowhere"),
        )
        for topic in (
            "SCHEDULE_TOPIC_" + "XX" + "XX",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
            "rmq_sys_REVIVE_LOG_DefaultCluster",
        ):
            await refused(
                16, f"Sending message to topic[{topic}] is forbidden.", await it.send(topic)
            )
        await refused(29, "The specified topic is blank.", await it.send(""))
        assert (await it.send("narrow", queue_id=1)).code == 0
        answer = await it.send("narrow", queue_id=2)
        assert answer.code == 29
        assert (answer.remark or "").startswith("request queueId[2] is illegal, ")
        await refused(13, "Required message key is missing", await it.send("compacted"))
        assert (await it.send("compacted", properties="KEYS\x01k\x02")).code == 0
        assert (await it.send("none", queue_id=-1)).code == 1
        await refused(
            16,
            "the broker[127.0.0.1] sending transaction message is forbidden",
            await it.send("orders", f="4"),
        )
        answer = await it.send("orders", properties="TIMER_DELAY_SEC\x013\x02")
        assert answer.code == 1

    play(tmp_path, tell, timerWheelEnable="false")


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "a\0b",
        "a\\b",
        "a%2fb/c",
        ".",
        "..",
        "a b",
        "x" * 128,
        "x" * 256,
        "topic\n",
        "%RETRY%../evil",
        "%DLQ%../../evil",
        "%RETRY%" + "x" * 250,
        "ünïcode",
    ],
)
def test_cve_2019_17572_no_name_becomes_a_path(tmp_path: Path, name: str) -> None:
    def tree() -> set[str]:
        # The log makes its files ahead of time, on a thread of its own.
        return {
            str(path.relative_to(tmp_path))
            for path in tmp_path.rglob("*")
            if path.parent.name != "commitlog"
        }

    async def tell(it: Cluster) -> None:
        before = tree()
        answers = [
            await it.send(name),
            await it.send(name, m="true"),
            await it.pull(name),
            await it.pull("TBW102", consumerGroup=name),
        ]
        assert [answer.code for answer in answers] == [29, 29, 17, 26]
        assert tree() == before

    play(tmp_path, tell)


# --- B7: bad messages ----------------------------------------------------------------------------


def test_b7_sizes_have_limits(tmp_path: Path) -> None:
    illegal = (
        "the message is illegal, maybe msg body or properties length not matched. "
        "msg body length limit 1000B, msg properties length limit 32KB."
    )

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"x" * 1000)).code == 0
        answer = await it.send("orders", b"x" * 1001)
        assert (answer.code, answer.remark) == (13, illegal)
        no_body = await it.send("orders", b"")
        assert (no_body.code, no_body.ext) == (1, None)
        longest = 32_767 - len("k\x01\x02")
        stamped = len(
            "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
            "UNIQ_KEY\x01u\x02"
        )
        fits = "UNIQ_KEY\x01u\x02k\x01" + "v" * (longest - stamped) + "\x02"
        assert (await it.send("orders", properties=fits)).code == 0
        answer = await it.send("orders", properties=fits + "x\x01y\x02")
        assert answer.code == 13
        assert (answer.remark or "").startswith(illegal)
        assert (await it.send("x" * 127)).code == 0
        assert (await it.send("x" * 128)).code == 29

    play(tmp_path, tell, maxMessageSize="1000")


def test_b7_odd_properties_are_stored_without_ambiguity(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        odd = "a\x01b\x01c\x02\x01x\x02no\x01\x02=\x02REAL_TOPIC\x01elsewhere\x02\x02\x02z\x01\x03"
        assert (await it.send("orders", properties=odd)).code == 0
        await dispatched(it)
        (record,) = records(await it.pull("orders"))
        found = properties(record)
        assert {key: found[key] for key in ("a", "z", "REAL_TOPIC")} == {
            "a": "b\x01c",
            "z": "\x03",
            "REAL_TOPIC": "elsewhere",
        }
        assert record.topic == "orders"
        assert not {"", "no"} & found.keys()

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("e", "1_0", 29),
        ("e", " 7 ", 29),
        ("e", "\uff11", 29),
        ("e", "+7", 29),
        ("e", "", 29),
        ("e", "2147483648", 29),
        ("g", "9223372036854775808", 29),
        ("f", "1e3", 29),
        ("h", None, 1),
        ("g", None, 1),
        ("b", None, 1),
        ("a", None, 0),
        ("i", None, 0),
    ],
)
def test_b5_numbers_are_read_strictly(
    tmp_path: Path, field: str, value: str | None, code: int
) -> None:
    async def tell(it: Cluster) -> None:
        command = send_command("orders", b"x")
        assert command.ext is not None
        del command.ext[field]
        if value is not None:
            command.ext[field] = value
        assert (await it.call(command)).code == code

    play(tmp_path, tell)


def test_the_address_bits_are_the_brokers(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", f=str(0x30))).code == 0
        await dispatched(it)
        (record,) = records(await it.pull("orders"))
        assert record.sys_flag == 0

    play(tmp_path, tell)


# --- B8: batches ---------------------------------------------------------------------------------


def batch_of(*elements: tuple[bytes, str]) -> bytes:
    return batch.encode([(5, body, text.encode()) for body, text in elements])


async def send_batch(it: Cluster, body: bytes, topic: str = "orders", **fields: str) -> Command:
    command = send_command(topic, body, 1, **{"m": "true", **fields})
    command.code = RequestCode.SEND_BATCH_MESSAGE
    return await it.call(command)


def test_a_batch_becomes_ordinary_messages(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        elements = [(b"one", "TAGS\x01a\x02"), (b"", ""), (b"three", "UNIQ_KEY\x01u3\x02n\x013")]
        answer = await send_batch(it, batch_of(*elements), i="UNIQ_KEY\x01whole\x02")
        assert answer.code == 0
        ids = ext(answer)["msgId"].split(",")
        assert {**ext(answer), "msgId": ""} == {
            **ALWAYS,
            "msgId": "",
            "queueId": "1",
            "queueOffset": "0",
            "transactionId": "whole",
        }
        await dispatched(it)
        found = records(await it.pull("orders", queueId="1"))
        assert [record.body for record in found] == [b"one", b"", b"three"]
        assert [record.queue_offset for record in found] == [0, 1, 2]
        assert [record.properties.decode() for record in found] == [text for _, text in elements]
        assert ids == [message_id.offset_id(it_.store_host, it_.physical_offset) for it_ in found]
        without = await send_batch(it, batch_of((b"x", "")), i="")
        assert "transactionId" not in ext(without)
        assert ext(without)["queueOffset"] == "3"

    play(tmp_path, tell)


def test_b8_of_a_bad_batch_nothing_is_stored(tmp_path: Path) -> None:
    good = batch_of((b"good", ""))
    bad = {
        "cut in the head": good + b"\0" * 19,
        "cut in the body": batch_of((b"good", ""), (b"second", ""))[:-9],
        "negative body": good + b"\0" * 16 + b"\xff\xff\xff\xff" + b"\0\0",
        "negative properties": good + b"\0" * 20 + b"\xff\xff",
        "huge body": good + b"\0" * 16 + b"\x7f\xff\xff\xff" + b"\0\0",
        "delayed": batch_of((b"good", ""), (b"later", "DELAY\x013\x02")),
        "timed": batch_of((b"later", "TIMER_DELIVER_MS\x013\x02")),
        "half": batch_of((b"half", "TRAN_MSG\x01true\x02")),
        "inner": batch_of((b"good", ""), (b"inner", "INNER_NUM\x012\x02")),
    }

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"first", queue_id=1)).code == 0
        for what, body in bad.items():
            answer = await send_batch(it, body)
            assert answer.code == 13, what
            assert ext(answer) == ALWAYS
        assert (await send_batch(it, good, "%RETRY%g")).code == 13
        assert (await send_batch(it, good, "x" * 128)).code == 29
        tiny = b"\0" * 22 * 180_000
        assert (await send_batch(it, tiny)).code == 13
        assert (await send_batch(it, good)).code == 0
        await dispatched(it)
        found = records(await it.pull("orders", queueId="1"))
        assert [record.body for record in found] == [b"first", b"good"]

    play(tmp_path, tell)


# --- retries -------------------------------------------------------------------------------------


def test_what_was_tried_too_often_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        groups = it.broker.metadata.groups
        groups.put(SubscriptionGroupConfig(name="g", retry_max_times=2))
        assert (await it.send("%RETRY%g", b"second", j="2")).code == 0
        assert (await it.send("%RETRY%g", b"third", j="3")).code == 0
        answer = await it.send("%RETRY%g", b"patient", j="3", l="3")
        assert ext(answer)["queueId"] == "0"
        await dispatched(it)
        retried = records(await it.pull("%RETRY%g", consumerGroup="g"))
        assert [record.body for record in retried] == [b"second", b"patient"]
        (dead,) = records(await it.pull("%DLQ%g", consumerGroup="g"))
        assert (dead.body, dead.reconsume_times, dead.topic) == (b"third", 3, "%DLQ%g")

    play(tmp_path, tell)


def test_a_group_in_order_gives_up_at_once(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        group = ConsumerData(group="g", subscriptions=(SubscriptionData(topic="orders"),))
        data = HeartbeatData(client_id="c", consumers=(group,))
        assert (await it.call(Command(RequestCode.HEART_BEAT, {}, data.encode()))).code == 0
        body = (
            b'{"clientId":"c","consumerGroup":"g","mqSet":'
            b'[{"brokerName":"broker-a","queueId":0,"topic":"orders"}]}'
        )
        locked = await it.call(Command(RequestCode.LOCK_BATCH_MQ, ext={}, body=body))
        assert locked.code == 0
        assert (
            await it.send("%RETRY%g", b"given up", j="1", properties="DELAY\x013\x02")
        ).code == 0
        await dispatched(it)
        (dead,) = records(await it.pull("%DLQ%g", consumerGroup="g"))
        assert dead.body == b"given up"
        assert "DELAY" not in properties(dead)

    play(tmp_path, tell)
    assert MessageQueue("orders", "broker-a", 0) < MessageQueue("orders", "broker-a", 1)


def test_a_retry_needs_its_group(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("%RETRY%stranger")).code == 26

    play(tmp_path, tell, autoCreateSubscriptionGroup="false")


# --- the broker's own state ----------------------------------------------------------------------


def test_a_broker_may_take_no_sends(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 1
        assert "broker unable to service, until 2" in ((await it.send("orders")).remark or "")
        assert (await it.pull("TBW102")).code == 19

    play(tmp_path, tell, startAcceptSendRequestTimeStamp="4102444800000")


def test_only_order_topics_heed_the_brokers_permission(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="inorder", order=True))
        answer = await it.send("inorder")
        assert (answer.code, answer.remark) == (
            16,
            "the broker[127.0.0.1] sending message is forbidden",
        )
        assert (await it.send("orders")).code == 0

    play(tmp_path, tell, brokerPermission="4")
