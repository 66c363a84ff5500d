"""Bodies that no recording holds: round trips, both key styles, and refusals."""

from __future__ import annotations

import contextlib
import random
import zlib

import pytest

from roquet.model.data_version import DataVersion
from roquet.model.group import (
    RetryPolicy,
    RetryPolicyType,
    SimpleSubscription,
    SubscriptionGroupConfig,
)
from roquet.model.queue import MessageQueue
from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.model.topic import FilterType, TopicConfig, can_inherit, can_read, can_write, perm_text
from roquet.protocol import fastjson
from roquet.protocol.bodies import clients, fields, groups, offsets, routes, stats, topics
from roquet.protocol.fastjson import JsonError
from roquet.protocol.messages import batch, records
from roquet.protocol.registration.body import RegisterBody, RegisterBodyError, crc32_of

QUEUES = [MessageQueue("t", "b", n) for n in range(3)]
TOPIC = TopicConfig(
    name="T",
    read_queues=4,
    write_queues=8,
    perm=7,
    filter_type=FilterType.MULTI_TAG,
    attributes={"message.type": "FIFO"},
)
VERSION = DataVersion(state_version=1, timestamp=2, counter=3)
ROUTE = TopicRoute(
    queues=(QueueData(broker_name="b", read_queues=4, write_queues=4),),
    brokers=(
        BrokerData(cluster="c", broker_name="b", addresses={0: "h:1", 2: "h:3"}, zone_name="z"),
    ),
    order_topic_conf="b:4",
    filter_servers={"b": ("f:1",)},
)


def test_routes_in_both_styles() -> None:
    bare, quoted = (routes.encode_route(ROUTE, standard=style) for style in (False, True))
    assert b'{0:"h:1",2:"h:3"}' in bare
    assert b'{"0":"h:1","2":"h:3"}' in quoted
    assert routes.decode_route(bare) == routes.decode_route(quoted) == ROUTE
    assert ROUTE.brokers[0].master == "h:1"
    assert routes.wants_standard(401, None)
    assert routes.wants_standard(300, accept_standard_json_only=True)
    assert not routes.wants_standard(399, None)


def test_an_old_route_is_read() -> None:
    old = routes.decode_route(b'{queueDatas:[{"brokerName":"b","topicSynFlag":3}]}')
    assert old.queues[0].topic_sys_flag == 3


def test_member_groups() -> None:
    body = routes.encode_member_group("c", "b", {0: "x:1"})
    assert routes.decode_member_group(body) == ("c", "b", {0: "x:1"})
    assert routes.decode_member_group(b"{}") is None


def test_topic_lines() -> None:
    assert topics.topic_text(TopicConfig(name="TestT", read_queues=4, write_queues=4)) == (
        "TestT 4 4 6 SINGLE_TAG {}"
    )
    assert topics.topic_of_text(topics.topic_text(TOPIC)) == TOPIC
    assert topics.topic_of_text("T 1 2 6 X").filter_type is FilterType.SINGLE_TAG
    assert topics.topic_of_text("T 1 2 6 SINGLE_TAG {broken").attributes == {}
    for bad in ("T 1 2 6", "T x 2 6 SINGLE_TAG {}", "T 99999999999 1 6 SINGLE_TAG"):
        with pytest.raises(JsonError):
            topics.topic_of_text(bad)


def test_topic_lists_and_configs() -> None:
    assert topics.decode_topic_list(topics.encode_topic_list({"b", "a"}, "h:1")) == (
        ["a", "b"],
        "h:1",
    )
    assert topics.decode_topic_configs(topics.encode_topic_configs([TOPIC])) == [TOPIC]
    assert topics.decode_data_version(topics.encode_data_version(VERSION)) == VERSION
    assert VERSION.next(9) == DataVersion(state_version=1, timestamp=9, counter=4)


@pytest.mark.parametrize("compressed", [False, True])
def test_registrations(compressed: bool) -> None:
    table = topics.TopicTableBody(topics={"T": TOPIC}, version=VERSION)
    body = RegisterBody(table=table, filter_servers=("f:1",)).encode(compressed=compressed)
    for flag in (compressed, False):
        read = RegisterBody.decode(body, 513, compressed=flag)
        assert read.table.topics == {"T": TOPIC}
        assert read.table.version == VERSION
        assert read.filter_servers == ("f:1",)
    assert 0 <= crc32_of(body) < 2**31


def test_registrations_with_mapping_and_old_ones() -> None:
    table = topics.TopicTableBody(
        topics={"T": TOPIC},
        version=VERSION,
        mapping_version=VERSION,
        mapping_info={"T": {"topic": "T", "totalQueues": 2}},
        mapping_detail={},
    )
    body = RegisterBody(table=table).encode(compressed=True)
    assert RegisterBody.decode(body, 513, compressed=True).table.mapping_info == table.mapping_info
    assert RegisterBody.decode(body, 412, compressed=True).table.mapping_info is None
    plain = RegisterBody(table=table).encode()
    assert RegisterBody.decode(plain, 513, compressed=False).table == table
    assert RegisterBody.decode(table.encode(), 36, compressed=False).table == table


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        zlib.compress(b""),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress((2**31 - 1).to_bytes(4, "big")),
        zlib.compress(b"\0\0\0\2{}" + (2**31 - 1).to_bytes(4, "big")),
        zlib.compress(b"\0\0\0\2{}\0\0\0\1\0\0\0\1"),
        zlib.compress(bytes(40 * 1024 * 1024)),
        zlib.compress(b"\0\0\0\2{}")[:-4],
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":5}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}',
    ],
)
def test_bad_registrations(body: bytes) -> None:
    with pytest.raises(RegisterBodyError):
        RegisterBody.decode(body, 513, compressed=False)


