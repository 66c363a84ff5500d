"""What the cleaner does round after round: which files, when, with which pauses, what it says."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
from typing import TYPE_CHECKING, cast

import pytest

from roquet.store.housekeeping import cleaning
from roquet.store.housekeeping.cleaning import ANY_AGE_MS, ROUNDS_ASKED, Cleaner
from roquet.store.housekeeping.steady_time import HOUR_MS, SAVE_MS
from roquet.store.results import DiskUse, StoreFault
from roquet.store.settings import StoreConfig
from roquet.store.tables.files import JsonFile

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.base.clock import Clock

NOW = 1_700_000_000_000
HOUR = time.localtime(NOW / 1000).tm_hour
OTHER_HOURS = ";".join(str(hour) for hour in range(24) if hour != HOUR)
AT_ONCE = StoreConfig(delete_when="", delete_interval_ms=0)


class World:
    """Log files, the disk they are on, the wall clock, and a clock that nobody sets; from 0 on."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        settings: StoreConfig = AT_ONCE,
        *,
        used: tuple[int, ...] = (80,),
        files: int = 0,
        time_file: JsonFile | None = None,
    ) -> None:
        self.wall_ms, self.passed_ms = NOW, 0
        self.used = list(used)
        """Fill levels, one a look; the last one stays."""
        self.files = files
        self.newest_ms: int | None = None
        self.hangs = False
        self.done: list[int | str] = []
        """Before which time a file was asked to be older; and pauses."""
        patch.setattr(cleaning, "steady_ms", lambda: self.passed_ms)
        self.cleaner = Cleaner(self, settings, cast("Clock", self), time_file)

    def now_ms(self) -> int:
        return self.wall_ms

    async def sleep(self, seconds: float) -> None:
        self.done.append(f"pause {seconds}")

    def newest_store_time(self) -> int | None:
        return self.newest_ms

    def disk_use(self) -> DiskUse:
        percent = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        return DiskUse(percent, full=90, clean=85, expire=75)

    def delete_expired(self, before_ms: int, limit: int) -> int:
        assert limit == 1
        self.done.append(before_ms)
        if self.hangs:
            raise StoreFault("io", "a file that cannot be removed")
        if not self.files:
            return 0
        self.files -= 1
        return 1

    def later(self, by_ms: int) -> None:
        self.wall_ms += by_ms
        self.passed_ms += by_ms

    def clean(self) -> list[int | str]:
        """Clean once; return what was done."""
        self.done.clear()
        asyncio.run(self.cleaner.clean())
        return list(self.done)


EXPIRED = NOW - 72 * HOUR_MS


# --- which files, with which pauses --------------------------------------------------------------


def test_files_go_one_by_one_with_a_pause_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = StoreConfig(delete_when="", delete_interval_ms=250, delete_batch=3)
    world = World(monkeypatch, settings, files=5)
    pause = "pause 0.25"
    assert world.clean() == [EXPIRED, pause, EXPIRED, pause, EXPIRED]
    # No pause behind the last one, and none for what there is no more.
    assert world.clean() == [EXPIRED, pause, EXPIRED, pause, EXPIRED]
    assert world.clean() == [EXPIRED]


def test_forced_files_go_until_there_is_room_and_then_what_has_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = StoreConfig(delete_when="", delete_interval_ms=100, delete_batch=10)
    world = World(monkeypatch, settings, used=(95, 86, 85), files=3)
    pause = "pause 0.1"
    assert world.clean() == [ANY_AGE_MS, pause, ANY_AGE_MS, pause, EXPIRED, pause, EXPIRED]


@pytest.mark.parametrize("batch", [1, 4])
def test_forced_round_ends_after_a_batch_or_when_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    settings = StoreConfig(delete_when="", delete_interval_ms=0, delete_batch=batch)
    world = World(monkeypatch, settings, used=(99,), files=batch + 2)
    assert world.clean() == [ANY_AGE_MS] * batch
    assert world.clean() == [ANY_AGE_MS] * min(batch, 3)
    assert world.files == max(0, 2 - batch)


@pytest.mark.parametrize(("hours", "asked"), [(str(HOUR), [EXPIRED]), (OTHER_HOURS, [])])
def test_hour_is_that_of_the_local_day(
    monkeypatch: pytest.MonkeyPatch, hours: str, asked: list[int]
) -> None:
    world = World(monkeypatch, StoreConfig(delete_when=hours), used=(10,))
    assert world.clean() == asked


