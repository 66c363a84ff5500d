"""Each switch of a subscription group does something, and the trace topic is a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, properties, records
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.subscription import MessageModel, SubscriptionData
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from transaction_harness import of, until

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def group(it: Cluster, name: str, **settings: object) -> None:
    config = SubscriptionGroupConfig(name=name, **settings)  # type: ignore[arg-type]
    it.broker.metadata.groups.put(config)


async def beat(it: Cluster, name: str, model: MessageModel) -> None:
    data = HeartbeatData(
        client_id="one@1",
        producers=(),
        consumers=(
            ConsumerData(
                group=name,
                message_model=model,
                subscriptions=(SubscriptionData(topic="orders", version=1),),
            ),
        ),
    )
    answer = await it.call(Command(RequestCode.HEART_BEAT, ext={}, body=data.encode()))
    assert answer.code == 0


async def send_back(it: Cluster, name: str, sent: Command, **fields: str) -> Command:
    found = {
        "group": name,
        "offset": str(int(ext(sent)["msgId"][16:], 16)),
        "delayLevel": "0",
        **fields,
    }
    answer = await it.call(Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=found))
    await dispatched(it)
    return answer


def test_consume_enable(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)
        group(it, "readers", consume_enable=False)
        refused = await it.pull("orders")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "subscription group no permission, readers"
        group(it, "readers")
        assert len(records(await it.pull("orders"))) == 1

    play(tmp_path, tell)


def test_consume_broadcast_enable(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)
        group(it, "all", consume_broadcast_enable=False)
        await beat(it, "all", MessageModel.BROADCASTING)
        refused = await it.pull("orders", consumerGroup="all", sysFlag="0", subVersion="1")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "the consumer group[all] can not consume by broadcast way"
        await beat(it, "all", MessageModel.CLUSTERING)
        taken = await it.pull("orders", consumerGroup="all", sysFlag="0", subVersion="1")
        assert len(records(taken)) == 1

    play(tmp_path, tell)


def test_consume_from_min_enable(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)

        async def begins(name: str) -> Command:
            fields = {"consumerGroup": name, "topic": "orders", "queueId": "0"}
            return await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=fields))

        group(it, "old")
        assert ext(await begins("old")) == {"offset": "0"}
        group(it, "new", consume_from_min_enable=False)
        assert (await begins("new")).code == ResponseCode.QUERY_NOT_FOUND

    play(tmp_path, tell)


@pytest.mark.parametrize(("queues", "topic"), [(0, None), (3, 3)])
def test_retry_queue_nums(tmp_path: Path, queues: int, topic: int | None) -> None:
    async def tell(it: Cluster) -> None:
        sent = await it.send("orders")
        await dispatched(it)
        group(it, "g", retry_queues=queues)
        assert (await send_back(it, "g", sent)).code == 0
        made = it.broker.metadata.topics.get("%RETRY%g")
        assert (None if made is None else made.write_queues) == topic
        assert len(of(it.broker, "SCHEDULE_TOPIC_XXXX", 2)) == (0 if topic is None else 1)

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("tries", "asked", "dead"),
    [
        ("16", {}, False),
        ("0", {}, True),
        # A consumer may say less, and more; a group without tries has none.
        ("16", {"maxReconsumeTimes": "0"}, True),
        ("1", {"maxReconsumeTimes": "5"}, False),
        ("0", {"maxReconsumeTimes": "5"}, True),
        ("16", {"delayLevel": "-1"}, True),
    ],
)
def test_retry_max_times(tmp_path: Path, tries: str, asked: dict[str, str], dead: bool) -> None:
    async def tell(it: Cluster) -> None:
        sent = await it.send("orders", b"bad")
        await dispatched(it)
        group(it, "g", retry_max_times=int(tries))
        assert (await send_back(it, "g", sent, **asked)).code == 0
        letters = of(it.broker, "%DLQ%g")
        assert [one.body for one in letters] == ([b"bad"] if dead else [])
        if dead:
            assert properties(letters[0])["RETRY_TOPIC"] == "orders"
            assert letters[0].reconsume_times == 1
        # What comes back is counted by the topic it was sent to.
        view = Command(
            RequestCode.VIEW_BROKER_STATS_DATA,
            ext={"statsName": "SNDBCK_PUT_NUMS", "statsKey": "orders@g"},
        )
        answer = await it.call(view)
        assert answer.code == 0
        assert b'"sum":1,' in answer.body.replace(b" ", b"")

    play(tmp_path, tell)


def test_which_broker_and_broker_id(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        await dispatched(it)
        group(it, "readers", broker_id=3, which_broker_when_consume_slowly=2)
        # The message is hot: the reader stays with the broker of the group.
        assert ext(await it.pull("orders"))["suggestWhichBrokerId"] == "3"

    async def without(it: Cluster) -> None:
        group(it, "readers", broker_id=3)
        assert ext(await it.pull("orders"))["suggestWhichBrokerId"] == "0"

    play(tmp_path, tell, slaveReadEnable="true")
    play(tmp_path, without, slaveReadEnable="false")


def test_there_is_a_trace_topic_when_it_is_wanted(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        config = it.broker.metadata.topics.get("RMQ_SYS_TRACE_TOPIC")
        assert config is not None
        assert config.write_queues == 1
        body = b"Pub\x011700000000000\x01DefaultRegion\x01g\x01orders\x02"
        assert (await it.send("RMQ_SYS_TRACE_TOPIC", body, properties="KEYS\x01k1\x02")).code == 0
        await dispatched(it)
        assert [one.body for one in of(it.broker, "RMQ_SYS_TRACE_TOPIC")] == [body]

    async def without(it: Cluster) -> None:
        assert it.broker.metadata.topics.get("RMQ_SYS_TRACE_TOPIC") is None
        answer = await it.send("orders")
        assert ext(answer)["TRACE_ON"] == "false"
        assert ext(answer)["MSG_REGION"] == "north"
        await dispatched(it)
        (stored,) = of(it.broker, "orders")
        found = properties(stored)
        assert (found["TRACE_ON"], found["MSG_REGION"]) == ("false", "north")

    play(tmp_path / "on", tell, traceTopicEnable="true")
    play(tmp_path / "off", without, traceOn="false", regionId="north")


def test_b7_a_batch_within_a_record_is_illegal(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for properties_, flag in (("INNER_NUM\x013\x02", "0"), ("", "128"), ("", "64")):
            answer = await it.send("orders", properties=properties_, f=flag)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert of(it.broker, "orders") == []

    play(tmp_path, tell)


def test_a_topic_is_ordered_when_the_name_servers_configuration_says_so(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:2"}
        answer = await it.call(Command(RequestCode.PUT_KV_CONFIG, ext=put), it.name_servers)
        assert answer.code == 0
        # Whatever makes the broker register again tells it.
        assert (await it.send("another")).code == 0

        def is_ordered() -> bool:
            config = it.broker.metadata.topics.get("orders")
            return config is not None and config.order

        await until(is_ordered, "the mark")
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, ext={}, body=b"brokerPermission=4")
        assert (await it.call(change)).code == 0
        # A broker that is not writable sends producers of ordered topics away, others may finish.
        refused = await it.send("orders")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "the broker[127.0.0.1] sending message is forbidden"
        assert (await it.send("another")).code == 0

    play(tmp_path, tell)
