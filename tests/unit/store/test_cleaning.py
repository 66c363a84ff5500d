"""Old files go by age, hour and fill level; never more than is needed."""

from __future__ import annotations

import dataclasses
import os
import struct
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet._native import Store, StoreError
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.housekeeping.cleaning import ANY_AGE_MS, Cleaner, plan
from roquet.store.housekeeping.self_check import SelfCheck
from roquet.store.housekeeping.steady_time import HOUR_MS
from roquet.store.records import read_records
from roquet.store.results import DiskUse
from roquet.store.settings import StoreConfig
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
    found = plan(StoreConfig(clean_forcibly=forcibly), disk(used), NOW, hour)
    assert (found and (found.before_ms, found.files_max)) == (before and (before, files))


def test_hours_are_a_list() -> None:
    assert StoreConfig(delete_when="04;16; 23").delete_hours == {4, 16, 23}
    with pytest.raises(UsageError, match=r"deleteWhen.*0\.\.23"):
        load(StoreConfig, {"deleteWhen": "24"})


@pytest.mark.parametrize("asked", [True, False])
def test_somebody_may_ask_for_a_round(*, asked: bool) -> None:
    found = plan(StoreConfig(), disk(10), NOW, 3, asked=asked)
    assert (found is not None) == asked


AT_ONCE = StoreConfig(delete_when="", delete_interval_ms=0)
ALWAYS = ";".join(map(str, range(24)))


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


def index_ends(folder: Path) -> list[int]:
    """Return the log offset of each index file's last entry, from their headers."""
    heads = [path.read_bytes()[:40] for path in sorted(folder.iterdir())]
    return [struct.unpack(">qqqqii", head)[3] for head in heads]


def test_queues_and_index_follow_the_log(tmp_path: Path) -> None:
    store = tmp_path / "broker-a"
    queue, index, log = (
        store / "consumequeue" / "orders" / "0",
        store / "index",
        store / "commitlog",
    )

    async def tell(it: Cluster) -> None:
        for number in range(400):
            answer = await it.send("orders", b"x" * 10_000, properties=f"KEYS\x01key{number}\x02")
            assert answer.code == 0
        await dispatched(it)
        await it.broker.store.flush()

        def known(number: int) -> int:
            return len(it.broker.store.query("orders", f"key{number}", 32, 0, 2**62).records)

        assert [known(number) for number in (0, 399)] == [1, 1]
        assert len(list(queue.iterdir())) >= 3
        # The heads of the index files are written with the checkpoint.
        it.broker.store.native.checkpoint()
        ends = index_ends(index)
        assert len(ends) >= 3
        for path in sorted(log.iterdir())[:2]:
            os.utime(path, (1, 1))
        await Cleaner(
            it.broker.store, dataclasses.replace(AT_ONCE, delete_when=ALWAYS), SystemClock()
        ).clean()
        begin = it.broker.store.native.min_physical_offset()
        first = it.broker.store.min_offset("orders", 0)
        assert begin == 2 << 20
        assert 200 <= first < 220
        # A file of the queue has 100 units; those of gone messages alone are gone.
        assert min(path.name for path in queue.iterdir()) == f"{first // 100 * 2_000:020}"
        assert index_ends(index) == [end for end in ends if end >= begin] != ends
        assert known(0) == known(first - 1) == 0
        assert known(first) == known(399) == 1

    small = {"mappedFileSizeConsumeQueue": "2000", "maxIndexNum": "100", "maxHashSlotNum": "50"}
    play(tmp_path, tell, **small)


