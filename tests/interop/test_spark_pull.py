"""What tasks of the Spark source pull from a Java broker and from ours, without a Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from interop_world import messages
from roquet import sync
from roquet.base.errors import Refused, UsageError
from roquet.spark import schema
from roquet.spark.meta import MetaReader
from roquet.spark.options import MetaOptions, SourceOptions
from roquet.spark.reading.batch import BatchReader
from roquet.spark.reading.stream import StreamReader

if TYPE_CHECKING:
    from interop_world import World


def bodies(namesrv: str, topic: str, **options: str) -> list[bytes]:
    given = {"nameServers": namesrv, "subscribe": topic, "columns": "body", **options}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(body for batch in found for body in batch.column("body").to_pylist())


@pytest.mark.parametrize("name", ["java", "ours"])
def test_rows_are_chosen_by_the_broker(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    side = world.java if name == "java" else world.ours
    topic = world.topic(f"SparkPull-{name}", side)
    given = messages(40, seed=95)
    world.driver.send(side.namesrv, topic, given)
    every = sorted(one["body"] for one in given)
    assert bodies(side.namesrv, topic) == every
    # Java's name server passes over the field that asks who left, and keeps nobody.
    assert ("does not keep who left" in caplog.text) == (name == "java")
    by_tag = sorted(one["body"] for one in given if one["tags"] == "b")
    assert bodies(side.namesrv, topic, tags="b") == by_tag
    by_sql = sorted(one["body"] for one in given if int(one["properties"]["number"]) > 30)
    assert len(by_sql) == 9
    assert bodies(side.namesrv, topic, sql="number > 30") == by_sql
    with pytest.raises((Refused, UsageError)):
        bodies(side.namesrv, topic, sql="number >")
    rows = MetaReader(
        MetaOptions.parse({"nameServers": side.namesrv, "table": "queues", "subscribe": topic})
    ).rows()
    assert sum(int(str(row[4])) for row in rows) == 40
    group = f"spark-pull-{name}"
    with sync.connect(side.namesrv) as mq:
        mq.admin().groups.put(group)
        mq.admin().groups.seek(group, topic, "latest")
    offsets = {"nameServers": side.namesrv, "table": "groups", "subscribe": topic}
    rows = MetaReader(MetaOptions.parse(offsets)).rows()
    found = [dict(zip(schema.META["groups"], row, strict=True)) for row in rows]
    assert {row["group"] for row in found} == {group}
    assert sum(int(str(row["offset"])) for row in found) == 40


@pytest.mark.parametrize("name", ["java", "ours"])
def test_lag_of_a_stream_is_shown_by_the_tool_of_either_broker(world: World, name: str) -> None:
    side = world.java if name == "java" else world.ours
    topic, group = world.topic(f"SparkLag-{name}", side), f"spark_lag_{name}"
    world.driver.send(side.namesrv, topic, messages(20, seed=96))
    given = {"nameServers": side.namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    reader = StreamReader(SourceOptions.parse({**given, "reportGroup": group}, streaming=True))
    try:
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(8))
        # Spark asks again when those are done.
        reader.latestOffset(end, ReadMaxRows(100))
    finally:
        reader.stop()
    shown = world.driver.mqadmin("consumerProgress", "-n", side.namesrv, "-g", group)
    assert topic in shown
    assert re.search(r"Diff Total: 12\b", shown), shown
