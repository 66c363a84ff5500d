"""Fifty kills of driver, tasks and broker at seeded times: nothing lost, repeats recognized."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tools.spark_kills.world import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
ROUNDS = 5
KILLS = 10


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_fifty_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    kinds = ["driver"] * 4 + ["worker"] * 3 + ["broker"] * 3
    random.Random(seed).shuffle(kinds)
    found = run(tmp_path, kinds[:KILLS], seed)
    assert (found.kills, found.lost, found.unrecognizable) == (KILLS, 0, 0)
    assert found.between * 3 >= found.kills
