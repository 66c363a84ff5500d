"""As many pops as a broker holds by default: accepted, small, and gone with their connections."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tools.attack import raw

from held_pops import story

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

BYTES_EACH_MAX = 4096
"""Of resident memory; the goal is 2,048."""


def test_100000_held_pops_are_accepted_one_more_is_answered_209_and_none_outlives_its_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "TIMEOUT_S", 120.0)
    bytes_each = story(tmp_path / "broker", random.Random(1), groups=100, poll_ms=600_000)
    assert bytes_each <= BYTES_EACH_MAX
