"""The time that files are judged by, with clocks that jump, also while nobody looks."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play
from roquet.base.clock import SystemClock
from roquet.base.overriding import override
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.store.housekeeping.steady_time import (
    DOWN_MS,
    HOUR_MS,
    JUMP_HOLD_MS,
    JUMP_MS,
    SAVE_MS,
    KeptTime,
    Known,
    SteadyTime,
)
from roquet.store.tables.files import JsonFile
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

NOW = 1_700_000_000_000
RESERVED = 72 * HOUR_MS
YEARS = 10 * 365 * 24 * HOUR_MS


def test_g10_a_clock_that_jumps_ahead_makes_nothing_expire() -> None:
    time = SteadyTime(RESERVED)
    assert time.look(NOW, 0) == NOW
    assert time.look(NOW + 10_000, 10_000) == NOW + 10_000
    jump = 80 * HOUR_MS
    for passed in range(20_000, JUMP_HOLD_MS, HOUR_MS):
        assert time.look(NOW + jump + passed, passed) == NOW + passed


@pytest.mark.parametrize("jump", [80 * HOUR_MS, YEARS])
def test_g10_a_clock_that_stays_ahead_is_believed_little_by_little(jump: int) -> None:
    """What was written before goes in its order, never more than four hours of it in an hour."""
    time = SteadyTime(RESERVED)
    step = 10_000
    before = time.look(NOW, 0)
    for passed in range(step, 200 * HOUR_MS, step):
        seen = time.look(NOW + jump + passed, passed)
        if seen == NOW + jump + passed:
            break
        assert 0 <= seen - before <= 4 * step
        before = seen
    # 24 hours at its own speed and 12 at four times it: all from before the jump has expired.
    assert passed == 36 * HOUR_MS
    assert before - RESERVED >= NOW - 4 * step


def test_a_short_jump_is_made_up_for() -> None:
    time = SteadyTime(RESERVED)
    time.look(NOW, 0)
    for passed in range(60_000, 40 * HOUR_MS, 60_000):
        if time.look(NOW + 2 * HOUR_MS + passed, passed) == NOW + 2 * HOUR_MS + passed:
            break
    assert JUMP_HOLD_MS < passed < JUMP_HOLD_MS + HOUR_MS


def test_a_second_jump_is_waited_for_as_well() -> None:
    time = SteadyTime(RESERVED)
    time.look(NOW, 0)
    for passed in range(HOUR_MS, 24 * HOUR_MS, HOUR_MS):
        assert time.look(NOW + 2 * HOUR_MS + passed, passed) == NOW + passed
    for passed in range(24 * HOUR_MS, 47 * HOUR_MS, HOUR_MS):
        assert time.look(NOW + YEARS + passed, passed) == NOW + passed


def test_what_is_kept_for_less_than_a_day_is_waited_for_that_long() -> None:
    time = SteadyTime(2 * HOUR_MS)
    time.look(NOW, 0)
    assert time.look(NOW + YEARS, HOUR_MS) == NOW + HOUR_MS
    assert time.look(NOW + YEARS, 3 * HOUR_MS) == NOW + YEARS


def test_time_that_files_are_kept_for_counts_from_when_it_is_set() -> None:
    time = SteadyTime(RESERVED)
    time.keep_for(2 * HOUR_MS)
    time.look(NOW, 0)
    assert time.look(NOW + YEARS, HOUR_MS) == NOW + HOUR_MS
    assert time.look(NOW + YEARS, 3 * HOUR_MS) == NOW + YEARS
    kept = KeptTime(RESERVED, None)
    kept.keep_for(2 * HOUR_MS)
    kept.load(None)
    kept.look(NOW, 0)
    assert kept.look(NOW + YEARS, HOUR_MS) == NOW + HOUR_MS
    assert kept.look(NOW + YEARS, 3 * HOUR_MS) == NOW + YEARS


def test_jump_is_more_than_a_few_minutes_also_after_a_wait() -> None:
    running = SteadyTime(RESERVED)
    running.look(NOW, 0)
    assert running.look(NOW + JUMP_MS, 0) == NOW + JUMP_MS
    assert running.look(NOW + 2 * JUMP_MS + 1, 0) == NOW + JUMP_MS
    # A start wonders at less when the clock stood ahead before it.
    for lead_ms, is_believed in ((JUMP_MS, True), (JUMP_MS + 1, False)):
        time = SteadyTime(RESERVED, Known(NOW, 5))
        assert time.look(NOW + lead_ms, 0) == NOW + lead_ms * is_believed


@pytest.mark.parametrize(("further_ms", "held_ms"), [(JUMP_MS, 2000), (JUMP_MS + 1, 1000)])
def test_clock_that_jumps_once_more_is_waited_for_anew(further_ms: int, held_ms: int) -> None:
    time = SteadyTime(RESERVED)
    time.look(NOW, 0)
    ahead = NOW + 2 * HOUR_MS
    assert time.look(ahead + 1000, 1000) == NOW + 1000
    assert time.look(ahead + further_ms + 2000, 2000) == NOW + 2000
    assert time.known == Known(NOW + 2000, held_ms)


@pytest.mark.parametrize(("passed_ms", "is_believed"), [(999, False), (1000, True)])
def test_clock_is_believed_once_time_is_made_up_for_but_for_a_jump(
    passed_ms: int, *, is_believed: bool
) -> None:
    time = SteadyTime(RESERVED, Known(NOW, JUMP_HOLD_MS))
    wall = NOW + JUMP_MS + 3000
    assert time.look(wall, 0) == NOW
    # A second brings four.
    expected = wall + passed_ms if is_believed else NOW + 4 * passed_ms
    assert time.look(wall + passed_ms, passed_ms) == expected
    held = 0 if is_believed else JUMP_HOLD_MS + passed_ms
    assert time.known == Known(expected, held)


def test_each_jump_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    time = SteadyTime(RESERVED)
    time.look(NOW, 0)
    for lead_ms, said in (
        (2 * HOUR_MS, ["7200 s"]),
        (2 * HOUR_MS, []),
        (3 * HOUR_MS, ["10800 s"]),
        # Put right, and wrong again by less.
        (0, []),
        (HOUR_MS, ["3600 s"]),
    ):
        caplog.clear()
        time.look(NOW + lead_ms, 0)
        warned = [it for it in caplog.messages if "s ahead of the time" in it]
        assert [it.split(" is ")[1].split(" ahead")[0] for it in warned] == said


@pytest.mark.parametrize(
    ("time_ms", "held_ms", "is_one"), [(1, 0, True), (0, 0, False), (-1, 0, False), (1, -1, False)]
)
def test_file_has_a_time_behind_0_and_no_wait_below_it(
    tmp_path: Path, time_ms: int, held_ms: int, *, is_one: bool
) -> None:
    path = tmp_path / "time.json"
    path.write_text(json.dumps({"timeMs": time_ms, "heldMs": held_ms}))
    kept = KeptTime(RESERVED, JsonFile(path))
    kept.load(NOW)
    assert kept.look(NOW + YEARS, 0) == (time_ms if is_one else NOW)


def test_g10_a_clock_that_is_put_right_again_counts_at_once() -> None:
    time = SteadyTime(RESERVED)
    time.look(NOW, 0)
    assert time.look(NOW + YEARS, 1000) == NOW + 1000
    assert time.look(NOW + 2000, 2000) == NOW + 2000
    # Backwards nothing expires either way.
    assert time.look(NOW - HOUR_MS, 3000) == NOW - HOUR_MS
    assert time.look(NOW - HOUR_MS + 1000, 4000) == NOW - HOUR_MS + 1000


def test_g10_a_jump_while_nobody_looked_is_one() -> None:
    for jump in (80 * HOUR_MS, YEARS):
        assert SteadyTime(RESERVED, Known(NOW, 0)).look(NOW + jump, 5) == NOW
    assert SteadyTime(RESERVED, Known(NOW, 0)).look(NOW + DOWN_MS, 5) == NOW + DOWN_MS
    assert SteadyTime(RESERVED, Known(NOW, 0)).look(NOW - YEARS, 5) == NOW - YEARS


def test_g10_restarts_neither_end_a_wait_nor_begin_it_anew() -> None:
    known: Known | None = Known(NOW, 0)
    wall, running = NOW + 80 * HOUR_MS, 0
    while True:
        time = SteadyTime(RESERVED, known)
        # An hour of running, then half an hour of rest.
        seen = [time.look(wall + passed, 7 + passed) for passed in range(0, HOUR_MS + 1, 10_000)]
        if seen[-1] == wall + HOUR_MS:
            break
        assert seen[-1] - seen[0] in (HOUR_MS, 4 * HOUR_MS)
        running += 1
        wall += HOUR_MS + HOUR_MS // 2
        known = time.known
    assert running == 35


def test_the_time_is_kept_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "time.json"

    async def run() -> None:
        kept = KeptTime(RESERVED, JsonFile(path))
        kept.load(NOW)
        assert kept.look(NOW + YEARS, 0) == NOW
        await kept.save(0)
        assert kept.look(NOW + YEARS, 5 * HOUR_MS) == NOW + 5 * HOUR_MS
        await kept.save(SAVE_MS - 1)
        assert json.loads(path.read_bytes()) == {"heldMs": 0, "timeMs": NOW}
        await kept.save(SAVE_MS)
        assert json.loads(path.read_bytes()) == {"heldMs": 5 * HOUR_MS, "timeMs": NOW + 5 * HOUR_MS}

        again = KeptTime(RESERVED, JsonFile(path))
        # Messages that came after the jump carry its time.
        again.load(NOW + YEARS)
        assert again.look(NOW + YEARS, 0) == NOW + 5 * HOUR_MS

        path.write_bytes(b'{"heldMs":0,"timeMs":-4}')
        path.with_name("time.json.bak").unlink()
        damaged = KeptTime(RESERVED, JsonFile(path))
        damaged.load(NOW + 7)
        assert "that of the newest message" in caplog.text
        assert damaged.look(NOW + YEARS, 0) == NOW + 7

        path.unlink()
        path.with_name("time.json.tmp").symlink_to(tmp_path / "elsewhere")
        await damaged.save()
        assert "is not saved" in caplog.text

    asyncio.run(run())


class Ahead(SystemClock):
    """A clock that was set wrong."""

    def __init__(self, by_ms: int) -> None:
        self.by_ms = by_ms

    @override
    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms


@pytest.mark.parametrize("forget", [False, True])
def test_g10_a_broker_that_starts_with_a_clock_ahead_deletes_nothing(
    tmp_path: Path, *, forget: bool
) -> None:
    """Also when the file with the time is not there: the newest message says the time."""
    always = {"deleteWhen": ";".join(map(str, range(24))), "deleteCommitLogFilesInterval": "0"}
    kept = tmp_path / "broker-a" / "config" / "cleaningTime.json"
    folder = tmp_path / "broker-a" / "commitlog"

    async def fill(it: Cluster) -> None:
        assert kept.exists(), "from the start on"
        for _ in range(40):
            assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)

    async def clean(address: str) -> None:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            ask = Command(RequestCode.DELETE_EXPIRED_COMMITLOG)
            assert (await client.call(address, ask, 60.0)).code == ResponseCode.SUCCESS
        finally:
            await client.stop()

    async def start_ahead() -> None:
        names = sorted(path.name for path in folder.iterdir())
        assert len(names) >= 3
        async with (
            running_name_server(tmp_path / "namesrv") as server,
            running_broker(
                tmp_path / "broker-a",
                f"127.0.0.1:{server.server.port}",
                changes=always,
                clock=Ahead(80 * HOUR_MS),
            ) as broker,
        ):
            await clean(broker.identity.address)
            assert broker.store.min_offset("orders", 0) == 0
            # What is old by the time that has passed does go.
            os.utime(folder / names[0], (1, 1))
            await clean(broker.identity.address)
            assert broker.store.min_offset("orders", 0) > 0
            assert not (folder / names[0]).exists()
            assert (folder / names[1]).exists()

    play(tmp_path, fill)
    if forget:
        for path in kept.parent.glob("cleaningTime.json*"):
            path.unlink()
    asyncio.run(start_ahead())