@pytest.mark.parametrize("seed", range(100))
def test_mutated_registrations_never_raise_anything_else(seed: int) -> None:
    draw = random.Random(seed)
    table = topics.TopicTableBody(topics={"T": TOPIC, "U": TOPIC}, version=VERSION)
    raw = bytearray(zlib.decompress(RegisterBody(table=table).encode(compressed=True)))
    for _ in range(3):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    with contextlib.suppress(RegisterBodyError):
        found = RegisterBody.decode(zlib.compress(raw), 513, compressed=True)
        assert len(found.table.topics) <= 2


def test_groups() -> None:
    config = SubscriptionGroupConfig(
        name="g",
        retry_policy=RetryPolicy(
            type=RetryPolicyType.EXPONENTIAL, initial_ms=1, max_ms=2, multiplier=3, next_ms=(4, 5)
        ),
        subscriptions=(SimpleSubscription(topic="t", version=1),),
        attributes={"a": "b"},
    )
    assert groups.decode_group(groups.encode_group(config)) == config
    assert groups.decode_groups(groups.encode_groups([config])) == [config]
    table = groups.GroupTableBody(groups={"g": config}, version=VERSION, forbidden={"g": {"t": 2}})
    assert groups.GroupTableBody.decode(table.encode()) == table
    assert groups.GroupTableBody.decode(table.encode_file()) == table
    assert groups.decode_group_list(groups.encode_group_list({"y", "x"})) == ["x", "y"]
    assert groups.group_of({}, "n") == SubscriptionGroupConfig(name="n")


def test_offsets_of_queues_in_both_forms() -> None:
    given = {queue: index * 7 for index, queue in enumerate(QUEUES)}
    body = offsets.encode_queue_offsets(given)
    assert body.startswith(b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:0,')
    assert offsets.decode_queue_offsets(body) == given
    assert offsets.decode_queue_offsets(offsets.encode_queue_offset_list(given)) == given
    assert offsets.decode_queue_offsets(offsets.encode_queue_offsets_file(given)) == given
    status = offsets.encode_consumer_status(given, {"c": given})
    assert offsets.decode_consumer_status(status) == (given, {"c": given})
    assert offsets.correction_offsets_body(b"0:5") == b'{"correctionOffsets":{0:5}}'
    with pytest.raises(JsonError):
        offsets.decode_queue_offsets(b'{"offsetTable":{"t":5}}')


def test_offset_tables() -> None:
    body = offsets.ConsumerOffsetBody(offsets={"t@g": {0: 12, 1: 34}}, version=VERSION)
    assert b'"t@g":{0:12,1:34}' in body.encode()
    assert offsets.ConsumerOffsetBody.decode(body.encode()) == body
    assert b'"g":[\n\t\t\t"t"\n\t\t]' in body.encode_file()
    delay = offsets.DelayOffsetBody(offsets={1: 100, 3: 7}, version=VERSION)
    assert offsets.DelayOffsetBody.decode(delay.encode()) == delay
    assert offsets.DelayOffsetBody.decode(delay.encode_file()) == delay


def test_statistics() -> None:
    table = stats.TopicStats(
        offsets={QUEUES[0]: stats.TopicOffset(min_offset=1, max_offset=2, last_update=3)}
    )
    assert stats.TopicStats.decode(table.encode()) == table
    assert table.encode().endswith(b'"topicPutTps":0.0}')
    consumed = stats.ConsumeStats(
        offsets={QUEUES[0]: stats.ConsumeOffset(broker_offset=5, consumer_offset=4)}
    )
    assert stats.ConsumeStats.decode(consumed.encode()) == consumed
    listed = stats.consume_stats_list_body(
        {"g": [consumed.encode()]}, broker_address="h:1", total_diff=1
    )
    assert listed.startswith(b'{"brokerAddr":"h:1","consumeStatsList":[{"g":[{"consumeTps":0.0,')
    assert stats.decode_kv_table(stats.encode_kv_table({"a": "1"})) == {"a": "1"}
    assert stats.encode_broker_stats({"statsDay": (5, 1.5, 0)}) == (
        b'{"statsDay":{"avgpt":0.0,"sum":5,"tps":1.5}}'
    )
    span = stats.QueueTimeSpan(min_time=1, max_time=2, consume_time=3, delay_ms=4)
    queue = fields.QueueText("t", 'b"').of(7)
    body = stats.time_spans_body(f"{span.row(queue)},{span.row(queue)}".encode())
    assert fastjson.read_object(body)["consumeTimeSpanSet"] == 2 * [
        {
            "consumeTimeStamp": 3,
            "delayTime": 4,
            "maxTimeStamp": 2,
            "messageQueue": {"brokerName": 'b"', "queueId": 7, "topic": "t"},
            "minTimeStamp": 1,
        }
    ]


def test_answers_of_consumers() -> None:
    done = stats.ConsumedDirectly(result="CR_LATER", spent_ms=7, remark="r")
    assert stats.ConsumedDirectly.decode(done.encode()) == done
    info = stats.RunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        subscriptions=({"topic": "t"},),
        queues={QUEUES[0]: {"commitOffset": 5, "droped": False}},
        status={"t": {"pullRT": 0.5}},
    )
    assert stats.RunningInfo.decode(info.encode()) == info


