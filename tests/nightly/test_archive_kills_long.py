"""Fifty kills of the archive job at seeded moments: no message is lost, none is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from archive_kills import MOMENTS, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
ROUNDS = 5
KILLS = 10


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_fifty_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    moments = [MOMENTS[(n + 3 * seed) % len(MOMENTS)] for n in range(KILLS)]
    found = run(tmp_path, moments, seed)
    assert (found.kills, found.lost, found.twice) == (KILLS, 0, 0)
    assert found.workers >= 4
    assert found.between * 3 >= found.kills
