"""Every option of sources and sink has a test that sees its effect; here those that need no JVM."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typing_extensions import override

from remoting_harness import on_loop
from roquet import sync
from roquet.base.errors import Refused, Unreachable
from roquet.client import Message, MessageQueue
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages import batch
from roquet.spark import option_table
from roquet.spark.cluster.connections import Connections
from roquet.spark.log_source import LogFilesReader
from roquet.spark.meta import MetaReader
from roquet.spark.offsets import QueueKey, Range
from roquet.spark.options import LogOptions, MetaOptions, SinkOptions, SourceOptions
from roquet.spark.reading import fetch
from roquet.spark.reading.batch import BatchReader
from roquet.spark.reading.partitions import QueuePartition
from roquet.spark.sink import write
from roquet.spark.sink.tries import Tries
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from roquet.client import Encoded
    from roquet.spark.options import Wire

TESTS = Path(__file__).parents[2]
HERE = "unit/spark/test_option_effects.py"
LOG_FILES = "unit/spark/test_spark_log.py"
READERS = "unit/spark/test_spark_readers.py"
LOG_META = "spark/test_spark_log_meta.py"
IN_S3 = "test_dead_broker_s_store_in_s3_is_read_by_tasks_and_jobs"
REMOTE = "unit/spark/test_remote_logs.py"
SINK = "spark/test_spark_sink.py"
TRANSACTIONAL = "test_transactional_stream_whose_commit_failed_writes_each_row_once"
RULES = "unit/spark/test_spark_rules.py"
SOURCE = "spark/test_spark_source.py"
TRUTH = "spark/test_spark_truth.py"
DOORS = "spark/test_spark_stream_doors.py"
GATHERED = f"{DOORS}::test_small_micro_batches_wait_for_messages_or_for_the_delay"
KEYS = "spark/test_spark_secrets.py::test_one_job_has_keys_of_two_clusters"
WIRE = {
    "credentials": KEYS,
    "nameServers": f"{HERE}::test_name_servers_are_asked_one_after_the_other",
    "timeoutMs": f"{HERE}::test_timeout_is_that_of_each_request",
    "fetchOffset.numRetries": f"{HERE}::test_tries_and_pauses_are_those_of_the_options",
    "fetchOffset.retryIntervalMs": f"{HERE}::test_tries_and_pauses_are_those_of_the_options",
}
SHOWN_BY: dict[str, dict[str, str]] = {
    "SOURCE": {
        **WIRE,
        "unreachableTimeoutMs": f"{TRUTH}::test_batch_broker_away_is_waited_for_or_named",
        "subscribe": f"{SOURCE}::test_batch_has_every_message_and_column",
        "subscribePattern": f"{SOURCE}::test_pattern_and_assign_choose_queues",
        "assign": f"{SOURCE}::test_pattern_and_assign_choose_queues",
        "brokers": f"{TRUTH}::test_batch_broker_away_is_waited_for_or_named",
        "startingOffsets": f"{SOURCE}::test_batch_by_tag_offset_and_time",
        "endingOffsets": f"{SOURCE}::test_batch_by_tag_offset_and_time",
        "startingTimestamp": f"{SOURCE}::test_batch_by_tag_offset_and_time",
        "endingTimestamp": f"{HERE}::test_batch_obeys_end_size_of_tasks_and_columns",
        "maxOffsetsPerTrigger": f"{SOURCE}::test_stream_goes_on_where_it_stopped",
        "maxBytesPerTrigger": f"{SOURCE}::test_a_stream_tells_its_lag",
        "minOffsetsPerTrigger": GATHERED,
        "maxTriggerDelay": GATHERED,
        "minPartitions": f"{SOURCE}::test_batch_is_split_and_reads_each_row_once",
        "maxBytesPerBatch": (
            f"{READERS}::test_bodies_that_grow_when_unpacked_stay_within_the_bytes_of_a_batch"
        ),
        "maxRecordsPerPartition": f"{HERE}::test_batch_obeys_end_size_of_tasks_and_columns",
        "failOnDataLoss": f"{SOURCE}::test_batch_reports_lost_messages",
        "columns": f"{SOURCE}::test_batch_is_split_and_reads_each_row_once",
        "includeBody": f"{HERE}::test_batch_obeys_end_size_of_tasks_and_columns",
        "includeHeaders": f"{HERE}::test_batch_obeys_end_size_of_tasks_and_columns",
        "tags": f"{SOURCE}::test_batch_by_tag_offset_and_time",
        "sql": f"{SOURCE}::test_sql92_chooses_in_batch_and_stream",
        "pushdown": f"{SOURCE}::test_filters_are_pushed_down_when_asked_for",
        "metricsPath": f"{SOURCE}::test_a_stream_tells_its_lag",
        "group": f"{HERE}::test_group_is_the_one_that_pulls_name",
        "reportGroup": f"{DOORS}::test_group_has_the_offsets_of_a_query_at_its_end",
    },
    "LOG": {
        "path": f"{LOG_FILES}::test_every_record_of_a_stopped_store_comes_once_in_order",
        "table": f"{LOG_META}::test_damage_is_an_error_or_a_row",
        "onCorrupt": f"{LOG_META}::test_damage_is_an_error_or_a_row",
        "subscribe": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "subscribePattern": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "startingTimestamp": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "endingTimestamp": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "columns": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "includeBody": f"{HERE}::test_log_leaves_body_and_headers_out",
        "includeHeaders": f"{HERE}::test_log_leaves_body_and_headers_out",
        "tags": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "minPartitions": f"{LOG_FILES}::test_every_record_of_a_stopped_store_comes_once_in_order",
        "maxBytesPerBatch": f"{LOG_FILES}::test_batches_keep_their_limits",
        "brokerName": f"{LOG_FILES}::test_rows_are_chosen_by_topic_tag_and_time",
        "storageEndpoint": f"{LOG_META}::{IN_S3}",
        "storageCredentials": f"{LOG_META}::{IN_S3}",
        "storageRegion": f"{REMOTE}::test_region_is_that_of_the_options",
    },
    "META": {
        **WIRE,
        "unreachableTimeoutMs": f"{HERE}::test_metadata_is_waited_for_as_long_as_the_option_says",
        "table": f"{LOG_META}::test_metadata_is_a_set_of_tables",
        "subscribe": f"{LOG_META}::test_metadata_is_a_set_of_tables",
        "subscribePattern": f"{LOG_META}::test_metadata_is_a_set_of_tables",
        "groups": f"{LOG_META}::test_metadata_is_a_set_of_tables",
    },
    "SINK": {
        "nameServers": f"{HERE}::test_sink_takes_servers_group_and_timeout_from_its_options",
        "credentials": KEYS,
        "timeoutMs": f"{HERE}::test_sink_takes_servers_group_and_timeout_from_its_options",
        "group": f"{HERE}::test_sink_takes_servers_group_and_timeout_from_its_options",
        "fetchOffset.numRetries": f"{HERE}::test_sink_tries_as_its_options_say",
        "fetchOffset.retryIntervalMs": f"{HERE}::test_sink_tries_as_its_options_say",
        "unreachableTimeoutMs": f"{HERE}::test_sink_tries_as_its_options_say",
        "topic": f"{SINK}::test_rows_become_messages_with_their_fields",
        "partitioner": f"{SINK}::test_rows_go_to_the_queue_they_name",
        "brokerName": f"{TRUTH}::test_sink_small_tasks_spread_over_queues_and_brokers",
        "uniqueKeys": f"{SINK}::test_unique_keys_of_a_plan_are_made_again",
        "runId": f"{SINK}::test_unique_keys_of_a_plan_are_made_again",
        "maxRowsPerSecond": f"{RULES}::test_pace_holds_back_what_is_beyond_the_rate",
        "delivery": f"{SINK}::{TRANSACTIONAL}",
        "transactionPath": f"{SINK}::{TRANSACTIONAL}",
        "metricsPath": f"{RULES}::test_metrics_of_a_write_are_added_to_what_earlier_ones_wrote",
    },
}
PARSERS: list[Callable[[dict[str, str]], Wire]] = [
    lambda given: SourceOptions.parse({**given, "subscribe": "t"}, streaming=False).wire,
    lambda given: MetaOptions.parse(given).wire,
]
CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC


@pytest.mark.parametrize("name", SHOWN_BY)
def test_every_option_names_a_test_that_is_there_and_uses_it(name: str) -> None:
    table: option_table.Table = getattr(option_table, name)
    shown = SHOWN_BY[name]
    assert shown.keys() == {option.name for option in table}
    for option, where in shown.items():
        file, _, test = where.partition("::")
        text = (TESTS / file).read_text()
        found = re.search(
            rf"^(async )?def {test}\(.*?(?=^[^\s)]|\Z)", text, re.DOTALL | re.MULTILINE
        )
        assert found is not None, f"{option}: there is no {where}"
        # What every test gives is in its helpers.
        assert option in found[0] or option in {"path", "topic", "subscribe"}, where


# --- how brokers are talked to -------------------------------------------------------------------


class Scripted:
    """Stands for connections to addresses that answer, are busy, or are not there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codes: dict[str, int]) -> None:
        self.asked: list[tuple[str, float]] = []
        scripted = self

        class Connection:
            is_open = True

            def __init__(self, address: str, **_: Any) -> None:
                if address not in codes:
                    raise Unreachable(f"{address} is not there")
                self.address = address

            def call(self, _: Command, timeout: float) -> Command:
                scripted.asked.append((self.address, timeout))
                return Command(codes[self.address])

            def close(self) -> None:
                """Nothing is open."""

        monkeypatch.setattr("roquet.spark.cluster.connections.BlockingConnection", Connection)


