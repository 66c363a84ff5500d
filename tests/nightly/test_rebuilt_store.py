"""A store made anew of a commit log alone, opened by the Java broker and by ours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from exchange_harness import TOPIC, Exchange, exchange
from interop_world import make_topic
from roquet.broker.schedule import DelayLevels
from roquet.spark.rebuilding.steps import Shape, Steps
from roquet.testing.java import Driver, fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def swap(tmp_path: Path) -> Iterator[Exchange]:
    jars = fetch_jars()
    driver = Driver(jars, tmp_path / "driver")
    try:
        yield from exchange(jars, driver, tmp_path)
    finally:
        driver.close()


def rebuild(swap: Exchange, log: Path) -> None:
    """Make the broker's store anew of log files alone."""
    shutil.rmtree(swap.plan.store)
    levels = DelayLevels()
    shape = Shape(
        store=str(log),
        out=swap.plan.store,
        link=False,
        queue_units=1000,
        index=(5000, 20000),
        delays=tuple(levels.delay_ms(level) for level in range(1, levels.highest + 1)),
        part_bytes=1 << 20,
    )
    steps = Steps(shape, lambda work, tasks: [work(task) for task in tasks], lambda _: None)
    found = steps.rebuild()
    assert not found.damage
    steps.tables(found, {})
    steps.commit({})


def test_both_makes_open_a_store_that_was_rebuilt_of_its_log_alone(swap: Exchange) -> None:
    swap.open("ours")
    make_topic(swap.driver, swap.namesrv, swap.plan, TOPIC, 4)
    swap.write(520, 8192, seed=110)
    swap.write(3700, 10, seed=111)
    swap.close("kill")
    log = swap.folder / "log"
    shutil.copytree(swap.plan.store / "commitlog", log / "commitlog")

    rebuild(swap, log)
    swap.open("java")
    swap.read_everything()
    swap.find_by_key(110, 7)
    swap.find_by_key(111, 3699)
    swap.write(40, 100, seed=112)
    swap.close("stop")
    swap.given, swap.sent = swap.given[:-40], swap.sent[:-40]

    rebuild(swap, log)
    swap.open("ours")
    swap.read_everything()
    swap.find_by_key(111, 3699)
