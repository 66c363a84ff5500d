"""A store made anew of a commit log alone, opened by the Java broker and by ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from exchange_harness import TOPIC, Exchange, exchange
from interop_world import make_topic
from roquet.spark.jobs import rebuild
from roquet.testing.java import Driver, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
SIZES = {
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
}


@pytest.fixture
def swap(tmp_path: Path) -> Iterator[Exchange]:
    jars = fetch_jars()
    driver = Driver(jars, tmp_path / "driver")
    try:
        yield from exchange(jars, driver, tmp_path)
    finally:
        driver.close()


def make_anew(spark: SparkSession, swap: Exchange, log: Path) -> None:
    """Let the job make the broker's store anew of log files alone."""
    shutil.rmtree(swap.plan.store)
    given = {"store": str(log), "out": str(swap.plan.store), **SIZES}
    report = rebuild.run(spark, given, lambda _: None)
    assert (report.exit_code, report.lines[-1]) == (0, "everything was readable")
    # The next run is not to find what this one has said.
    shutil.rmtree(f"{swap.plan.store}.report")


def test_both_makes_open_a_store_that_was_rebuilt_of_its_log_alone(
    spark: SparkSession, swap: Exchange
) -> None:
    swap.open("ours")
    make_topic(swap.driver, swap.namesrv, swap.plan, TOPIC, 4)
    swap.write(520, 8192, seed=110)
    swap.write(3700, 10, seed=111)
    swap.close("kill")
    log = swap.folder / "log"
    shutil.copytree(swap.plan.store / "commitlog", log / "commitlog")

    make_anew(spark, swap, log)
    swap.open("java")
    swap.read_everything()
    swap.find_by_key(110, 7)
    swap.find_by_key(111, 3699)
    swap.write(40, 100, seed=112)
    swap.close("stop")
    swap.given, swap.sent = swap.given[:-40], swap.sent[:-40]

    make_anew(spark, swap, log)
    swap.open("ours")
    swap.read_everything()
    swap.find_by_key(111, 3699)
