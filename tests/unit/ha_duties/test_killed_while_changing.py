"""Kill -9 while a broker changes its duties: nothing acknowledged is lost, no offset is two."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from duty_kills import Group

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.timeout(280)
def test_brokers_killed_during_a_change_of_duties_lose_nothing(tmp_path: Path) -> None:
    with Group(tmp_path, random.Random(20261125)) as group:
        with group.sending():
            for turn in range(2):
                group.in_sync()
                group.pass_on(kill_leader=turn == 0, kill_follower=turn == 1)
            group.in_sync()
        assert len(group.acked) > 5
        group.check()
