"""An idempotent write: driver and tasks as Spark calls them, over a real broker."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import types
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from roquet.base.errors import UsageError
from roquet.client import Sequences
from roquet.client._sending import sequences
from roquet.protocol.messages.sequences import EXPIRY_MS
from roquet.spark.options import SinkOptions
from roquet.spark.sink import keys
from roquet.spark.sink.epochs import Begun, Epochs, keep_queues
from roquet.spark.sink.write import StreamWriter
from sink_harness import Killed, bodies
from spark_harness import Running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.client import Appended

from roquet.model.queue import MessageQueue as Queue

QUEUES = 3
SCHEMA = StructType(
    [
        StructField("body", StringType()),
        StructField("tags", StringType()),
        StructField("brokerName", StringType()),
        StructField("queueId", IntegerType()),
    ]
)
Row = tuple[str, int]
"""Body and queue."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("cluster"))
    found.start()
    yield found
    found.stop()


class Driver:
    """A life of the driver of one query."""

    def __init__(self, names: str, topic: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        given = {
            "nameServers": names,
            "topic": topic,
            "delivery": "idempotent",
            "checkpointLocation": str(folder),
            "timeoutMs": "10000",
        }
        queues = [Queue(topic, "broker-a", number) for number in range(QUEUES)]
        keep_queues(str(folder / "roquet-sink"), topic, queues)
        self.writer = StreamWriter(SinkOptions.parse(given), SCHEMA)
        self._patch = patch

    def epoch(self, number: int) -> None:
        """Say which micro-batch tasks belong to."""
        local = {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(number)}
        task = types.SimpleNamespace(partitionId=lambda: 0, getLocalProperty=local.get)
        self._patch.setattr(keys, "TaskContext", types.SimpleNamespace(get=lambda: task))

    def task(self, rows: list[Row], rng: random.Random | None = None) -> Any:
        """Run a task; its rows come in any order and in batches of any size."""
        rng = rng or random.Random(0)
        rows = rng.sample(rows, len(rows))
        batches: list[Any] = []
        while rows:
            count = rng.randrange(1, len(rows) + 1)
            part, rows = rows[:count], rows[count:]
            columns = {
                "body": [body for body, _ in part],
                "tags": pa.array(
                    [None if len(body) % 2 else "even" for body, _ in part], pa.string()
                ),
                "brokerName": ["broker-a"] * count,
                "queueId": pa.array([queue for _, queue in part], pa.int32()),
            }
            batches.append(pa.RecordBatch.from_pydict(columns))
        return self.writer.write(iter(batches))


def made(epoch: int, count: int = 1_500) -> list[Row]:
    # Every tenth is one of two that are the same.
    return [(f"{epoch}/{n - (n % 10 == 1)}", (n - (n % 10 == 1)) % QUEUES) for n in range(count)]


def parts(rows: list[Row], tasks: int) -> list[list[Row]]:
    """Cut rows into tasks: those of a queue are in one."""
    return [[row for row in rows if row[1] % tasks == task] for task in range(tasks)]


@pytest.mark.parametrize("seed", range(6))
def test_shuffled_recut_and_speculative_tries_write_each_row_once(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    topic, rng = f"Once{seed}", random.Random(seed)
    running.create_topic(topic, QUEUES)
    real = Sequences.send
    every: list[str] = []
    for epoch in range(3):
        rows = made(epoch)
        every += [body for body, _ in rows]
        for _ in range(rng.randrange(3)):
            # A life that ends midway: after some requests, with or without their effect.
            left = rng.randrange(1, 7)

            async def dying(self: Sequences, *given: Any) -> Appended:
                nonlocal left
                left -= 1
                if left < 0:
                    if left % 2:
                        await real(self, *given)
                    raise Killed
                return await real(self, *given)

            driver = Driver(running.name_servers, topic, tmp_path, monkeypatch)
            driver.epoch(epoch)
            with monkeypatch.context() as patch:
                patch.setattr(Sequences, "send", dying)
                for part in parts(rows, rng.randrange(1, 4)):
                    with contextlib.suppress(Killed):
                        driver.task(part, rng)
        driver = Driver(running.name_servers, topic, tmp_path, monkeypatch)
        driver.epoch(epoch)
        tasks = parts(rows, rng.randrange(1, 4))
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            # Each task twice at the same time, as speculation does; one of each is chosen.
            tries = [
                pool.submit(driver.task, part, random.Random(seed + n))
                for n in range(2)
                for part in tasks
            ]
            done = [it.result() for it in tries]
        driver.writer.commit(done[: len(tasks)], epoch)
        if rng.random() < 0.5:
            # The driver died before Spark noted the micro-batch: it comes once more.
            driver = Driver(running.name_servers, topic, tmp_path, monkeypatch)
            driver.epoch(epoch)
            driver.writer.commit([driver.task(rows, rng)], epoch)
    assert sorted(bodies(running.name_servers, topic)) == sorted(every)


def test_other_rows_of_an_epoch_are_refused_and_nothing_is_written(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "OtherRows"
    running.create_topic(topic, QUEUES)
    driver = Driver(running.name_servers, topic, tmp_path, monkeypatch)
    driver.epoch(0)
    rows = made(0, 600)
    part = driver.task(rows)
    driver.writer.commit([part], 0)
    before = bodies(running.name_servers, topic)
    for others in (rows[:-50], [*rows, ("0/000", 0)], [("!", 1), *rows[1:]]):
        with pytest.raises(UsageError, match=r"had others|has other rows|were others"):
            driver.task(others)
    assert bodies(running.name_servers, topic) == before
    with pytest.raises(UsageError, match=r"has 600 rows|has \d+ rows of epoch 0, and the tasks"):
        driver.writer.commit([driver.task([row for row in rows if row[1] == 0])], 0)
    driver.epoch(1)
    again = [driver.task([row]) for row in (("1/0", 0), ("1/0", 0))]
    with pytest.raises(UsageError, match="two tasks wrote to queue 0"):
        driver.writer.commit(again, 1)


def test_an_epoch_that_began_before_what_brokers_remember_is_refused(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "LongAgo"
    running.create_topic(topic, QUEUES)
    Epochs(str(tmp_path / "roquet-sink"), None).begin(1)
    driver = Driver(running.name_servers, topic, tmp_path, monkeypatch)
    driver.epoch(0)
    with pytest.raises(UsageError, match="began so long ago that broker-a may"):
        driver.task(made(0, 10))
    assert bodies(running.name_servers, topic) == []


def test_epochs_begin_when_the_one_before_is_over(tmp_path: Path) -> None:
    epochs = Epochs(str(tmp_path), None)
    assert epochs.begin(100) == (-1, 0, 100)
    assert epochs.begin(100 + EXPIRY_MS) == Begun(-1, 0, 100)
    epochs.commit(7)
    begun = epochs.begin(300)
    assert [begun.of(7), begun.of(8)] == [100, 300]
    epochs.commit(7)
    assert epochs.begin(400).of(8) == 300
    assert Epochs(str(tmp_path), "run").begin(5).of(0) == 5


def test_a_broker_that_does_not_know_sequences_is_named(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "Elsewhere"
    running.create_topic(topic, QUEUES)
    driver = Driver(running.name_servers, topic, tmp_path, monkeypatch)
    driver.epoch(0)
    # A broker of RocketMQ knows this code as little as ours knows that one.
    unknown = types.SimpleNamespace(GET_SEQUENCES=7009, SEND_IN_SEQUENCE=7009)
    monkeypatch.setattr(sequences, "RequestCode", unknown)
    with pytest.raises(UsageError, match="broker broker-a does not take messages in sequence"):
        driver.task(made(0, 10))
    assert bodies(running.name_servers, topic) == []


@pytest.mark.parametrize(
    ("columns", "changes", "said"),
    [
        (("body",), {}, "needs the option `topic`, and rows that"),
        (("body", "topic", "brokerName", "queueId"), {}, "no column 'topic'"),
        (("body", "uniqKey", "brokerName", "queueId"), {}, "no column 'uniqKey'"),
        (("body", "brokerName", "queueId"), {"uniqueKeys": "random"}, "needs uniqueKeys = plan"),
        (("body", "brokerName", "queueId"), {"checkpointLocation": ""}, "transactionPath is need"),
    ],
)
def test_what_an_idempotent_write_cannot_have_is_refused(
    tmp_path: Path, columns: tuple[str, ...], changes: dict[str, str], said: str
) -> None:
    given = {
        "nameServers": "127.0.0.1:1",
        "topic": "orders",
        "delivery": "idempotent",
        "checkpointLocation": str(tmp_path),
        **changes,
    }
    fields = [StructField(it, IntegerType() if it == "queueId" else StringType()) for it in columns]
    with pytest.raises(UsageError, match=said):
        StreamWriter(SinkOptions.parse(given), StructType(fields))
