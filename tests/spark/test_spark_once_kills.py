"""Writes that come once through kills, small: the nightly run has fifty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools.spark_kills.world import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("delivery", ["idempotent", "transactional"])
def test_killed_driver_task_and_broker_lose_and_double_nothing(
    tmp_path: Path, delivery: str
) -> None:
    found = run(tmp_path, ["worker", "broker", "driver"], 1, delivery)
    assert (found.kills, found.lost, found.twice) == (3, 0, 0)
    assert found.between >= 1
