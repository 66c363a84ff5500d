"""Old files go by age, hour and fill level; never more than is needed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.store.cleaning import HOUR_MS, Cleaner, Plan, plan
from roquet.store.settings import StoreSettings
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

NOW = 1_700_000_000_000
EXPIRED = NOW - 72 * HOUR_MS


@pytest.mark.parametrize(
    ("used", "hour", "forcibly", "before", "files"),
    [
        (10, 3, True, None, 0),
        (10, 4, True, EXPIRED, 10),
        (75, 3, True, None, 0),
        (76, 3, True, EXPIRED, 10),
        (85, 3, True, EXPIRED, 10),
        (86, 3, True, NOW, 1),
        (99, 4, True, NOW, 1),
        (99, 3, False, EXPIRED, 10),
    ],
)
def test_what_a_round_may_delete(
    *, used: int, hour: int, forcibly: bool, before: int | None, files: int
) -> None:
    found = plan(StoreSettings(clean_forcibly=forcibly), NOW, hour, used)
    assert (found and (found.before_ms, found.files_max)) == (before and (before, files))


def test_hours_are_a_list() -> None:
    assert StoreSettings(delete_when="04;16; 23").delete_hours == {4, 16, 23}
    with pytest.raises(UsageError, match=r"deleteWhen.*0\.\.23"):
        load(StoreSettings, {"deleteWhen": "24"})


class Files:
    def __init__(self, used: list[int], deletable: int) -> None:
        self.used = used
        self.deletable = deletable
        self.asked: list[Plan] = []

    def disk_used_percent(self) -> int:
        return self.used.pop(0) if len(self.used) > 1 else self.used[0]

    def delete_expired(self, before_ms: int, limit: int) -> int:
        self.asked.append(Plan(before_ms, limit, ""))
        deleted = min(limit, self.deletable)
        self.deletable -= deleted
        return deleted


def test_forced_cleaning_ends_as_soon_as_there_is_room() -> None:
    files = Files([95, 92, 88, 80], 100)
    settings = StoreSettings(delete_when="")
    asyncio.run(Cleaner(files, settings, FakeClock(NOW)).clean())
    assert files.asked == [
        Plan(NOW, 1, ""),
        Plan(NOW, 1, ""),
        Plan(NOW, 1, ""),
        Plan(EXPIRED, 10, ""),
    ]
    assert files.deletable == 87


def test_a_round_that_finds_nothing_ends() -> None:
    files = Files([99], 0)
    asyncio.run(Cleaner(files, StoreSettings(), FakeClock(NOW)).clean())
    assert len(files.asked) == 1


def test_expired_files_go_and_their_offsets_with_them(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(40):
            assert (await it.send("orders", b"%03d" % number + b"x" * 60_000)).code == 0
        await dispatched(it)
        # Only what is durable can be old.
        await it.broker.store.flush()
        folder = tmp_path / "broker-a" / "commitlog"
        names = sorted(path.name for path in folder.iterdir())
        os.utime(folder / names[0], (1, 1))
        settings = StoreSettings(disk_used_percent=0, disk_clean_percent=100)
        clock = FakeClock(2_000_000_000_000)
        os.utime(folder / names[1], (2_000_000_000, 2_000_000_000))
        await Cleaner(it.broker.store, settings, clock).clean()
        assert not (folder / names[0]).exists()
        assert (folder / names[1]).exists()
        first = it.broker.store.min_offset("orders", 0)
        assert 10 < first < 20
        assert (await it.pull("orders", 0)).code == 21
        found = records(await it.pull("orders", first))
        assert found[0].body.startswith(b"%03d" % first)

    play(tmp_path, tell)
