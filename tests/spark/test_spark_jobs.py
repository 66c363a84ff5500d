"""The jobs in a real Spark, over a real broker and copies of its disk."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import pytest

from roquet.client import Message
from roquet.spark.jobs import stats

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


def new_topic(running: Running, counts: tuple[int, ...]) -> str:
    """Fill queue n with counts[n] messages; every second one is about the key `$hot`."""
    topic = f"Job{next(_numbers)}"
    running.create_topic(topic, len(counts))
    for queue, count in enumerate(counts):
        made = [
            Message(topic, b"x" * 50, "ab"[n % 2], (f"q{queue}n{n}" if n % 2 else "$hot",))
            for n in range(count)
        ]
        if made:
            running.send(topic, made, queue)
    return topic


def test_stats_counts_what_was_sent_live_and_on_disk(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (30, 10, 0))
    shutil.copytree(running.store / "commitlog", tmp_path / "store" / "commitlog")
    ends = {"live": {"nameServers": running.name_servers}, "disk": {"store": f"{tmp_path}/store"}}
    for name, end in ends.items():
        said: list[str] = []
        out = tmp_path / name
        report = stats.run(spark, {**end, "subscribe": topic, "out": str(out)}, said.append)
        assert report.exit_code == 0
        assert report.lines == ("40 messages counted",)
        assert said[0].startswith("40 messages read")
        queues = spark.read.parquet(f"{out}/queues").orderBy("queueId").collect()
        shown = [(row.queueId, row.messages, row.lastOffset, row.skew) for row in queues]
        assert shown == [(0, 30, 29, 1.5), (1, 10, 9, 0.5)]
        (whole,) = spark.read.parquet(f"{out}/topics").collect()
        assert (whole.messages, whole.bytes) == (40, sum(row.bytes for row in queues))
        assert whole.latencyP50 <= whole.latencyP99 <= whole.latencyMax
        tags = spark.read.parquet(f"{out}/tags").collect()
        assert {row.tags: row.messages for row in tags} == {"a": 20, "b": 20}
        first, *others = (
            spark.read.parquet(f"{out}/keys").orderBy("messages", ascending=False).take(3)
        )
        assert (first.key, first.messages, first.share) == ("$hot", 20, 0.5)
        assert {row.messages for row in others} == {1}
        for table in ("minutes", "sizes"):
            rows = spark.read.parquet(f"{out}/{table}").collect()
            assert sum(row.messages for row in rows) == 40
        page = (out / "report.html").read_text()
        assert page.count("data:image/png;base64,") == 6
        assert "<b>40</b>" in page


def test_stats_of_nothing_is_a_page_that_says_so(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (0, 0))
    given = {"nameServers": running.name_servers, "subscribe": topic, "out": str(tmp_path / "out")}
    assert stats.run(spark, given, lambda _: None).lines == ("0 messages counted",)
    assert "no messages" in (tmp_path / "out/report.html").read_text()