def test_nats_7556_missing_metadata_deletes_nothing(tmp_path: Path) -> None:
    """Bufstream, NATS #7556: files without a table that knows them are no orphans."""

    async def fill(it: Cluster) -> None:
        for number in range(40):
            assert (await it.send("orders", b"%03d" % number + b"x" * 60_000)).code == 0
        await dispatched(it)

    async def clean(it: Cluster) -> None:
        assert it.broker.metadata.topics.get("orders") is None
        for code in (
            RequestCode.DELETE_EXPIRED_COMMITLOG,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        ):
            assert (await it.call(Command(code))).code == 0
        store = it.broker.store
        assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (0, 40)
        for number in range(40):
            (record,) = read_records(store.get("orders", 0, number, 1).records)
            assert record.body.startswith(b"%03d" % number)

    config = tmp_path / "broker-a" / "config"
    play(tmp_path, fill)
    gone = [*config.glob("topics.json*"), *config.glob("consumerOffset.json*")]
    assert gone
    for path in gone:
        path.unlink()
    play(tmp_path, clean)
    # And what a round of a stopped and started broker leaves is still all.
    play(tmp_path, clean)


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
        # A file that is shorter, with what is missing put back behind it.
        data = gone.read_bytes()
        os.truncate(gone, 1_000_000)
        await check.check()
        assert list(check.problems) == [f"{gone} has 1000000 bytes"]
        gone.write_bytes(data)
        await check.check()
        assert not list(check.problems)

    play(tmp_path, tell)


def test_damage_is_counted_said_once_and_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A unit of another queue is passed over; log, metrics and runtime info tell."""

    async def fill(it: Cluster) -> None:
        for queue in (0, 1) * 5:
            assert (await it.send("orders", b"q%d" % queue, queue_id=queue)).code == 0
        await dispatched(it)

    async def tell(it: Cluster) -> None:
        store = it.broker.store
        got = store.get("orders", 0, 0, 32)
        assert {record.body for record in read_records(got.records)} == {b"q0"}
        assert got.next_begin_offset == 5
        check = SelfCheck(store)
        await check.tell_damage()
        await check.tell_damage()
        lines = [row.getMessage() for row in caplog.records if "passed over" in row.getMessage()]
        said = (
            "1 messages cannot be read and were passed over, the last one: offset 2 of queue 0 of"
            " topic orders is passed over: its unit is of another place"
        )
        assert lines == [said]
        assert (store.damage().reads, store.damage().conflicts) == (1, 0)

    play(tmp_path, fill)
    queues = tmp_path / "broker-a" / "consumequeue" / "orders"
    foreign = next((queues / "1").iterdir()).read_bytes()[40:60]
    with next((queues / "0").iterdir()).open("r+b") as file:
        file.seek(40)
        file.write(foreign)
    play(tmp_path, tell)


@pytest.mark.parametrize("where", ["commitlog", "consumequeue/orders/0"])
def test_a_store_with_a_hole_does_not_get_as_far_as_a_self_check(
    tmp_path: Path, where: str
) -> None:
    """A hole in the log is refused at the start, one in a queue is filled from the log."""
    config: dict[str, str | int | bool] = {
        "storePathRootDir": str(tmp_path),
        "mappedFileSizeCommitLog": 1 << 16,
        "mappedFileSizeConsumeQueue": 2_000,
    }
    store = Store.open(config)
    store.start()
    for number in range(400):
        assert store.put("orders", 0, b"%d" % number + b"x" * 900, b"")[0] == 0
    store.close()
    hole = sorted((tmp_path / where).iterdir())[1]
    hole.unlink()
    if where == "commitlog":
        with pytest.raises(StoreError) as refused:
            Store.open(config)
        assert refused.value.args[0] == "corrupt"
        assert str(int(hole.name)) in refused.value.args[1]
        return
    store = Store.open(config)
    store.start()
    try:
        assert hole.exists()
        assert store.self_check() == []
        assert len(store.units("orders", 0, 0, 400)) == 400
    finally:
        store.close()


def test_without_the_setting_files_are_not_written_full(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"x" * 60_000)).code == 0
        await dispatched(it)
        (first, *_) = sorted((tmp_path / "broker-a" / "commitlog").iterdir())
        with first.open("rb") as file:
            assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) < 1 << 20, "blocks only promised"

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH")


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
