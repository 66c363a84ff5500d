"""One store, opened in turn by the Java broker and by ours: nothing is lost, nothing moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from exchange_harness import LATER, TOPIC, Exchange, exchange
from interop_world import assert_same, make_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.testing.java import Driver

GROUP = "swapped"
MAKES = {"java": "ours", "ours": "java"}


@pytest.fixture
def swap(jars: Path, driver: Driver, tmp_path: Path) -> Iterator[Exchange]:
    yield from exchange(jars, driver, tmp_path)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("writer", ["java", "ours"])
def test_a_store_goes_from_one_make_to_the_other_and_back(
    swap: Exchange, writer: str, how: str
) -> None:
    swap.open(writer)
    make_topic(swap.driver, swap.namesrv, swap.plan, TOPIC, 4)
    make_topic(swap.driver, swap.namesrv, swap.plan, LATER, 1)
    # More than one commit-log file (4 MiB) and more than one consume-queue file (1000 units).
    swap.write(520, 8192, seed=100)
    swap.write(3700, 10, seed=101)
    if how == "stop":
        received = swap.driver.consume(swap.namesrv, TOPIC, GROUP, len(swap.given))
        assert_same(swap.given, swap.sent, received)
    delayed = swap.leave_delayed(seed=102)
    swap.close(how)

    swap.open(MAKES[writer])
    swap.read_everything()
    swap.find_by_key(100, 7)
    swap.find_by_key(101, 3699)
    swap.write(40, 100, seed=103)
    if how == "stop":
        received = swap.driver.consume(swap.namesrv, TOPIC, GROUP, 40, linger_s=1.0)
        assert_same(swap.given[-40:], swap.sent[-40:], received)
    swap.read_delayed(delayed, "later", how)
    swap.close(how)

    swap.open(writer)
    swap.read_everything()
    swap.find_by_key(103, 39)
