"""Idempotent writes in a real Spark: each row once, whatever is repeated."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from roquet.spark.once import by_queue

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark


def source(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "concat('body ', id) as body",
        "concat('k', id % 10) as keys",
        "map('n', cast(id as string), 'a', 'b') as properties",
    )


def read(spark: SparkSession, running: Running, topic: str) -> list[Any]:
    given = {"nameServers": running.name_servers, "subscribe": topic}
    return spark.read.format("roquet").options(**given).load().collect()


def test_a_batch_is_written_once_by_two_runs_of_one_name(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    running.create_topic("OnceBatch", 3)
    options = {
        "nameServers": running.name_servers,
        "topic": "OnceBatch",
        "delivery": "idempotent",
        "runId": "night-1",
        "transactionPath": str(tmp_path),
    }
    rows = source(spark, 2_000)
    for cut in (rows.repartition(5), rows.orderBy("body", ascending=False).coalesce(1)):
        ready = by_queue(cut, options)
        ready.write.format("roquet").mode("append").options(**options).save()
    found = read(spark, running, "OnceBatch")
    assert sorted(bytes(it.body).decode() for it in found) == sorted(
        f"body {n}" for n in range(2_000)
    )
    assert len({it.uniqKey for it in found}) == 2_000
    assert {it.queueId for it in found} == {0, 1, 2}
    assert all(it.properties["n"] == bytes(it.body).decode()[5:] for it in found)
    other = by_queue(source(spark, 1_900), options)
    with pytest.raises(PySparkException, match=r"had others|other rows|were others"):
        other.write.format("roquet").mode("append").options(**options).save()


def test_a_stream_writes_each_row_once_over_a_torn_off_micro_batch(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    for topic in ("OnceFrom", "OnceTo"):
        running.create_topic(topic, 3)
    given = {"nameServers": running.name_servers, "topic": "OnceFrom"}
    source(spark, 3_000).write.format("roquet").mode("append").options(**given).save()
    checkpoint = tmp_path / "checkpoint"
    options = {
        "nameServers": running.name_servers,
        "topic": "OnceTo",
        "delivery": "idempotent",
        "transactionPath": str(tmp_path / "kept"),
        "checkpointLocation": str(checkpoint),
    }

    def run(partitions: int) -> None:
        reader = spark.readStream.format("roquet").option("subscribe", "OnceFrom")
        reader = reader.option("nameServers", running.name_servers)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1_200)
        rows = reader.option("minPartitions", partitions).load()
        ready = by_queue(rows.select("body", "keys", "tags", "properties"), options)
        query = ready.writeStream.format("roquet").options(**options).trigger(availableNow=True)
        query.start().awaitTermination()

    run(1)
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda it: int(it.name))
    assert len(commits) >= 3
    kept = json.loads((tmp_path / "kept" / "epochs.json").read_text())
    # The driver began the epoch after the last one no earlier than Spark did.
    assert (kept["last"], kept["openMs"]) == (len(commits) - 1, 0)
    for torn in (commits[-1], (checkpoint / "commits" / f".{commits[-1].name}.crc")):
        torn.unlink(missing_ok=True)
    run(7)
    found = read(spark, running, "OnceTo")
    assert sorted(bytes(it.body).decode() for it in found) == sorted(
        f"body {n}" for n in range(3_000)
    )