def test_request_by_hand_is_good_for_so_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, used=(10,))
    assert world.clean() == []
    asyncio.run(world.cleaner.clean_now())
    assert world.done == [EXPIRED]
    later = [world.clean() for _ in range(ROUNDS_ASKED + 1)]
    assert later == [[EXPIRED]] * (ROUNDS_ASKED - 1) + [[], []]


# --- settings, and faults ------------------------------------------------------------------------


def test_file_that_hangs_is_tried_again_after_the_pause_or_by_hand(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = dataclasses.replace(AT_ONCE, redelete_interval_ms=50_000)
    world = World(monkeypatch, settings, files=2)
    world.hangs = True
    assert world.clean() == [EXPIRED]
    assert "next try in 50 s" in caplog.text
    world.later(49_999)
    assert world.clean() == []
    asyncio.run(world.cleaner.clean_now())
    assert world.done == [EXPIRED + 49_999]
    world.hangs = False
    world.later(49_999)
    assert world.clean() == []
    world.later(1)
    assert world.clean() == [EXPIRED + 99_999] * 3
    assert world.files == 0


def test_other_settings_hold_from_the_next_round_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.cleaner.follow(StoreConfig(delete_when="", reserved_hours=5))
    assert world.clean() == [NOW - 5 * HOUR_MS]
    # A clock that stands ahead is believed after the time that files are kept for now.
    world.wall_ms += 1000 * HOUR_MS
    assert world.clean() == [NOW - 5 * HOUR_MS]
    seen: list[int | str] = []
    for _ in range(6):
        world.later(HOUR_MS)
        seen += world.clean()
    held = [NOW + (hour - 5) * HOUR_MS for hour in range(1, 5)]
    assert seen == [*held, NOW + 1000 * HOUR_MS, NOW + 1001 * HOUR_MS]


# --- the time that is kept -----------------------------------------------------------------------


def test_time_is_saved_at_the_start_now_and_then_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = JsonFile(tmp_path / "cleanTime.json")
    world = World(monkeypatch, used=(10,), time_file=file)

    def saved() -> tuple[int, int]:
        found = json.loads(file.path.read_bytes())
        return found["timeMs"] - NOW, found["heldMs"]

    asyncio.run(world.cleaner.start())
    assert saved() == (0, 0)
    world.later(1000)
    world.clean()
    assert saved() == (1000, 0)
    world.later(SAVE_MS - 1)
    world.clean()
    assert saved() == (1000, 0), "once a minute is enough"
    world.later(1)
    world.clean()
    assert saved() == (1000 + SAVE_MS, 0)
    world.later(7)
    asyncio.run(world.cleaner.stop())
    assert saved() == (1007 + SAVE_MS, 0)


def test_without_a_file_the_newest_message_says_what_time_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, time_file=JsonFile(tmp_path / "cleanTime.json"))
    world.newest_ms = NOW - 100 * HOUR_MS
    asyncio.run(world.cleaner.start())
    assert world.clean() == [NOW - 172 * HOUR_MS]
    # The next start knows that the clock stood ahead, though there is a newer message.
    world.later(HOUR_MS)
    asyncio.run(world.cleaner.stop())
    again = World(monkeypatch, time_file=JsonFile(tmp_path / "cleanTime.json"))
    again.newest_ms = NOW
    asyncio.run(again.cleaner.start())
    assert again.clean() == [NOW - 171 * HOUR_MS]


# --- what is said --------------------------------------------------------------------------------


def test_full_disk_is_told_once_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(monkeypatch, StoreConfig(clean_forcibly=False, delete_when=""))
    for percent in (90, 91, 95, 90, 80, 99):
        world.used = [percent]
        world.clean()
    assert [(it.levelname, it.getMessage()) for it in caplog.records] == [
        ("ERROR", "the disk is 91 % full: no messages are taken"),
        ("INFO", "the disk is 90 % full: messages are taken again"),
        ("ERROR", "the disk is 99 % full: no messages are taken"),
    ]


def test_log_says_how_many_files_went_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(monkeypatch, files=2)
    world.clean()
    world.clean()
    said = [it.getMessage() for it in caplog.records]
    assert said == ["2 commit-log files were deleted: the disk is 80 % full"]
