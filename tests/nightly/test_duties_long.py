"""1,000 changes of duties in a row under load: nothing is lost, nothing is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from duty_kills import Group

if TYPE_CHECKING:
    from pathlib import Path

WARM = 200
"""Changes after which statistics, pools and caches have what they keep."""
CHANGES = WARM + 1_000

PROGRAM = """
import asyncio, sys
from pathlib import Path
from roquet.service.process.runtime import share_arenas

assert share_arenas()  # as every server does first, before there are threads

from duty_world import change_often
from pair_harness import pair_world

async def main(folder, warm, changes):
    async with pair_world(folder) as world:
        load = await change_often(world, changes, seed=20261124, warm=warm)
        assert load.count > changes
        assert len(load.later) > changes // 10

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""


@pytest.mark.timeout(3600)
def test_a_thousand_changes_lose_no_message_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run in a process of its own: threads of earlier tests have arenas of the allocator."""
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), str(WARM), str(CHANGES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout)  # noqa: T201  (what was left, shown with -s)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"


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
