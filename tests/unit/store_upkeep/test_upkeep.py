"""Check, dump, repair, backup and restore on stores that a broker of ours, or Java's, wrote."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, records
from roquet.base.errors import Corrupt, UsageError
from roquet.cli.app import run
from roquet.cli.upkeep import stores
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.marks.format import NAME, StoreFormat
from roquet.store.records import Record
from roquet.store.upkeep.backup import backup, restore
from roquet.store.upkeep.check import Level, check
from roquet.store.upkeep.logscan import Damage, log_files, scan
from roquet.store.upkeep.repair import plan, refuse_if_used

if TYPE_CHECKING:
    from roquet.testing.cluster import Cluster

JAVA_STORE = Path(__file__).parents[2] / "vectors" / "store"
COUNT = 40


def filled(folder: Path, count: int = COUNT) -> Path:
    """Let a broker store messages in a folder, and return the folder of its store."""

    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
        for number in range(count):
            await it.send("orders", b"m%d" % number, properties=f"TAGS\x01t{number % 3}\x02")
        await dispatched(it)

    play(folder, tell)
    return next(path.parent for path in sorted(folder.rglob("commitlog")))


def bodies(folder: Path, store: Path) -> list[bytes]:
    """Start a broker on a store and read all of it."""
    found: list[bytes] = []

    async def tell(it: Cluster) -> None:
        await dispatched(it)
        while True:
            answer = await it.pull("orders", len(found))
            if answer.code != 0:
                return
            found.extend(record.body for record in records(answer))

    play(folder, tell, storePathRootDir=str(store))
    return found


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return all names below a folder, files with their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def records_of(store: Path) -> list[Record]:
    return [piece for piece in scan(store) if isinstance(piece, Record)]


def test_a_whole_store_has_nothing_wrong(tmp_path: Path) -> None:
    seen = check(filled(tmp_path))
    assert [it for it in seen.findings if it.level is not Level.NOTE] == []
    assert seen.records == COUNT


@pytest.mark.parametrize("state", ["clean", "running"])
def test_javas_store_is_read_as_well(tmp_path: Path, state: str) -> None:
    copy = tmp_path / "java"
    shutil.copytree(JAVA_STORE / state, copy)
    seen = check(copy)
    assert seen.records > 10
    assert all(it.level is Level.NOTE for it in seen.findings), seen.findings


@pytest.mark.parametrize("state", ["clean", "running"])
def test_javas_store_is_dumped_and_needs_no_repair(
    tmp_path: Path, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "java"
    shutil.copytree(JAVA_STORE / state, copy)
    before = contents(copy)
    assert run(["store", "dump", str(copy)]) == 0
    rows = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert len(rows) == check(copy).records
    kept = [
        (record.physical_offset, record.topic, record.queue_offset) for record in records_of(copy)
    ]
    assert [(row["offset"], row["topic"], row["queue_offset"]) for row in rows] == kept
    assert all(row["properties"] for row in rows)
    assert plan(copy) == []
    assert run(["store", "repair", str(copy), "--dry-run"]) == 0
    assert capsys.readouterr().out == "nothing to do: a start of the broker sees to the rest\n"
    assert contents(copy) == before


def test_a_dry_run_says_each_step_and_changes_no_byte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = filled(tmp_path)
    (queue,) = (store / "consumequeue" / "orders" / "0").iterdir()
    overwrite(queue, 3 * 20, b"\x00" * 20)
    table = store / "config" / "topics.json"
    shutil.copy(table, table.with_name("topics.json.bak"))
    table.write_bytes(b"")
    before = contents(store)
    assert run(["store", "repair", str(store), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "would put consumequeue aside: the next start makes it anew",
        "would put index aside: the next start makes it anew",
        "would put checkpoint aside: the next start makes it anew",
        "would take config/topics.json from its .bak",
    ]
    assert contents(store) == before


def test_damage_in_the_log_is_named_and_what_is_behind_it_is_found(tmp_path: Path) -> None:
    store = filled(tmp_path)
    victim = records_of(store)[5]
    overwrite(log_files(store)[0], victim.physical_offset + victim.size - 30, b"\xff" * 4)
    overwrite(log_files(store)[0], victim.physical_offset + 8, b"\xff\xff\xff\xff")
    damaged = [piece for piece in scan(store) if isinstance(piece, Damage)]
    end = victim.physical_offset + victim.size
    assert [(it.begin, it.end) for it in damaged] == [(victim.physical_offset, end)]
    seen = check(store)
    assert seen.records == COUNT - 1
    assert seen.worst is Level.DAMAGE


def test_a_wrong_unit_is_found_and_repaired(tmp_path: Path) -> None:
    store = filled(tmp_path / "a")
    (queue,) = (store / "consumequeue" / "orders" / "0").iterdir()
    overwrite(queue, 3 * 20, b"\x00" * 20)
    overwrite(queue, 7 * 20 + 12, b"\x00" * 7 + b"\x09")
    (finding,) = [it for it in check(store).findings if it.level is Level.REPAIRABLE]
    assert finding.text == "1 units are missing and 1 wrong, at 3, 7"
    for step in plan(store):
        step.act()
    assert (store / "consumequeue.broken").is_dir()
    assert bodies(tmp_path / "b", store) == [b"m%d" % number for number in range(COUNT)]
    assert check(store).worst in (Level.FINE, Level.NOTE)


@pytest.mark.parametrize("by", [-1, 20, 4096])
def test_queue_file_of_a_length_that_a_start_refuses_is_found_and_repaired(
    tmp_path: Path, by: int
) -> None:
    store = filled(tmp_path / "a")
    (queue,) = (store / "consumequeue" / "orders" / "0").iterdir()
    os.truncate(queue, queue.stat().st_size + by)
    if by > 0:
        # Others show how long files are.
        for topic in ("one", "two"):
            copy = store / "consumequeue" / topic / "0" / queue.name
            copy.parent.mkdir(parents=True)
            copy.write_bytes(bytes(queue.stat().st_size - by))
    (finding,) = [it for it in check(store).findings if it.level is Level.REPAIRABLE]
    assert finding.where == f"consumequeue/orders/0/{queue.name}"
    for step in plan(store):
        step.act()
    assert bodies(tmp_path / "b", store) == [b"m%d" % number for number in range(COUNT)]


def test_a_broken_table_comes_from_its_copy(tmp_path: Path) -> None:
    store = filled(tmp_path)
    table = store / "config" / "topics.json"
    shutil.copy(table, table.with_name("topics.json.bak"))
    table.write_bytes(b"")
    (step,) = plan(store)
    step.act()
    assert json.loads(table.read_bytes())
    assert plan(store) == []


def test_a_store_in_use_is_not_repaired(tmp_path: Path) -> None:
    store = filled(tmp_path, 1)

    async def tell(_: Cluster) -> None:
        code = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys, pathlib; from roquet.store.upkeep.repair import refuse_if_used;"
            "refuse_if_used(pathlib.Path(sys.argv[1]))",
            str(store),
            stderr=asyncio.subprocess.PIPE,
        )
        said = (await code.communicate())[1].decode()
        assert "open: stop it first" in said

    play(tmp_path, tell)
    refuse_if_used(store)


@pytest.mark.parametrize(("lacks", "level"), [(COUNT - 1, "NOTE"), (3, "REPAIRABLE")])
def test_last_units_that_a_running_broker_has_not_written_yet_are_a_note(
    tmp_path: Path, lacks: int, level: str
) -> None:
    store = filled(tmp_path)

    async def tell(_: Cluster) -> None:
        (queue,) = (store / "consumequeue" / "orders" / "0").iterdir()
        overwrite(queue, lacks * 20, b"\x00" * 20)
        checking = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys, pathlib; from roquet.store.upkeep.check import check;"
            "print(check(pathlib.Path(sys.argv[1])).worst.name)",
            str(store),
            stdout=asyncio.subprocess.PIPE,
        )
        assert (await checking.communicate())[0].decode().strip() == level

    play(tmp_path, tell, storePathRootDir=str(store))
    assert check(store).worst is Level.REPAIRABLE


async def sent_until(enough: asyncio.Event, it: Cluster, acknowledged: list[bytes]) -> None:
    """Send one message after another, and note those that were acknowledged."""
    while not enough.is_set():
        body = b"m%d" % len(acknowledged)
        assert (await it.send("orders", body)).code == 0
        acknowledged.append(body)


def test_a_backup_of_a_running_broker_is_whole_and_grows(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ends: list[int] = []
    acknowledged: list[bytes] = []
    known: list[int] = []
    where = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}

    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=1, write_queues=1))
        assert it.broker.metadata.groups.find("readers") is not None
        await it.broker.metadata.persist_configs()
        (log,) = (tmp_path / "a").rglob("commitlog")
        enough = asyncio.Event()
        sending = asyncio.create_task(sent_until(enough, it, acknowledged))
        for step in (40, 80, 120):
            async with asyncio.timeout(60):
                while len(acknowledged) < step:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            commit = Command(
                RequestCode.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": str(step)}
            )
            assert (await it.call(commit)).code == 0
            await it.broker.metadata.persist_offsets()
            known.append(len(acknowledged))
            done = await asyncio.to_thread(backup, log.parent, copy)
            ends.append(done.log_end)
        enough.set()
        await sending

    play(tmp_path / "a", tell)
    assert ends == sorted(set(ends)), "each is longer than the one before"
    restored = tmp_path / "restored"
    restore(copy, restored)
    assert check(restored).worst is not Level.DAMAGE
    found = bodies(tmp_path / "b", restored)
    assert len(found) >= known[-1] >= 120
    assert found == acknowledged[: len(found)]

    async def group(it: Cluster) -> None:
        answer = await it.call(Command(RequestCode.QUERY_CONSUMER_OFFSET, where))
        assert (answer.code, (answer.ext or {})["offset"]) == (0, "120")
        assert "readers" in it.broker.metadata.groups.all()

    play(tmp_path / "c", group, storePathRootDir=str(restored))


def test_check_restored_backup_has_nothing_to_repair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = filled(tmp_path / "a", 3)
    written = sum(record.size for record in records_of(store))
    told: list[int] = []
    assert backup(store, tmp_path / "copy", told.append).bytes == written
    assert told
    copied = log_files(tmp_path / "copy")[0].stat()
    assert copied.st_size == log_files(store)[0].stat().st_size
    shutil.rmtree(tmp_path / "copy")
    assert run(["store", "backup", str(store), str(tmp_path / "copy")]) == 0
    assert f"1 log files with {written} bytes of messages" in capsys.readouterr().out
    restored = tmp_path / "restored"
    assert run(["store", "restore", str(tmp_path / "copy"), str(restored)]) == 0
    assert check(restored).worst is Level.NOTE
    assert run(["store", "check", str(restored)]) == 0
    assert plan(restored) == []
    assert bodies(tmp_path / "b", restored) == [b"m0", b"m1", b"m2"]


def test_check_one_lost_queue_of_two_is_repairable(tmp_path: Path) -> None:
    store = filled(tmp_path / "a", 3)
    shutil.rmtree(store / "consumequeue/orders")
    (store / "consumequeue/other").mkdir()
    assert check(store).worst is Level.REPAIRABLE


def test_store_commands_say_how_far_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path / "a", 3)
    monkeypatch.setattr(stores, "SILENT_S", 0.0)
    assert run(["store", "check", str(store)]) == 0
    assert re.search(r"^checked \d+ bytes$", capsys.readouterr().err, re.MULTILINE)
    assert run(["store", "backup", str(store), str(tmp_path / "copy")]) == 0
    assert re.search(r"^copied \d+", capsys.readouterr().err, re.MULTILINE)
    assert run(["store", "restore", str(tmp_path / "copy"), str(tmp_path / "new")]) == 0
    assert re.search(r"^restored \d+", capsys.readouterr().err, re.MULTILINE)


def test_a_torn_end_of_a_copy_is_cut(tmp_path: Path) -> None:
    store = filled(tmp_path / "a")
    *_, last = records_of(store)
    overwrite(log_files(store)[-1], last.physical_offset + 8, b"\xff\xff\xff\xff")
    backup(store, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored")
    assert len(records_of(tmp_path / "restored")) == COUNT - 1
    assert check(tmp_path / "restored").worst is not Level.DAMAGE


def test_backups_and_restores_overwrite_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path / "a", 3)
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "x").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        backup(store, occupied)
    with pytest.raises(UsageError, match="within the store"):
        backup(store, store / "copy")
    backup(store, tmp_path / "copy")
    with pytest.raises(UsageError, match="not empty"):
        restore(tmp_path / "copy", occupied)
    with pytest.raises(UsageError, match="no backup"):
        restore(occupied, tmp_path / "new")
    first = log_files(tmp_path / "copy")[0]
    overwrite(first, 8, b"\xff" * 4)
    with pytest.raises(Corrupt, match="was changed"):
        restore(tmp_path / "copy", tmp_path / "new")


def test_a_store_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = filled(tmp_path / "a", 3)
    mark = store / NAME
    assert json.loads(mark.read_text())["format"] == 1
    mark.write_text('{"format": 2, "release": "9.9"}')
    with pytest.raises(UsageError, match="newer release"):
        asyncio.run(StoreFormat(store, "x").start())
    assert json.loads(mark.read_text())["format"] == 2
    mark.write_text("{")
    with pytest.raises(Corrupt):
        asyncio.run(StoreFormat(store, "x").start())
    mark.unlink()
    asyncio.run(StoreFormat(store, "x").start())
    assert json.loads(mark.read_text()) == {"format": 1, "release": "x"}


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(tmp_path / "a", 5)
    assert run(["store", "check", str(store)]) == 0
    assert "5 records" in capsys.readouterr().err
    assert run(["store", "dump", str(store), "--topic", "orders", "-c", "2"]) == 0
    lines = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [(row["queue_offset"], row["body"]) for row in lines] == [(0, "m0"), (1, "m1")]
    assert run(["store", "repair", str(store), "--dry-run"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run(["store", "backup", str(store), str(tmp_path / "copy")]) == 0
    assert run(["store", "restore", str(tmp_path / "copy"), str(tmp_path / "new")]) == 0
    overwrite(log_files(store)[0], 8, b"\xff\xff\xff\xff")
    assert run(["store", "check", str(store)]) == 4
    assert "DAMAGE" in capsys.readouterr().out
    assert run(["store", "check", str(tmp_path / "nowhere")]) == 2
