"""A dead broker's log made a store again in a real Spark; a broker gives all of it back."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from hosts_harness import until
from roquet.client import Message, connect
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.spark.jobs import audit, rebuild

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
TOPICS = ("RebuiltA", "RebuiltB")
LATE = (b"late 0", b"late 1", b"late 2")
SHAPE = {
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


def send_delayed(running: Running, topic: str, levels: tuple[int, ...]) -> None:
    async def send() -> None:
        async with connect(running.name_servers) as mq, mq.producer() as producer:
            for number, level in enumerate(levels):
                message = Message(topic, f"late {number}".encode(), "t", delay_level=level)
                await producer.send(message)

    asyncio.run(send())


def rows(spark: SparkSession, source: dict[str, str]) -> set[tuple[object, ...]]:
    kind = "roquet-log" if "path" in source else "roquet"
    read = spark.read.format(kind).options(**source)
    frame = read.option("subscribe", ",".join(TOPICS)).load()
    names = ("topic", "queueId", "queueOffset", "physicalOffset", "uniqKey", "keys", "body")
    return {tuple(row) for row in frame.select(*names).collect()}


def test_a_broker_gives_back_what_was_rebuilt_of_the_log_alone(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    for topic in TOPICS:
        running.create_topic(topic, 2)
        for queue in (0, 1):
            made = [Message(topic, f"{n}".encode() * 50, "t", (f"k{n}",)) for n in range(1200)]
            running.send(topic, made, queue)
    send_delayed(running, TOPICS[0], (1, 1, 18))
    live = {"nameServers": running.name_servers}
    until("delayed messages", lambda: sum(row[6] in LATE for row in rows(spark, live)) == 2)
    shutil.copytree(running.store / "commitlog", tmp_path / "dead/commitlog")
    expected = rows(spark, {"path": f"{tmp_path}/dead"})
    assert len(expected) == 4802
    given = {"store": f"{tmp_path}/dead", "out": f"{tmp_path}/new/broker-a", **SHAPE}
    said: list[str] = []
    report = rebuild.run(spark, given, said.append)
    assert (report.exit_code, report.lines[-1]) == (0, "everything was readable")
    assert any("records read" in line for line in said)
    # The two that came are not to come again; the one that waits two hours still waits.
    delays = DelayOffsetBody.decode(
        (tmp_path / "new/broker-a/config/delayOffset.json").read_bytes()
    )
    assert (delays.offsets[1] >= 2, delays.offsets[18]) == (True, 0)
    queues = spark.read.parquet(f"{tmp_path}/new/broker-a.report/queues")
    shown = queues.where("topic = 'RebuiltB'").orderBy("queueId").collect()
    assert [(row.messages, row.minOffset, row.maxOffset, row.missing) for row in shown] == [
        (1200, 0, 1200, 0)
    ] * 2
    again = type(running)(tmp_path / "new")
    again.start()
    try:
        assert rows(spark, {"nameServers": again.name_servers}) == expected
        # Offsets go on where they ended.
        (sent,) = again.send(TOPICS[1], [Message(TOPICS[1], b"next")], 0)
        assert sent.queue_offset == 1200
    finally:
        again.stop()
    assert rebuild.run(spark, given, said.append) == report


def test_damage_is_rows_and_the_exit_code(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    running.create_topic(TOPICS[0], 2)
    running.send(TOPICS[0], [Message(TOPICS[0], b"x" * 100) for _ in range(10)], 0)
    for name in ("whole", "dead"):
        shutil.copytree(running.store / "commitlog", tmp_path / name / "commitlog")
    log = spark.read.format("roquet-log").option("subscribe", TOPICS[0])
    *_, row, _ = log.load(f"{tmp_path}/whole").where("queueId = 0").orderBy("queueOffset").collect()
    with (tmp_path / f"dead/commitlog/{0:020}").open("r+b") as file:
        file.seek(row.physicalOffset + 90)
        file.write(b"~")
    given = {"store": f"{tmp_path}/dead", "out": f"{tmp_path}/out", **SHAPE, "index": "none"}
    report = rebuild.run(spark, {**given, "metricsPath": f"{tmp_path}/told"}, lambda _: None)
    assert report.exit_code == 1
    told = (tmp_path / "told/rebuild.prom").read_text().splitlines()
    assert f"roquet_rebuild_damaged_bytes {row.storeSize}" in told
    assert {"roquet_rebuild_unplaced 0", "roquet_rebuild_missing 1"} <= set(told)
    (damage,) = spark.read.parquet(f"{tmp_path}/out.report/damage").collect()
    place = (row.physicalOffset, row.physicalOffset + row.storeSize)
    assert (damage.beginOffset, damage.endOffset, damage.reason) == (
        *place,
        "a body CRC that differs",
    )
    ends = {"left": f"store:{tmp_path}/whole", "right": f"store:{tmp_path}/out"}
    compared = audit.run(
        spark, {**ends, "subscribe": TOPICS[0], "out": f"{tmp_path}/audit"}, lambda _: None
    )
    (lost,) = [line for line in compared.lines if line.startswith("lost")]
    assert f"offset {row.queueOffset} {row.uniqKey}" in lost
    assert compared.lines[-1] == "1 differences: 1 lost"
