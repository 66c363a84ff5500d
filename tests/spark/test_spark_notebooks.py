"""The notebooks run from their first cell to their last, and say what is so."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest
from demo.flights import departures
from matplotlib import pyplot as plt

from roquet.client import Message, MessageQueue, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "docs/notebooks"
PNG = b"\x89PNG\r\n"


@pytest.fixture
def cells(
    spark: SparkSession, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Return what runs a notebook and gives its names back; it finds the session by itself."""
    assert spark.getActiveSession() is not None
    monkeypatch.setenv("NAMESRV_ADDR", running.name_servers)
    monkeypatch.setenv("NOTEBOOK_OUT", str(tmp_path))
    mpl.use("Agg")

    def run(name: str) -> dict[str, Any]:
        path = NOTEBOOKS / f"{name}.py"
        found: dict[str, Any] = {"__name__": name}
        exec(compile(path.read_text(), str(path), "exec"), found)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
        return found

    yield run
    plt.close("all")


def test_delays_of_flights(running: Running, cells: Any) -> None:
    flights = departures(3000)
    running.create_topic("flights", 2)
    for queue in range(2):
        made = [Message("flights", it.body, it.tag) for it in flights[queue::2]]
        for at in range(0, len(made), 500):
            running.send("flights", made[at : at + 500], queue)
    found = cells("flight_delays")
    delays: dict[str, list[int]] = defaultdict(list)
    hours: dict[int, int] = defaultdict(int)
    for it in flights:
        fields = json.loads(it.body)
        hours[fields["hour"]] += 1
        if fields["dep_delay"] is not None:
            delays[fields["carrier"]].append(fields["dep_delay"])
    by_hour = found["by_hour"]
    assert dict(zip(by_hour["hour"], by_hour["flights"], strict=True)) == hours
    by_carrier = found["by_carrier"]
    means = dict(zip(by_carrier["carrier"], by_carrier["mean"], strict=True))
    assert means == pytest.approx({name: statistics.mean(of) for name, of in delays.items()})


def test_lag_of_groups_over_time(running: Running, cells: Any) -> None:
    running.create_topic("noted", 2)
    for queue in range(2):
        running.send("noted", [Message("noted", b"x") for _ in range(20)], queue)

    async def commit() -> None:
        async with connect(running.name_servers) as mq, mq.pull_consumer("noted-group") as consumer:
            await consumer.queues("noted")
            offsets = {
                MessageQueue("noted", "broker-a", it): at for it, at in {0: 5, 1: 20}.items()
            }
            await consumer.commit(offsets)

    asyncio.run(commit())
    found = cells("group_lag")
    assert list(found["left"]["noted-group"]) == [15, 15, 15]
    late = dict(zip(found["late"]["queue"], found["late"]["messagesLeft"], strict=True))
    assert late["noted-group noted 0"] == 15


def test_totals_of_the_example_count_an_order_once_and_its_stream_goes_on(
    spark: SparkSession, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.getActiveSession() is not None
    # A cluster of its own: its topic is `orders`, which other tests have too.
    alone = type(running)(tmp_path / "cluster")
    alone.start()
    try:
        monkeypatch.setenv("NAMESRV_ADDR", alone.name_servers)
        monkeypatch.setenv("NOTEBOOK_OUT", str(tmp_path))
        path = ROOT / "examples/order_totals.py"
        code = compile(path.read_text(), str(path), "exec")
        alone.create_topic("orders", 2)
        alone.send("orders", [order("a", "tea", 2), order("a", "tea", 2), order("b", "ink", 1)], 0)
        alone.send("orders", [order("c", "tea", 5), Message("orders", b"no order")], 1)
        found: dict[str, Any] = {"__name__": "order_totals"}
        exec(code, found)
        assert found["unreadable"] == 1
        assert {tuple(row) for row in found["totals"].collect()} == {("tea", 2, 7), ("ink", 1, 1)}
        saved = spark.read.parquet(str(tmp_path / "orders"))
        assert sorted(row.id for row in saved.collect()) == ["a", "a", "b", "c"]
        alone.send("orders", [order("d", "ink", 3)], 1)
        exec(code, {"__name__": "order_totals"})
        saved = spark.read.parquet(str(tmp_path / "orders"))
        assert sorted(row.id for row in saved.collect()) == ["a", "a", "b", "c", "d"]
    finally:
        alone.stop()


def order(name: str, item: str, count: int) -> Message:
    return Message("orders", json.dumps({"id": name, "item": item, "count": count}).encode())
