"""Each pair of makes through 20 kills of either side and 100 MB: equal logs, nothing lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tools.ha_kill import run

from roquet.testing.pair import Make, Pair

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 20
BYTES = 100 << 20
PAIRS: list[tuple[Make, Make, dict[str, str]]] = [
    ("ours", "ours", {"brokerRole": "SYNC_MASTER"}),
    ("ours", "ours", {"flushDiskType": "SYNC_FLUSH"}),
    ("java", "ours", {}),
    ("ours", "java", {}),
]
"""(master, slave, settings)"""


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("master", "slave", "settings"), PAIRS)
def test_twenty_kills_leave_equal_logs(
    tmp_path: Path, master: Make, slave: Make, settings: dict[str, str]
) -> None:
    chance = random.Random(20261121)
    with Pair(tmp_path, master, slave, chance, settings) as pair:
        acked, same = run(pair, KILLS, chance, bytes_wanted=BYTES)
    assert acked > KILLS
    assert same > BYTES
