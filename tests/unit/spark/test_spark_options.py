"""Options of source and sink."""

from __future__ import annotations

import pytest

from roquet.base.errors import UsageError
from roquet.spark.offsets import EARLIEST, LATEST, QueueKey
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.schema import COLUMNS, ddl

BASE = {"nameServers": "127.0.0.1:9876", "subscribe": "orders"}


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **options}, streaming=False)


def test_defaults() -> None:
    options = parse()
    assert options.wire.name_servers == ("127.0.0.1:9876",)
    assert options.topics.names == ("orders",)
    assert options.columns == COLUMNS
    assert options.starting is None
    assert options.ending.default == LATEST
    assert options.fail_on_data_loss
    assert (options.rows_per_trigger, options.partitions_min, options.tags) == (None, None, "*")


def test_case_never_matters() -> None:
    lowered = {name.lower(): value for name, value in BASE.items()}
    options = SourceOptions.parse(
        {**lowered, "maxoffsetspertrigger": "10", "FAILONDATALOSS": "False"}, streaming=True
    )
    assert options.rows_per_trigger == 10
    assert not options.fail_on_data_loss


def test_every_option_has_its_effect() -> None:
    options = parse(
        nameServers="rmq://a:1;b, c:2",
        subscribe="orders, bills,orders",
        startingOffsets='{"orders":{"broker-a":{"0":5,"1":-1}}}',
        endingTimestamp="1700000000000",
        minPartitions="4",
        maxRecordsPerPartition="1000",
        tags="new || paid",
        columns="body,QUEUEID",
        group="readers",
        timeoutMs="500",
    )
    assert options.wire.name_servers == ("a:1", "b:9876", "c:2")
    assert options.wire.timeout_s == 0.5
    assert options.topics.names == ("orders", "bills")
    assert options.starting is not None
    assert options.starting.default == EARLIEST
    assert options.starting.offsets == {
        QueueKey("orders", "broker-a", 0): 5,
        QueueKey("orders", "broker-a", 1): LATEST,
    }
    assert options.ending.timestamp_ms == 1_700_000_000_000
    assert (options.partitions_min, options.rows_per_partition) == (4, 1000)
    assert (options.tags, options.group) == ("new || paid", "readers")
    assert options.columns == ("queueId", "body")
    assert ddl(options.columns) == "`queueId` int, `body` binary"


def test_times_of_topics_leave_others_where_they_are_by_default() -> None:
    given = {"subscribe": "orders,bills", "startingTimestamp": '{"orders": 5}'}
    options = parse(**given, endingTimestamp='{"bills": 7}')
    assert options.starting is not None
    assert (options.starting.time_of("orders"), options.starting.time_of("bills")) == (5, None)
    assert options.starting.default == EARLIEST
    assert (options.ending.time_of("orders"), options.ending.time_of("bills")) == (None, 7)
    assert options.ending.default == LATEST
    by_pattern = {"subscribe": "", "subscribePattern": "or.*", "startingTimestamp": '{"orders":5}'}
    assert parse(**by_pattern).starting == options.starting
    queues = {
        "subscribe": "",
        "assign": '{"orders":{"b":[1]}}',
        "startingTimestamp": '{"orders":5}',
    }
    assert parse(**queues).starting == options.starting


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250", 0.25), ("250ms", 0.25), ("30 s", 30), ("15m", 900), ("2h", 7200), ("0s", 0)],
)
def test_delay_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse(maxTriggerDelay=text).trigger_delay_s == seconds
    assert parse().trigger_delay_s == 900


