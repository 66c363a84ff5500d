"""The attack on a broker whose processors answer everything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tools.attack.__main__ import run, settings

if TYPE_CHECKING:
    from pathlib import Path


def test_attackers_get_and_change_nothing_without_the_fast_path(tmp_path: Path) -> None:
    assert asyncio.run(run(settings(tmp_path, fastPathEnable="false"))) == []
