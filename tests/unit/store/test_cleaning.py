"""Old files go by age, hour and fill level; never more than is needed."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.store.cleaning import ANY_AGE_MS, Cleaner, plan
from roquet.store.results import DiskUse, StoreFault
from roquet.store.self_check import SelfCheck
from roquet.store.settings import StoreSettings
from roquet.store.steady_time import HOUR_MS
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

NOW = 1_700_000_000_000
EXPIRED = NOW - 72 * HOUR_MS


def disk(percent: int) -> DiskUse:
    """Return a disk in use so far, with Java's levels."""
    return DiskUse(percent, full=90, clean=85, expire=75)


@pytest.mark.parametrize(
    ("used", "hour", "forcibly", "before", "files"),
    [
        (10, 3, True, None, 0),
        (10, 4, True, EXPIRED, 10),
        (75, 3, True, None, 0),
        (76, 3, True, EXPIRED, 10),
        (85, 3, True, EXPIRED, 10),
        (86, 3, True, ANY_AGE_MS, 1),
        (99, 4, True, ANY_AGE_MS, 1),
        (99, 3, False, EXPIRED, 10),
    ],
)
def test_what_a_round_may_delete(
    *, used: int, hour: int, forcibly: bool, before: int | None, files: int
) -> None:
    found = plan(StoreSettings(clean_forcibly=forcibly), disk(used), NOW, hour)
    assert (found and (found.before_ms, found.files_max)) == (before and (before, files))


def test_hours_are_a_list() -> None:
    assert StoreSettings(delete_when="04;16; 23").delete_hours == {4, 16, 23}
    with pytest.raises(UsageError, match=r"deleteWhen.*0\.\.23"):
        load(StoreSettings, {"deleteWhen": "24"})


@pytest.mark.parametrize("asked", [True, False])
def test_somebody_may_ask_for_a_round(*, asked: bool) -> None:
    found = plan(StoreSettings(), disk(10), NOW, 3, asked=asked)
    assert (found is not None) == asked


class Files:
    def __init__(self, used: list[int], deletable: int) -> None:
        self.used = used
        self.deletable = deletable
        self.asked: list[int] = []
        self.hung = 0

    def disk_use(self) -> DiskUse:
        return disk(self.used.pop(0) if len(self.used) > 1 else self.used[0])

    def newest_store_time(self) -> int | None:
        return None

    def delete_expired(self, before_ms: int, limit: int) -> int:
        assert limit == 1
        self.asked.append(before_ms)
        if self.hung:
            self.hung -= 1
            raise StoreFault("io", "a file that cannot be removed")
        deleted = min(limit, self.deletable)
        self.deletable -= deleted
        return deleted


AT_ONCE = StoreSettings(delete_when="", delete_interval_ms=0)
ALWAYS = ";".join(map(str, range(24)))


def test_forced_cleaning_ends_as_soon_as_there_is_room() -> None:
    files = Files([95, 92, 88, 80], 100)
    asyncio.run(Cleaner(files, AT_ONCE, FakeClock(NOW)).clean())
    # Then those that have expired, ten at most.
    assert files.asked == [ANY_AGE_MS] * 3 + [EXPIRED] * 10
    assert files.deletable == 87


def test_a_round_that_finds_nothing_ends() -> None:
    files = Files([99], 0)
    asyncio.run(Cleaner(files, AT_ONCE, FakeClock(NOW)).clean())
    assert len(files.asked) == 1


def test_files_go_one_after_another_with_a_pause() -> None:
    async def run() -> None:
        files, clock = Files([80], 5), FakeClock(NOW)
        cleaning = asyncio.ensure_future(Cleaner(files, StoreSettings(), clock).clean())
        seen: list[int] = []
        for _ in range(60):
            # The disk is looked at in a thread.
            await asyncio.sleep(0.01)
            seen.append(len(files.asked))
            await clock.advance(0.05)
            if cleaning.done():
                break
        await cleaning
        assert files.deletable == 0
        assert all(after - before <= 1 for before, after in itertools.pairwise(seen))

    asyncio.run(run())


def test_a_file_that_hangs_is_left_alone_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        files = Files([80], 3)
        files.hung = 1
        cleaner = Cleaner(files, AT_ONCE, FakeClock(NOW))
        for _ in range(5):
            await cleaner.clean()
        assert len(files.asked) == 1
        assert "next try in 120 s" in caplog.text
        # By hand it is tried at once.
        await cleaner.clean_now()
        assert files.deletable == 0

    asyncio.run(run())


def test_who_asks_gets_more_than_one_round() -> None:
    async def run() -> None:
        files = Files([10], 25)
        cleaner = Cleaner(files, AT_ONCE, FakeClock(NOW))
        await cleaner.clean()
        assert not files.asked
        await cleaner.clean_now()
        assert files.deletable == 15
        for _ in range(30):
            await cleaner.clean()
        assert files.deletable == 0
        # 19 more rounds: two that were cut short by their limit, and those that found nothing.
        assert len(files.asked) == 25 + 18

    asyncio.run(run())


def test_g10_no_file_goes_when_the_clock_has_jumped(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(40):
            assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)
        await it.broker.store.flush()
        clock = SystemClock()
        now_ms = clock.now_ms()
        settings = dataclasses.replace(AT_ONCE, delete_when=ALWAYS)
        for jump in (HOUR_MS, -HOUR_MS, 80 * HOUR_MS, 10 * 365 * 24 * HOUR_MS, 0):
            moved = FakeClock(now_ms)
            cleaner = Cleaner(it.broker.store, settings, moved)
            await cleaner.clean()
            await moved.advance(jump / 1000)
            for _ in range(3):
                await cleaner.clean()
            assert it.broker.store.min_offset("orders", 0) == 0, jump

    play(tmp_path, tell)


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
        settings = dataclasses.replace(AT_ONCE, delete_when=ALWAYS)
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


def test_the_self_check_names_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(60):
            assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)
        check = SelfCheck(it.broker.store)
        await check.check()
        assert not list(check.problems)
        folder = tmp_path / "broker-a" / "commitlog"
        gone = sorted(folder.iterdir())[1]
        kept = gone.rename(tmp_path / "kept")
        await check.check()
        assert list(check.problems) == [f"{gone} is gone"]
        assert f"the store is damaged: {gone} is gone" in caplog.text
        kept.rename(gone)
        await check.check()
        assert not list(check.problems)

    play(tmp_path, tell)


def test_warm_files_are_written_and_work_alike(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for _ in range(40):
            assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)
        assert it.broker.store.max_offset("orders", 0) == 40
        for path in (tmp_path / "broker-a" / "commitlog").iterdir():
            with path.open("rb") as file:
                # All of it is data: no hole, no block that is only promised.
                assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 1 << 20

    play(tmp_path, tell, warmMapedFileEnable="true", flushDiskType="SYNC_FLUSH")