def test_body_and_properties_can_be_left_out() -> None:
    columns = parse(includeBody="false", includeHeaders="false").columns
    assert set(COLUMNS) - set(columns) == {"body", "properties"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOfsets": "earliest"}, "startingOffsets"),
        ({"kafka.bootstrap.servers": "a:1"}, r"did you mean: nameServers\?"),
        ({"namesrvAddr": "a:1"}, r"did you mean: nameServers\?"),
        ({"nameServers": ""}, "nameServers is needed"),
        ({"nameServers": "a:99999"}, "port"),
        ({"subscribe": "no spaces"}, "subscribe"),
        ({"subscribePattern": "a.*"}, "exactly one"),
        ({"subscribe": ""}, "exactly one"),
        ({"subscribe": "", "topic": "orders"}, "subscribe=orders reads a topic"),
        ({"subscribe": "", "subscribePattern": "("}, "subscribePattern"),
        ({"startingOffsets": "sometime"}, "no JSON, and neither earliest nor latest: 'sometime'"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "one of"),
        ({"endingOffsets": "earliest"}, "nothing"),
        ({"endingOffsets": '{"t":{"b":{"0":-2}}}'}, "nothing"),
        ({"maxOffsetsPerTrigger": "0"}, "from 1"),
        ({"minPartitions": "-1"}, "whole number"),
        ({"minPartitions": "٣"}, "whole number"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"columns": "body,bodee"}, "there are topic"),
        ({"columns": "body", "includeBody": "false"}, "no column"),
        ({"tags": "||"}, "no tag"),
        ({"group": "a b"}, "group"),
        ({"sql": "n >"}, "sql = "),
        ({"sql": "n > 1", "tags": "a"}, "one of tags and sql"),
        ({"maxBytesPerTrigger": "5", "maxOffsetsPerTrigger": "5"}, "one of"),
        ({"maxBytesPerBatch": "1"}, "from 65536"),
        ({"pushdown": "yes"}, "true or false"),
        ({"startingTimestamp": "-1"}, "whole number"),
        ({"startingTimestamp": "2026-01-02 03:04"}, "Unix milliseconds as 1700000000000"),
        ({"startingTimestamp": "1790000000"}, "in seconds; Unix milliseconds are 1790000000000"),
        ({"endingTimestamp": '{"orders": 1790000000}'}, "in seconds"),
        ({"startingTimestamp": "{"}, "startingTimestamp is no JSON"),
        ({"startingTimestamp": "{}"}, "names no topic"),
        ({"startingTimestamp": '{"orders": "1"}'}, "'orders' has '1'; must be Unix milliseconds"),
        ({"startingTimestamp": '{"orders": -1}'}, "must be Unix milliseconds"),
        ({"startingTimestamp": '{"orders": true}'}, "must be Unix milliseconds"),
        ({"endingTimestamp": '{"bills": 1}'}, "endingTimestamp: topic 'bills' is not read"),
        ({"startingOffsets": "latest", "startingTimestamp": '{"orders": 1}'}, "one of"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "9 is above max"),
        ({"minOffsetsPerTrigger": "0"}, "from 1"),
        ({"maxTriggerDelay": "soon"}, "500ms, 30s, 15m or 2h"),
        ({"maxTriggerDelay": "1d"}, "500ms, 30s, 15m or 2h"),
        ({"reportGroup": "a b"}, "reportGroup"),
        ({"reportGroup": "CID_RMQ_SYS_TRANS"}, "brokers' own"),
        ({"reportGroup": "TOOLS_CONSUMER"}, "brokers' own"),
        ({"credentials": "north/1"}, "a name has letters"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(**options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(UsageError, match="a stream has no end"):
        SourceOptions.parse({**BASE, name: "1"}, streaming=True)


def test_sink_options() -> None:
    options = SinkOptions.parse(
        {"nameservers": "a:1", "topic": "out", "partitioner": "KEY", "checkpointlocation": "/c"}
    )
    assert (options.topic, options.partitioner) == ("out", "key")
    assert options.wire.url == "rmq://a:1"
    for wrong in ({"partitioner": "hash"}, {"topic": "a b"}, {"subscribed": "t"}):
        with pytest.raises(UsageError):
            SinkOptions.parse({"nameServers": "a:1", **wrong})


def test_table_of_sql_has_the_options_of_both_ways() -> None:
    both = {"nameServers": "a:1", "subscribe": "in", "topic": "out", "startingOffsets": "latest"}
    assert SinkOptions.parse(both).topic == "out"
    assert SourceOptions.parse(both, streaming=True).topics.names == ("in",)
    with pytest.raises(UsageError, match="subscribe"):
        SourceOptions.parse({"nameServers": "a:1", "topic": "out"}, streaming=False)
