"""A streaming query of Spark goes on at the slave, and at the master when it is back."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from roquet.spark.source import register
from spark_harness import spark_session
from spark_pair import ROWS, numbers, running_pair

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
WAIT_S = 240.0
A_BATCH = ROWS // 8


class Seen:
    """What the query has given, in whole micro-batches."""

    def __init__(self) -> None:
        self.bodies: dict[int, list[Any]] = {}

    def take(self, frame: DataFrame, number: int) -> None:
        self.bodies[number] = [row[0] for row in frame.select("body").collect()]

    def numbers(self) -> list[int]:
        return numbers([body for bodies in self.bodies.values() for body in bodies])

    def wait_for(self, query: StreamingQuery, count: int) -> None:
        end = time.monotonic() + WAIT_S
        while len(self.numbers()) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < end, f"{len(self.numbers())} of {count} rows came"
            time.sleep(0.05)


@pytest.mark.timeout(1500)
def test_a_query_goes_on_at_the_slave_and_at_the_restarted_master(tmp_path: Path) -> None:
    with running_pair(tmp_path) as pair, contextlib.ExitStack() as stack:
        pair.fill("Orders", 0)
        spark = spark_session()
        stack.callback(spark.stop)
        register(spark)
        given = {"nameServers": pair.names, "subscribe": "Orders", "startingOffsets": "earliest"}
        frame = spark.readStream.format("roquet").options(**given)
        rows = frame.option("maxOffsetsPerTrigger", str(A_BATCH)).load()
        seen = Seen()
        query = (
            rows.writeStream.foreachBatch(seen.take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        stack.callback(query.stop)
        seen.wait_for(query, A_BATCH)
        pair.kill_master()
        read_before = len(seen.numbers())
        assert read_before < ROWS, "there is something left for the slave"
        seen.wait_for(query, ROWS)
        assert seen.numbers() == list(range(ROWS))
        # A new batch is planned and read while there is only the slave.
        assert spark.read.format("roquet").options(**given).load().count() == ROWS
        pair.start_master()
        pair.fill("Orders", ROWS)
        seen.wait_for(query, 2 * ROWS)
        assert seen.numbers() == list(range(2 * ROWS))
        assert query.isActive
