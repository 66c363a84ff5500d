"""1,000 changes of duties in a row under load: nothing is lost, nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from duty_kills import Group
from duty_world import change_often
from pair_harness import pair_world

if TYPE_CHECKING:
    from pathlib import Path

WARM = 200
"""Changes after which statistics, pools and caches have what they keep."""
CHANGES = WARM + 1_000


@pytest.mark.timeout(3600)
def test_a_thousand_changes_lose_no_message_and_leave_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world:
            load = await change_often(world, CHANGES, seed=20261124, warm=WARM)
            assert load.count > CHANGES
            assert len(load.later) > CHANGES // 10

    asyncio.run(main())


@pytest.mark.timeout(7200)
def test_kills_during_changes_of_duties_lose_nothing(tmp_path: Path) -> None:
    with Group(tmp_path, random.Random(20261126)) as group:
        with group.sending():
            for turn in range(8):
                group.in_sync()
                group.pass_on(kill_leader=turn % 2 == 0, kill_follower=turn % 4 != 0)
            group.in_sync()
        assert len(group.acked) > 20
        group.check()
