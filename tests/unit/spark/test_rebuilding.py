"""Queues, index and tables out of a log alone, beside those that a broker's store wrote."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from roquet import roquet_native as native
from roquet.base.errors import Corrupt, UsageError
from roquet.broker.messages.schedule import DelayLevels
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.spark.jobs.rebuild import lines_of, unplaced_of
from roquet.spark.rebuilding.log_copy import fillers
from roquet.spark.rebuilding.pieces import QueueRun
from roquet.spark.rebuilding.queues import cuts, index_names, placeable
from roquet.spark.rebuilding.steps import Found, Shape, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A = TypeVar("A")
B = TypeVar("B")

FILE = 65536
UNITS = 100
SLOTS, ENTRIES = 500, 700
LEVELS = DelayLevels()
DELAYS = tuple(LEVELS.delay_ms(level) for level in range(1, LEVELS.highest + 1))
VECTORS = Path(__file__).parents[2] / "vectors/store"


def settings(root: Path) -> dict[str, str | int | bool]:
    return {
        "storePathRootDir": str(root),
        "mappedFileSizeCommitLog": FILE,
        "mappedFileSizeConsumeQueue": UNITS * 20,
        "maxHashSlotNum": SLOTS,
        "maxIndexNum": ENTRIES,
        "diskMaxUsedSpaceRatio": 95,
    }


def opened(root: Path) -> native.Store:
    store = native.Store.open(settings(root))
    store.start()
    return store


def text(number: int) -> bytes:
    return (
        f"UNIQ_KEY\x01u{number}\x02KEYS\x01k{number} all\x02TAGS\x01{'ab'[number % 2]}\x02".encode()
    )


def fill(store: native.Store, count: int, begin: int = 0) -> None:
    """Put messages into three topics, some queues of one, delayed and rolled-back ones as well."""
    chance = random.Random(7)
    for number in range(begin, begin + count):
        body = f"{number} ".encode().ljust(chance.randrange(20, 900), b".")
        queue = chance.choice((0, 0, 0, 1, 3))
        topic = chance.choice(("T0", "T1", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"))
        more = b"DELAY\x015\x02" if topic.startswith("SCHEDULE") else b""
        flag = chance.choice((0, 0, 0, 8, 12))
        store.put(topic, queue, body, text(number) + more, sys_flag=flag)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    store = opened(root)
    fill(store, 900)
    store.close()
    return root


def in_turn(work: Callable[[A], B], tasks: Sequence[A]) -> list[B]:
    return [work(task) for task in tasks]


def shape(store: Path, out: Path, **more: Any) -> Shape:
    given = {
        "store": str(store),
        "out": out,
        "link": False,
        "queue_units": UNITS,
        "index": (SLOTS, ENTRIES),
        "delays": DELAYS,
        "part_bytes": 20_000,
        **more,
    }
    return Shape(**given)


def rebuilt(store: Path, out: Path, **more: Any) -> Found:
    steps = Steps(shape(store, out, **more), in_turn, lambda _: None)
    found = steps.rebuild()
    steps.tables(found, {})
    steps.commit({"lines": lines_of(found)})
    return found


def contents(root: Path, folder: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root / folder)): path.read_bytes()
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def log_only(store: Path, folder: Path) -> Path:
    shutil.copytree(store / "commitlog", folder / "commitlog")
    return folder


def bodies(root: Path) -> dict[tuple[str, int], list[bytes]]:
    """Return what a store that is opened gives to readers of every queue."""
    store = opened(root)
    try:
        found: dict[tuple[str, int], list[bytes]] = {}
        for topic, queue_id, first, end in store.queues():
            at = first
            while at < end:
                _, after, _, _, count, data, _ = store.get(topic, queue_id, at, 32)
                if count:
                    records = native.decode_records(data)
                    found.setdefault((topic, queue_id), []).extend(it[13] for it in records)
                assert after > at
                at = after
        return found
    finally:
        store.close()


@pytest.mark.parametrize("part_bytes", [5_000, 20_000, 1 << 30])
def test_queues_and_index_are_those_that_the_store_wrote(
    source: Path, tmp_path: Path, part_bytes: int
) -> None:
    out = tmp_path / "out"
    found = rebuilt(log_only(source, tmp_path / "log"), out, part_bytes=part_bytes)
    assert lines_of(found)[-1] == "everything was readable"
    assert sum(piece.records for piece in found.pieces) == 900
    assert contents(out, "consumequeue") == contents(source, "consumequeue")
    assert len(contents(out, "consumequeue")) > 12
    ours, theirs = contents(out, "index"), contents(source, "index")
    assert list(ours.values()) == list(theirs.values())
    assert len(ours) > 2
    for name, data in contents(source, "commitlog").items():
        if any(data):
            assert contents(out, "commitlog")[name] == data
    table = TopicTableBody.decode((out / "config/topics.json").read_bytes())
    assert {it.name: it.read_queues for it in table.topics.values()} == {
        "%RETRY%g": 4,
        "T0": 4,
        "T1": 4,
    }
    assert not list(tmp_path.glob("out.rebuilding"))
    assert bodies(out) == bodies(source)


def test_java_s_queues_come_out_as_java_wrote_them(tmp_path: Path) -> None:
    for kind in ("clean", "running"):
        out = tmp_path / kind
        log = log_only(VECTORS / kind, tmp_path / f"{kind}-log")
        theirs = contents(VECTORS / kind, "consumequeue")
        units = len(next(iter(theirs.values()))) // 20
        found = rebuilt(log, out, queue_units=units, index=None)
        assert lines_of(found)[-1] == "everything was readable"
        assert contents(out, "consumequeue") == theirs


def test_a_log_that_does_not_begin_at_0(source: Path, tmp_path: Path) -> None:
    log = log_only(source, tmp_path / "log")
    first, *rest = sorted((log / "commitlog").iterdir())
    first.unlink()
    found = rebuilt(log, tmp_path / "out")
    kept = {(it.topic, it.queue_id): it.first for it in found.queues}
    assert kept["T0", 0] > 0
    store = opened(tmp_path / "out")
    assert store.min_offset("T0", 0) == kept["T0", 0]
    store.close()
    assert int(rest[0].name) == FILE
    assert sum(len(it) for it in bodies(tmp_path / "out").values()) == sum(
        it.messages for it in found.queues
    )


def test_an_interrupted_run_goes_on_and_a_finished_one_stays(source: Path, tmp_path: Path) -> None:
    log, out = log_only(source, tmp_path / "log"), tmp_path / "out"
    done: list[int] = []

    def stops(work: Callable[[A], B], tasks: Sequence[A]) -> list[B]:
        made = [work(task) for task in tasks[:5]]
        done.append(len(made))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Steps(shape(log, out), stops, lambda _: None).rebuild()
    assert not out.exists()
    pieces = sorted((tmp_path / "out.rebuilding/pieces").glob("*.json"))
    assert len(pieces) == 5
    times = [path.stat().st_mtime_ns for path in pieces]
    steps = Steps(shape(log, out), in_turn, lambda _: None)
    found = steps.rebuild()
    assert [path.stat().st_mtime_ns for path in pieces] == times
    steps.tables(found, {})
    steps.commit({"lines": ["done"]})
    assert contents(out, "consumequeue") == contents(source, "consumequeue")
    again = Steps(shape(log, out), in_turn, lambda _: None).known()
    assert again is not None
    assert again["lines"] == ["done"]
    with pytest.raises(UsageError, match="something in it already"):
        Steps(shape(log, out, queue_units=7), in_turn, lambda _: None).known()


def test_a_second_name_shares_the_log(source: Path, tmp_path: Path) -> None:
    log = log_only(source, tmp_path / "log")
    rebuilt(log, tmp_path / "out", link=True)
    name = f"{0:020}"
    assert (tmp_path / "out/commitlog" / name).samefile(log / "commitlog" / name)
    with (log / "commitlog" / name).open("r+b") as file:
        file.seek(200)
        file.write(b"!!!!")
    with pytest.raises(UsageError, match="would have to be filled"):
        rebuilt(log, tmp_path / "other", link=True)


def places(root: Path) -> list[tuple[int, int, str, int, int]]:
    """Return begin, end, topic, queue, queue offset of every record that has a place in a queue."""
    data = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    found: list[tuple[int, int, str, int, int]] = []
    at = 0
    while at < len(data):
        size, magic = struct.unpack_from(">II", data, at)
        if magic == 0xDAA320A7:
            (record,) = native.decode_records(data[at : at + size])
            if record[6] & 12 != 12:
                found.append((at, at + size, record[14], record[2], record[4]))
            at += size
        elif magic == 0xCBD43194:
            at = (at // FILE + 1) * FILE
        else:
            break
    return found


def change(root: Path, at: int, data: bytes) -> None:
    with (root / "commitlog" / f"{at // FILE * FILE:020}").open("r+b") as file:
        file.seek(at % FILE)
        file.write(data)


def test_damage_is_filled_named_and_read_over(source: Path, tmp_path: Path) -> None:
    log = log_only(source, tmp_path / "log")
    every = places(log)
    in_queue = [it for it in every if it[2:4] == ("T0", 0)]
    changed, lost = in_queue[3], in_queue[20]
    change(log, changed[1] - 60, b"!")
    change(log, lost[0], b"\xff" * 8)
    end = every[-1]
    change(log, end[0] + 60, bytes(end[1] - end[0] - 60))
    found = rebuilt(log, tmp_path / "out")
    assert [(low, high) for _, low, high, _ in found.damage][:2] == [changed[:2], lost[:2]]
    assert len(found.damage) == 3
    (queue,) = (it for it in found.queues if (it.topic, it.queue_id) == ("T0", 0))
    assert queue.missing >= 2
    lines = lines_of(found)
    assert lines[-1] == "the rest is rebuilt"
    assert sum(line.startswith("damaged: ") for line in lines) == 3
    # Everything else is there once; who asks for a lost one gets the next, whose offset is its own.
    given = bodies(tmp_path / "out")["T0", 0]
    whole = bodies(source)["T0", 0]
    assert (
        list(dict.fromkeys(given))
        == [it for n, it in enumerate(whole) if n not in (3, 20)][: len(dict.fromkeys(given))]
    )
    assert len(dict.fromkeys(given)) >= len(whole) - 3


def test_a_missing_and_a_short_file_are_filled(source: Path, tmp_path: Path) -> None:
    log = log_only(source, tmp_path / "log")
    (log / "commitlog" / f"{FILE:020}").unlink()
    with (log / "commitlog" / f"{3 * FILE:020}").open("r+b") as file:
        file.truncate(10_000)
    found = rebuilt(log, tmp_path / "out")
    (gap, short) = found.damage
    assert gap[1:] == (FILE, 2 * FILE, "no file holds these offsets")
    assert (short[2], short[1] > 3 * FILE) == (4 * FILE, True)
    assert [path.stat().st_size for path in (tmp_path / "out/commitlog").iterdir()] == [FILE] * len(
        [*(log / "commitlog").iterdir(), gap]
    )
    kept = [it for it in places(source) if it[1] <= FILE or it[0] >= 2 * FILE]
    kept = [it for it in kept if it[1] <= short[1] or it[0] >= 4 * FILE]
    assert sum(it.messages for it in found.queues) == len(kept)
    distinct = [set(it) for it in bodies(tmp_path / "out").values()]
    assert sum(map(len, distinct)) == len(kept)


def test_damage_too_short_for_any_record_is_an_error() -> None:
    with pytest.raises(Corrupt, match="too few to be filled"):
        list(fillers(1000, 1040, 5))
    for size in (92, 110, (1 << 20) + 50, 3 << 20):
        at = 777
        for begin, data in fillers(777, 777 + size, 5):
            assert begin == at
            (record,) = native.decode_records(data)
            # Physical offset, rolled back, store time.
            assert (record[5], record[6], record[9]) == (at, 12, 5)
            at += len(data)
        assert at == 777 + size


def test_a_topic_that_was_deleted_and_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = opened(root)
    fill(store, 100)
    # What was put is in the queues then.
    store.close()
    store = opened(root)
    before = {(topic, queue): end for topic, queue, _, end in store.queues()}
    store.delete_topic("T0")
    fill(store, 150, begin=100)
    store.close()
    assert before["T0", 0] > 0
    # With the note of deletions, and by the offsets alone.
    kept = log_only(root, tmp_path / "with")
    shutil.copy(root / "deletedTopics", kept / "deletedTopics")
    for log in (kept, log_only(root, tmp_path / "without")):
        out = tmp_path / f"{log.name}-out"
        rebuilt(log, out)
        assert contents(out, "consumequeue") == contents(root, "consumequeue")
    assert (tmp_path / "with-out/deletedTopics").exists()


def run(topic: str, queue_id: int, first_physical: int, zeros: tuple[int, ...]) -> QueueRun:
    return QueueRun(topic, queue_id, 0, 1, 0, 1, first_physical, zeros, gapless=True)


def test_where_a_topic_began_anew() -> None:
    runs = [
        run("a", 0, 10, (10, 500)),
        run("a", 1, 20, (20, 510)),
        run("b", 0, 30, ()),
        run("b", 0, 90, (90,)),
        run("c", 0, 40, (40,)),
    ]
    assert cuts(runs, {"d": 7}) == {"a": 500, "b": 90, "c": 0, "d": 7}
    assert cuts(runs, {"a": 505})["a"] == 505


def test_records_without_a_queue_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = opened(root)
    store.put("T", 0, b"one", b"")
    store.put("T", 0, b"two", b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    store.put("B", 0, b"three", b"INNER_NUM\x013\x02", sys_flag=0x80)
    store.close()
    found = rebuilt(log_only(root, tmp_path / "log"), tmp_path / "out")
    assert unplaced_of(found.pieces, found.queues) == [
        ("B", "an inner batch, which needs a batch consume queue", 1),
        ("T", "meant for several queues (multi-dispatch)", 1),
    ]
    assert [path.name for path in (tmp_path / "out/consumequeue").iterdir()] == ["T"]


def test_what_no_broker_can_have_is_given_no_queue() -> None:
    assert placeable(run("T", 0, 0, ()))
    for topic, queue_id in (("..", 0), ("a/b", 0), ("", 0), ("T", 65_536)):
        assert not placeable(run(topic, queue_id, 0, ()))


def test_index_files_have_names_of_their_own() -> None:
    names = index_names([1_700_000_000_123, 1_700_000_000_123, 1_600_000_000_000])
    assert names == sorted(set(names))
    assert {len(name) for name in names} == {17}


def test_a_store_in_use_and_a_log_of_nothing_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = opened(root)
    store.put("T", 0, b"x", b"")
    with pytest.raises(UsageError, match="stop it first"):
        rebuilt(root, tmp_path / "out")
    store.close()
    empty = tmp_path / "empty/commitlog"
    empty.mkdir(parents=True)
    (empty / f"{0:020}").write_bytes(bytes(FILE))
    with pytest.raises(UsageError, match="no record can be read"):
        rebuilt(empty.parent, tmp_path / "out")
