"""A stream from topic to topic through kills, small: the nightly run has fifty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tools.spark_kills.world import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def test_killed_driver_task_and_broker_lose_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, ["worker", "broker", "driver"], seed=1)
    assert (found.kills, found.lost, found.unrecognizable) == (3, 0, 0)
    assert found.between * 3 >= found.kills
