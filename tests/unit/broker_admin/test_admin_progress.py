"""Progress, offsets, clients and rates through the administration processors."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker_admin_harness import Broker, administered
from roquet.broker.clients.registry import Client, Consuming
from roquet.broker.metrics.stats import Meter, View
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.clients import ConsumerConnection, decode_producer_connections
from roquet.protocol.bodies.groups import decode_group_list
from roquet.protocol.bodies.offsets import (
    ConsumerOffsetBody,
    DelayOffsetBody,
    decode_consumer_status,
    decode_queue_offsets,
    encode_consumer_status,
)
from roquet.protocol.bodies.stats import ConsumeStats, GroupLag, TopicStats, decode_group_lags
from roquet.protocol.bodies.topics import decode_topic_list
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.remoting import client as remoting
from roquet.remoting.router import Request, Route
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from roquet.remoting.router import Peer


def play(tmp_path: Path, story: Callable[[Broker], Coroutine[object, object, None]]) -> None:
    async def main() -> None:
        async with administered(tmp_path) as broker:
            broker.topics.put(TopicConfig(name="T", read_queues=2, write_queues=2))
            broker.groups.put(SubscriptionGroupConfig(name="G"))
            await story(broker)

    asyncio.run(main())


def join(broker: Broker, group: str, client_id: str, peer: Peer, version: int = 513) -> None:
    broker.registry.register_consumer(
        group,
        Client(peer, client_id, "JAVA", version),
        Consuming(),
        [SubscriptionData(topic="T", version=1)],
        broker.clock.now_ms(),
    )


def test_topic_stats(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        for n in range(3):
            await broker.put("T", 1, b"%d" % n)
        answer = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="T")
        stats = TopicStats.decode(answer.body)
        empty, full = (stats.offsets[MessageQueue("T", "broker-a", n)] for n in (0, 1))
        assert (empty.min_offset, empty.max_offset, empty.last_update) == (0, 0, 0)
        assert (full.min_offset, full.max_offset) == (0, 3)
        assert full.last_update == broker.store.store_time("T", 1, 2) > 0
        gone = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="U")
        assert (gone.code, gone.remark) == (17, "topic[U] not exist")

    play(tmp_path, story)


def test_consume_stats(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.topics.put(TopicConfig(name="U", read_queues=1, write_queues=1))
        for n in range(4):
            await broker.put("T", 0, b"%d" % n)
        broker.offsets.commit("G", "T", 0, 3)
        broker.offsets.note_pull("G", "T", 0, 4)
        broker.offsets.commit("G", "U", 0, 0)
        code = RequestCode.GET_CONSUME_STATS
        stats = ConsumeStats.decode((await broker.ask(code, consumerGroup="G")).body)
        assert sorted(stats.offsets) == [
            MessageQueue("T", "broker-a", 0),
            MessageQueue("T", "broker-a", 1),
            MessageQueue("U", "broker-a", 0),
        ]
        one = stats.offsets[MessageQueue("T", "broker-a", 0)]
        assert (one.broker_offset, one.consumer_offset, one.pull_offset) == (4, 3, 4)
        assert one.last_timestamp == broker.store.store_time("T", 0, 2)
        only = ConsumeStats.decode((await broker.ask(code, consumerGroup="G", topic="U")).body)
        assert sorted(only.offsets) == [MessageQueue("U", "broker-a", 0)]
        some = await broker.ask(code, consumerGroup="G", topicList="U;;Gone")
        assert sorted(ConsumeStats.decode(some.body).offsets) == [MessageQueue("U", "broker-a", 0)]
        # A group that is here and does not subscribe is not asked about.
        join(broker, "G", "c", FakePeer())
        here = ConsumeStats.decode((await broker.ask(code, consumerGroup="G")).body)
        assert {queue.topic for queue in here.offsets} == {"T"}
        every = json_of(await broker.ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"))
        assert (every["totalDiff"], every["totalInflightDiff"]) == (1, 1)
        assert every["brokerAddr"] == "127.0.0.1:10911"

    play(tmp_path, story)


def test_lag_of_each_group_is_answered_by_one_small_request(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.topics.put(TopicConfig(name="U", read_queues=1, write_queues=1))
        for n in range(4):
            await broker.put("T", 0, b"%d" % n)
        await broker.put("U", 0, b"x")
        broker.offsets.commit("G", "T", 0, 3)
        broker.offsets.commit("G", "U", 0, 0)
        broker.offsets.commit("ahead", "T", 0, 9)
        broker.offsets.commit("lost", "Gone", 0, 1)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        answer = await broker.ask(code, isOrder="false", lagOnly="true")
        assert decode_group_lags(answer.body) == {
            "G": GroupLag(2, 0),
            "ahead": GroupLag(0, 0),
            "lost": GroupLag(0, 0),
        }
        # A group that is here and does not subscribe to a topic is not behind in it.
        join(broker, "G", "c", FakePeer())
        answer = await broker.ask(code, isOrder="false", lagOnly="true")
        assert decode_group_lags(answer.body)["G"] == GroupLag(1, 1)
        runtime = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert json.loads(runtime.body)["table"]["groupLags"] == "true"

    play(tmp_path, story)


@pytest.mark.parametrize("row", ["1", "[1]", '{"lag":"x"}', '{"members":{}}', "null"])
def test_lag_of_a_group_that_is_no_number_is_refused(row: str) -> None:
    with pytest.raises(JsonError):
        decode_group_lags(f'{{"groups":{{"g":{row}}}}}'.encode())


def json_of(answer: Command) -> dict[str, int | str]:
    assert answer.code == 0, answer.remark
    text = answer.body.decode()
    # Only what follows the table with object keys is plain JSON.
    tail = text[text.rindex("]") + 1 :]
    head = text[: text.index('"consumeStatsList"')].rstrip(",")
    found: dict[str, int | str] = json.loads(head + "}") | json.loads("{" + tail.lstrip(","))
    return found


def test_who_reads_what(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.offsets.commit("Old", "T", 0, 1)
        join(broker, "G", "c", FakePeer())
        who = await broker.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
        assert decode_group_list(who.body) == ["G", "Old"]
        what = await broker.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="Old")
        assert decode_topic_list(what.body) == (["T"], "127.0.0.1:10911")
        sub = await broker.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="G", topic="T")
        assert json.loads(sub.body)["subscriptionData"]["subString"] == "*"
        spans = await broker.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")
        assert len(json.loads(spans.body)["consumeTimeSpanSet"]) == 2

    play(tmp_path, story)


def test_reset_is_pending_until_a_pull_takes_it(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        for n in range(5):
            await broker.put("T", 0, b"%d" % n)
        broker.offsets.commit("G", "T", 0, 5)
        reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        ext = {"topic": "T", "group": "G", "queueId": "-1", "timestamp": "0", "isForce": "true"}
        answer = await broker.ask(reset, **ext)
        assert decode_queue_offsets(answer.body) == {
            MessageQueue("T", "broker-a", 0): 0,
            MessageQueue("T", "broker-a", 1): 0,
        }
        assert broker.offsets.pending_reset("G", "T", 0) == 0
        answer = await broker.ask(reset, **ext | {"timestamp": "-1"})
        assert broker.offsets.query("G", "T", 0) == 5
        answer = await broker.ask(reset, **ext | {"queueId": "0", "offset": "2"})
        assert decode_queue_offsets(answer.body) == {MessageQueue("T", "broker-a", 0): 2}
        assert broker.offsets.query("G", "T", 0) == 2
        for change, code, remark in (
            ({"queueId": "0", "offset": "7"}, 1, "not in consume queue range [0-5]"),
            ({"topic": "Gone"}, 17, "Topic Gone does not exist"),
            ({"group": "Gone"}, 26, "Group Gone does not exist"),
        ):
            answer = await broker.ask(reset, **ext | change)
            assert answer.code == code
            assert remark in (answer.remark or "")
        broker.state.is_slave = True
        answer = await broker.ask(reset, **ext)
        assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")
        assert broker.offsets.query("G", "T", 0) == 2

    play(tmp_path, story)


def test_offsets_are_cloned_compared_and_exported(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        broker.offsets.commit("G", "T", 0, 4)
        broker.offsets.commit("H", "T", 0, 6)
        clone = RequestCode.CLONE_GROUP_OFFSET
        answer = await broker.ask(clone, srcGroup="G", destGroup="New", topic="T", offline="false")
        assert answer.code == 0
        assert broker.offsets.query("New", "T", 0) == 4
        compare = RequestCode.QUERY_CORRECTION_OFFSET
        least = await broker.ask(compare, topic="T", compareGroup="H", filterGroups="")
        assert b'"correctionOffsets":{0:4}' in least.body
        least = await broker.ask(compare, topic="T", compareGroup="G", filterGroups="G,New")
        assert b"9223372036854775807" in least.body
        exported = await broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert ConsumerOffsetBody.decode(exported.body).offsets == {
            "T@G": {0: 4},
            "T@H": {0: 6},
            "T@New": {0: 4},
        }
        delays = await broker.ask(RequestCode.GET_ALL_DELAY_OFFSET)
        assert DelayOffsetBody.decode(delays.body).offsets == {1: 5}

    play(tmp_path, story)


def test_connections(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        join(broker, "G", "c1", FakePeer(address="10.0.0.1:1"))
        broker.registry.register_producer(
            "P", Client(FakePeer(address="10.0.0.2:2"), "p1", "GO", 401), broker.clock.now_ms()
        )
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        shown = ConsumerConnection.decode((await broker.ask(code, consumerGroup="G")).body)
        assert [(c.client_id, c.client_address) for c in shown.connections] == [
            ("c1", "10.0.0.1:1")
        ]
        assert list(shown.subscriptions) == ["T"]
        gone = await broker.ask(code, consumerGroup="H")
        assert (gone.code, gone.remark) == (206, "the consumer group[H] not online")
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        answer = await broker.ask(code, producerGroup="P")
        (producer,) = decode_producer_connections(answer.body)
        assert (producer.client_id, producer.language, producer.version) == ("p1", "GO", 401)
        gone = await broker.ask(code, producerGroup="Q")
        assert (gone.code, gone.remark) == (1, "the producer group[Q] not exist")
        every = await broker.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert [it["clientId"] for it in json.loads(every.body)["data"]["P"]] == ["p1"]

    play(tmp_path, story)


def test_questions_are_passed_on_to_the_client(tmp_path: Path) -> None:
    asked: list[Command] = []

    def running_info(request: Request) -> Command:
        asked.append(request.command)
        return reply_to(request.command, body=b'{"it":"runs"}')

    def status(request: Request) -> Command:
        body = encode_consumer_status({MessageQueue("T", "broker-a", 0): 9})
        return reply_to(request.command, body=body)

    handlers = [
        Route((RequestCode.GET_CONSUMER_RUNNING_INFO,), running_info, "back"),
        Route((RequestCode.CONSUME_MESSAGE_DIRECTLY,), running_info, "back"),
        Route((RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,), status, "back"),
    ]

    async def story(broker: Broker) -> None:
        consumer = remoting.Client(clock=broker.clock, handlers=handlers)
        await consumer.call(
            f"127.0.0.1:{broker.server.port}", Command(RequestCode.GET_BROKER_CONFIG)
        )
        (peer,) = broker.server.peers()
        join(broker, "G", "c1", peer)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        ext = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}
        answer = await broker.ask(code, **ext)
        assert (answer.code, answer.body) == (0, b'{"it":"runs"}')
        assert asked[0].ext == ext
        await broker.put("T", 0, b"consume me")
        message_id = "7F00000100002A9F" + "0" * 16
        answer = await broker.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            consumerGroup="G",
            clientId="c1",
            msgId=message_id,
            topic="T",
        )
        assert answer.code == 0
        assert b"consume me" in asked[1].body
        assert (asked[1].ext or {})["brokerName"] == "broker-a"
        for wrong, code_ in (("zz", 29), ("F" * 32, 1), ("7F00000100002A9F" + "0" * 15 + "9", 1)):
            answer = await broker.ask(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                consumerGroup="G",
                clientId="c1",
                msgId=wrong,
            )
            assert answer.code == code_, wrong
        answer = await broker.ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="G"
        )
        _, by_client = decode_consumer_status(answer.body)
        assert by_client == {"c1": {MessageQueue("T", "broker-a", 0): 9}}
        assert answer.remark == "not set any response code"
        other = await broker.ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="G", clientAddr="c2"
        )
        assert (other.code, decode_consumer_status(other.body)[1]) == (0, {})
        gone = await broker.ask(code, **ext | {"clientId": "c2"})
        assert (gone.code, gone.remark) == (1, "The Consumer <G> <c2> not online")
        join(broker, "Old", "c3", FakePeer(), version=61)
        old = await broker.ask(code, **ext | {"consumerGroup": "Old", "clientId": "c3"})
        assert "too low" in (old.remark or "")
        nobody = await broker.ask(
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="Nobody"
        )
        assert nobody.code == 1
        await consumer.stop()

    play(tmp_path, story)


def test_units_of_a_queue(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        for tag in ("A", "B"):
            await broker.put("T", 0, b"x", TAGS=tag)
        code = RequestCode.QUERY_CONSUME_QUEUE
        ext = {"topic": "T", "queueId": "0", "index": "0", "count": "9", "consumerGroup": "G"}
        shown = json.loads((await broker.ask(code, **ext)).body)
        assert (shown["minQueueIndex"], shown["maxQueueIndex"]) == (0, 2)
        assert [unit["tagsCode"] for unit in shown["queueData"]] == [ord("A"), ord("B")]
        beyond = await broker.ask(code, **ext | {"index": "2"})
        assert (beyond.code, beyond.body) == (0, b"")
        assert beyond.remark == "Index 2 of 0@T is not exist!"
        assert (await broker.ask(code, **ext | {"topic": "U"})).code == 1
        empty = await broker.ask(code, **ext | {"queueId": "1"})
        assert (empty.code, empty.remark) == (1, "1@T is not exist!")
        assert (await broker.ask(code, **ext | {"index": "-1"})).code == 29

    play(tmp_path, story)


def test_how_long_sends_and_reads_took(tmp_path: Path) -> None:
    """The names and keys of RocketMQ 5: queue first, and milliseconds."""

    async def story(broker: Broker) -> None:
        broker.stats.sent_many("T", 3, 4, 10)
        broker.stats.found_many("G", "T", 3, 40, 9_000, behind=0, reads=5, took_ms=15)
        code = RequestCode.VIEW_BROKER_STATS_DATA
        await broker.clock.advance(30)
        for name, key, total, each in (
            ("TOPIC_PUT_LATENCY", "3@T", 10, 2.5),
            ("GROUP_GET_LATENCY", "3@T@G", 15, 3.0),
        ):
            answer = await broker.ask(code, statsName=name, statsKey=key)
            minute = json.loads(answer.body)["statsMinute"]
            assert (minute["sum"], minute["avgpt"]) == (total, each), name
        # A group of the same name as a topic is none of its queues.
        broker.stats.forget_group("T")
        assert (await broker.ask(code, statsName="TOPIC_PUT_LATENCY", statsKey="3@T")).code == 0
        broker.stats.forget_group("G")
        assert (await broker.ask(code, statsName="GROUP_GET_LATENCY", statsKey="3@T@G")).code == 1
        broker.stats.forget_topic("T")
        assert (await broker.ask(code, statsName="TOPIC_PUT_LATENCY", statsKey="3@T")).code == 1

    play(tmp_path, story)


def test_rates_by_name(tmp_path: Path) -> None:
    async def story(broker: Broker) -> None:
        for _ in range(6):
            await broker.put("T", 0, b"x")
        code = RequestCode.VIEW_BROKER_STATS_DATA
        await broker.clock.advance(30)
        answer = await broker.ask(code, statsName="TOPIC_PUT_NUMS", statsKey="T")
        assert json.loads(answer.body)["statsMinute"]["sum"] == 6
        gone = await broker.ask(code, statsName="TOPIC_PUT_NUMS", statsKey="U")
        assert (gone.code, gone.remark) == (1, "The stats <TOPIC_PUT_NUMS> <U> not exist")
        assert broker.stats.put_rate("T") == pytest.approx(0.2, rel=0.4)
        broker.stats.forget_topic("T")
        assert (await broker.ask(code, statsName="TOPIC_PUT_NUMS", statsKey="T")).code == 1

    play(tmp_path, story)


def test_a_meter_forgets_in_time() -> None:
    start_ms = 1_700_000_000_000
    meter = Meter(start_ms)
    numbers, events = View([meter], events=False), View([meter, meter], events=True)
    for second in range(0, 7200, 10):
        meter.add(10, start_ms + second * 1000)
    now_ms = start_ms + 7200 * 1000
    assert (numbers.total, events.total) == (7200, 1440)
    assert numbers.minute(now_ms).total == pytest.approx(60, abs=10)
    assert numbers.minute(now_ms).per_event == 10
    assert numbers.hour(now_ms).total == pytest.approx(3600, rel=0.2)
    assert numbers.day(now_ms).total == 7200
    assert events.day(now_ms).total == 1440
    assert numbers.rate(now_ms) == pytest.approx(1.0, rel=0.2)
    assert numbers.rate(now_ms, 60) == pytest.approx(1.0, rel=0.1)
    assert events.rate(now_ms) == pytest.approx(0.2, rel=0.2)
    much_later_ms = now_ms + 3 * 86_400_000
    assert (numbers.minute(much_later_ms).total, numbers.day(much_later_ms).total) == (0, 0)
    assert numbers.rate(much_later_ms) == 0
