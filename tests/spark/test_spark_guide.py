"""The guide's examples run as they stand, against a small cluster and copies of its disk."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roquet.client import Message
from roquet.spark.jobs.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
GUIDE = Path(__file__).parents[2] / "docs/guide/spark.md"
PIPELINE = GUIDE.with_name("pipeline.md")
COUNT = 60


def test_the_examples_of_the_guide_run(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    for topic in ("orders", "orders-saved", "out", "orders-once"):
        running.create_topic(topic, 2)
    for queue in range(2):
        made = [Message("orders", f"{n}".encode(), "t", (f"k{n}",)) for n in range(COUNT // 2)]
        running.send("orders", made, queue)
    for name in ("broker-a", "broken", "slave"):
        shutil.copytree(running.store / "commitlog", tmp_path / name / "store" / "commitlog")
    rows = (
        spark.read.format("roquet-log")
        .option("subscribe", "orders")
        .load(str(tmp_path / "broker-a/store"))
        .orderBy("physicalOffset")
        .collect()
    )
    # Inside of a body, and a slave that ends in the middle of a record.
    _change(tmp_path / "broken/store", rows[10].physicalOffset + 88, b"~")
    end = rows[-5].physicalOffset
    with (tmp_path / f"slave/store/commitlog/{0:020}").open("r+b") as file:
        size = file.seek(0, 2)
        file.truncate(end)
        file.truncate(size)
    text = GUIDE.read_text().replace("127.0.0.1:9876", running.name_servers)
    text = text.replace("/backup/", f"{tmp_path}/").replace("/data/", f"{tmp_path}/")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert names["orders"].count() == COUNT
    assert names["log"].count() == COUNT
    assert names["saved"].count() == COUNT - 1
    assert [row.beginOffset for row in names["damage"].collect()] == [rows[10].physicalOffset]
    assert (names["report"].exit_code, names["report"].lines[-1]) == (1, "the rest is rebuilt")
    assert (tmp_path / "new/store/consumequeue/orders/0" / f"{0:020}").exists()
    lacking = names["lacking"].where("topic = 'orders'").collect()
    assert {row.physicalOffset for row in lacking} == {row.physicalOffset for row in rows[-5:]}
    read = spark.read.format("roquet").option("nameServers", running.name_servers)
    once = read.option("subscribe", "orders-once").load()
    assert once.count() == COUNT
    assert once.where("tags = 't'").select("body").distinct().count() == COUNT // 2
    saved = read.option("subscribe", "orders-saved").load().select("uniqKey").collect()
    assert {row.uniqKey for row in saved} == {row.uniqKey for row in rows if row != rows[10]}


def test_the_lake_of_the_guide_is_read_as_it_says(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    running.create_topic("kept", 1)
    running.send("kept", [Message("kept", b"x") for _ in range(9)], 0)
    given = {"nameServers": running.name_servers, "subscribe": "kept"}
    rows = spark.read.format("roquet").options(**given).load()
    rows = rows.selectExpr("*", "to_date(storeTimestamp) as day", "'b1' as part")
    lake = Lake(spark, f"{tmp_path}/lake", "parquet")
    lake.create(rows.schema)
    lake.publish("b1", rows)
    blocks = re.findall(r"```python\n(.*?)```", PIPELINE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    for block in (it for it in blocks if "Lake(" in it):
        there = re.sub('"/lake[a-z-]*"', f'"{tmp_path}/lake"', block)
        exec(compile(there, str(PIPELINE), "exec"), names)
    assert names["bad"].count() == 0
    assert [row.queueOffset for row in names["kept"].orderBy("queueOffset").collect()] == [
        *range(9)
    ]


def _change(root: Path, at: int, data: bytes) -> None:
    with (root / f"commitlog/{0:020}").open("r+b") as file:
        file.seek(at)
        file.write(data)
