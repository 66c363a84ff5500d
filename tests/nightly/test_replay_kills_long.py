"""Kills of the replay job at seeded waves: nothing is lost, and what comes twice is recognized."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from replay_kills import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
ROUNDS = 5
KILLS = 10


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_fifty_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    kinds = ["driver"] * 4 + ["worker"] * 4 + ["broker"] * 2
    random.Random(seed).shuffle(kinds)
    found = run(tmp_path, kinds[:KILLS], seed)
    assert (found.kills, found.lost, found.unrecognizable) == (KILLS, 0, 0)
    assert found.between * 3 >= found.kills
