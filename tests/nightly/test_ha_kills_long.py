"""Each pair of makes through 20 kills of each side and 100 MB: equal logs, nothing lost.

A slave of ours then becomes the master."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tools.faults.ha_kill import run

from roquet.testing.pair import Make, Pair, PairError

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 40
"""20 of the slave and 20 of the master."""
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
def test_twenty_kills_of_each_side_leave_equal_logs(
    tmp_path: Path, master: Make, slave: Make, settings: dict[str, str]
) -> None:
    chance = random.Random(20261121)
    with Pair(tmp_path, master, slave, chance, settings) as pair:
        acked, same = run(pair, KILLS, chance, bytes_wanted=BYTES)
    assert acked > KILLS
    assert same > BYTES


@pytest.mark.timeout(600)
def test_planted_a_master_with_an_older_store_is_noticed(tmp_path: Path) -> None:
    chance = random.Random(20261122)
    settings = {"brokerRole": "SYNC_MASTER"}
    with (
        Pair(tmp_path, "ours", "ours", chance, settings) as pair,
        pytest.raises(PairError, match="L9: the new master would use offset"),
    ):
        run(pair, 2, chance, plant=True)