def test_connections() -> None:
    connection = clients.Connection(client_id="c", client_address="h:1", version=513)
    assert clients.decode_producer_connections(
        clients.encode_producer_connections([connection])
    ) == (connection,)
    consumer = clients.ConsumerConnection(
        connections=(connection,),
        consume_type=None,
        message_model=None,
        consume_from_where=None,
        subscriptions={},
    )
    assert clients.ConsumerConnection.decode(consumer.encode()) == consumer
    info = clients.ProducerInfo(
        client_id="c", remote_ip="h", language="GO", version=1, last_update=2
    )
    assert b'"g":[{"clientId":"c","language":"GO"' in clients.encode_producer_table({"g": [info]})


def test_heartbeats_forgive_what_java_forgives() -> None:
    beat = clients.HeartbeatData.decode(
        b'{"consumerDataSet":[{"groupName":"g","consumeType":"NEW","unitMode":"true",'
        b'"subscriptionDataSet":[{"topic":"t","subVersion":"5","codeSet":["42"],}],}],/*x*/}'
    )
    assert beat.client_id is None
    assert beat.consumers[0].consume_type is None
    assert beat.consumers[0].unit_mode
    assert beat.consumers[0].subscriptions[0].version == 5
    assert beat.consumers[0].subscriptions[0].codes == {42}


@pytest.mark.parametrize(
    "body",
    [
        b'{"consumerDataSet":5}',
        b'{"consumerDataSet":[5]}',
        b'{"consumerDataSet":[{"groupName":[]}]}',
        b'{"consumerDataSet":[{"unitMode":"maybe"}]}',
        b'{"heartbeatFingerprint":2147483648}',
        b'{"heartbeatFingerprint":"1_0"}',
        b'{"heartbeatFingerprint":true}',
        b'{"producerDataSet":[{"groupName":{}}]}',
    ],
)
def test_fields_of_the_wrong_kind_are_named(body: bytes) -> None:
    with pytest.raises(JsonError, match=r"consumerData|groupName|unitMode|Fingerprint"):
        clients.HeartbeatData.decode(body)


def test_numbers() -> None:
    assert fields.real({"a": "1.5"}, "a") == 1.5
    assert fields.number(5.0, "a") == 5
    assert fields.text({"a": 5}, "a") == "5"
    assert fields.boolean({"a": 1}, "a")
    assert fields.texts({"a": ["x", None]}, "a") == ["x"]
    wrong: list[dict[str, object]] = [{"a": []}, {"a": "x"}]
    for bad in wrong:
        with pytest.raises(JsonError):
            fields.real(bad, "a")
    with pytest.raises(JsonError):
        fields.texts({"a": [1]}, "a")


def test_batches() -> None:
    elements = [(0, b"a", b""), (7, b"", b"KEYS\x01k\x02")]
    body = batch.encode(elements)
    assert batch.decode(body) == elements
    for bad in (body[:-1], body + b"x", b"\0" * 21, body[:16] + b"\xff" * 4 + body[20:]):
        with pytest.raises(batch.BatchError):
            batch.decode(bad)
    with pytest.raises(batch.BatchError, match="more than"):
        batch.decode(batch.encode([(0, b"", b"")]) * 70_000)
    with pytest.raises(batch.BatchError, match="longer"):
        batch.encode([(0, b"", b"x" * 40_000)])


def test_records_become_messages() -> None:
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    body = zlib.compress(b"hello" * 1000)
    record = (100, 1, 2, 3, 5, 1000, 0x301, 6, host, 7, host, 8, 9, body, "t", b"TAGS\x01A\x02", 0)
    message = records.message_of(record, "b")
    assert message.body == b"hello" * 1000
    assert message.msg_id == "7F00000100002A9F00000000000003E8"
    assert (message.tag, message.keys, message.unique_key) == ("A", (), None)
    assert (message.queue_id, message.queue_offset, message.broker_name) == (2, 5, "b")
    assert message.born_host == message.store_host == "127.0.0.1:10911"


def test_permissions() -> None:
    assert [perm_text(perm) for perm in (0, 6, 7, 2, 1)] == ["---", "RW-", "RWX", "-W-", "--X"]
    assert can_read(6)
    assert can_write(6)
    assert not can_inherit(6)
