"""Fifty kills of driver, tasks and broker while rows are written once: nothing lost or twice."""

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
@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_fifty_kills_lose_and_double_nothing(tmp_path: Path, delivery: str, seed: int) -> None:
    kinds = ["driver"] * 4 + ["worker"] * 3 + ["broker"] * 3
    random.Random(seed).shuffle(kinds)
    found = run(tmp_path, kinds, seed, delivery)
    assert (found.kills, found.lost, found.twice) == (KILLS, 0, 0)
    assert found.between * 3 >= found.kills
