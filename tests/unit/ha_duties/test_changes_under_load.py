"""A pair changes its roles under load: nothing acknowledged is lost; memory: see nightly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from duty_world import change_often
from pair_harness import pair_world

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = 40


@pytest.mark.timeout(300)
def test_forty_changes_lose_no_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world:
            load = await change_often(world, CHANGES, seed=20261123, warm=CHANGES)
            assert load.count > CHANGES
            assert len(load.later) > 10

    asyncio.run(main())