@pytest.mark.parametrize("wire_of", PARSERS)
def test_name_servers_are_asked_one_after_the_other(
    wire_of: Callable[[dict[str, str]], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(monkeypatch, {"b:9876": ResponseCode.SUCCESS})
    wire = wire_of({"nameServers": "rmq://a:1; b, c:2"})
    assert wire.name_servers == ("a:1", "b:9876", "c:2")
    Connections(wire).call(wire.name_servers, Command(CODE))
    assert [address for address, _ in scripted.asked] == ["b:9876"]


@pytest.mark.parametrize("wire_of", PARSERS)
def test_timeout_is_that_of_each_request(
    wire_of: Callable[[dict[str, str]], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(monkeypatch, {"a:1": ResponseCode.SUCCESS})
    wire = wire_of({"nameServers": "a:1", "timeoutMs": "250"})
    Connections(wire).call(wire.name_servers, Command(CODE))
    assert scripted.asked == [("a:1", 0.25)]


@pytest.mark.parametrize("wire_of", PARSERS)
def test_tries_and_pauses_are_those_of_the_options(
    wire_of: Callable[[dict[str, str]], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(monkeypatch, {"a:1": ResponseCode.SYSTEM_BUSY})
    few = {"fetchOffset.numRetries": "3", "fetchOffset.retryIntervalMs": "70"}
    wire = wire_of({"nameServers": "a:1", **few})
    pauses: list[float] = []
    Connections(wire, pauses.append).call(wire.name_servers, Command(CODE))
    assert len(scripted.asked) == 4
    assert pauses == [0.07] * 3


# --- the source ----------------------------------------------------------------------------------


@on_loop
async def test_batch_obeys_end_size_of_tasks_and_columns(tmp_path: Path) -> None:
    def fill(names: str) -> None:
        with sync.connect(names) as mq:
            mq.admin().topics.create("t", queues=1)
            with mq.producer("p") as producer:
                for number in range(30):
                    producer.send(
                        Message("t", b"%d" % number), queue=MessageQueue("t", "broker-a", 0)
                    )

    def rows(names: str, **options: str) -> tuple[list[dict[str, Any]], list[int]]:
        given = {"nameServers": names, "subscribe": "t", **options}
        reader = BatchReader(SourceOptions.parse(given, streaming=False))
        parts = [it for it in reader.partitions() if isinstance(it, QueuePartition)]
        found = [row for it in parts for batch in reader.read(it) for row in batch.to_pylist()]
        return found, [sum(map(len, it.ranges)) for it in parts]

    async with cluster(tmp_path) as it:
        await asyncio.to_thread(fill, it.name_servers)

        async def read(**options: str) -> tuple[list[dict[str, Any]], list[int]]:
            return await asyncio.to_thread(rows, it.name_servers, **options)

        whole, _ = await read()
        times = [int(row["storeTimestamp"].timestamp() * 1000) for row in whole]
        before, _ = await read(endingTimestamp=str(times[-1]))
        _, sizes = await read(maxRecordsPerPartition="7")
        bare, _ = await read(includeBody="false", includeHeaders="false")
    assert [int(row["body"]) for row in before] == [n for n in range(30) if times[n] < times[-1]]
    assert sum(sizes) == 30
    assert max(sizes) <= 7
    assert len(bare) == len(whole) == 30
    assert whole[0].keys() - bare[0].keys() == {"body", "properties"}


def test_group_is_the_one_that_pulls_name() -> None:
    groups: list[str] = []

    class Asked(Connections):
        @override
        def call(self, addresses: Any, command: Command) -> Command:
            groups.append((command.ext or {})["consumerGroup"])
            return Command(ResponseCode.NO_PERMISSION)

    given = {"nameServers": "a:1", "subscribe": "t", "group": "readers"}
    options = SourceOptions.parse(given, streaming=False)
    reader = fetch.QueueReader(
        options,
        Range(QueueKey("t", "broker-a", 0), 0, 5),
        ("a:1",),
        connections=Asked(options.wire),
    )
    with pytest.raises(Refused):
        list(reader.batches())
    assert groups == ["readers"]


def test_log_leaves_body_and_headers_out() -> None:
    def names(**options: str) -> set[str]:
        given = {"path": str(TESTS / "vectors/store/clean"), **options}
        reader = LogFilesReader(LogOptions.parse(given))
        (batch, *_) = (it for part in reader.partitions() for it in reader.read(part))
        return set(batch.schema.names)

    assert names() - names(includeBody="false") == {"body"}
    assert names() - names(includeHeaders="false") == {"properties"}


def test_metadata_is_waited_for_as_long_as_the_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: dict[str, int] = {}
    scripted = Scripted(monkeypatch, codes)
    given = {"nameServers": "a:1", "table": "brokers", "fetchOffset.numRetries": "0"}
    pauses: list[float] = []

    def back(seconds: float) -> None:
        pauses.append(seconds)
        codes["a:1"] = ResponseCode.NO_PERMISSION

    options = MetaOptions.parse({**given, "unreachableTimeoutMs": "0"})
    with pytest.raises(Unreachable, match="unreachableTimeoutMs = 0"):
        MetaReader(options, wait=back).rows()
    assert pauses == []
    options = MetaOptions.parse({**given, "unreachableTimeoutMs": "60000"})
    with pytest.raises(Refused):
        MetaReader(options, wait=back).rows()
    assert len(pauses) == len(scripted.asked) == 1


# --- the sink ------------------------------------------------------------------------------------


def test_sink_takes_servers_group_and_timeout_from_its_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []

    class Producer:
        async def queues(self, topic: str) -> list[MessageQueue]:
            return [MessageQueue(topic, "broker-a", 0)]

        async def send_encoded(self, encoded: Encoded, **named: Any) -> None:
            seen.append((len(batch.decode(encoded.body)), named["timeout_s"]))

    class Client:
        @contextlib.asynccontextmanager
        async def producer(self, group: str, *, options: Any) -> AsyncGenerator[Producer]:
            seen.append((group, options.timeout_s))
            yield Producer()

    @contextlib.asynccontextmanager
    async def connect(url: str, **_: object) -> AsyncGenerator[Client]:
        seen.append(url)
        yield Client()

    monkeypatch.setattr(write, "connect", connect)
    given = {"nameServers": "a:1,b:2", "topic": "t", "group": "writers", "timeoutMs": "700"}
    rows = pa.RecordBatch.from_pydict({"body": ["x", "y"]})
    write.write(SinkOptions.parse(given), iter([rows]))
    assert seen == ["rmq://a:1;b:2", ("writers", 0.7), (2, 0.7)]


@pytest.mark.parametrize(
    ("limit_ms", "slept"),
    [
        ("0", [0.04, 0.04]),
        ("1080", [0.04, 0.04, 0.5, 0.5]),
    ],
)
@on_loop
async def test_sink_tries_as_its_options_say(limit_ms: str, slept: list[float]) -> None:
    few = {"fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "40"}
    away = {"unreachableTimeoutMs": limit_ms}
    wire = SinkOptions.parse({"nameServers": "a:1", "topic": "t", **few, **away}).wire
    pauses: list[float] = []

    class Time:
        def now_ms(self) -> int:
            return 0

        def steady_ms(self) -> int:
            return 0

        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    async def call() -> None:
        raise Unreachable("no")

    with pytest.raises(Unreachable):
        await Tries(wire, Time(), lambda: sum(pauses)).make(call)
    assert pauses == pytest.approx(slept)
