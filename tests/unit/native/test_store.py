"""The store through the compiled module: what the broker calls, on real files."""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

import pytest

from roquet._native import Store, StoreError, decode_records

Message = tuple[str, int, bytes, bytes, int, int, int, bytes, bytes, int, int]

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def config(root: Path, **more: str | int | bool) -> dict[str, str | int | bool]:
    """Settings with tiny files."""
    return {
        "storePathRootDir": str(root),
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 2_000,
        "maxHashSlotNum": 500,
        "maxIndexNum": 2_000,
        **more,
    }


def started(root: Path, **more: str | int | bool) -> Store:
    """Return a running store."""
    store = Store.open(config(root, **more))
    store.start()
    return store


def settle(store: Store) -> None:
    """Wait until everything put can be read."""
    end = time.monotonic() + 20
    while store.dispatch_behind():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_message_goes_in_and_comes_out_whole(tmp_path: Path) -> None:
    """Every field that the caller gave is in the record, and the record is found by every way."""
    store = started(tmp_path)
    status, physical, size, queue_offset, stored = store.put(
        "T",
        3,
        b"hello",
        b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x01u1\x02",
        flag=7,
        sys_flag=1,
        born_timestamp=1_700_000_000_000,
        born_host=HOST,
        store_host=bytes(16) + bytes([0, 0, 0, 9]),
        reconsume_times=2,
        prepared_transaction_offset=5,
    )
    assert (status, physical, queue_offset) == (0, 0, 0)
    assert store.next_offset("T", 3) == 1
    settle(store)
    got = store.get("T", 3, 0, 32)
    assert got[:5] == (0, 1, 0, 1, 1)
    assert got[6] is False
    (record,) = decode_records(got[5])
    assert record[0] == size
    assert record[2:6] == (3, 7, 0, 0)
    assert record[6] == 1 | 0x20
    assert record[7:13] == (1_700_000_000_000, HOST, stored, bytes(19) + b"\x09", 2, 5)
    assert record[13:15] == (b"hello", "T")
    assert store.read(physical) == got[5] == store.read(physical, size)
    assert store.read(physical, size - 1) is None
    assert store.read(1) is None
    assert store.read(-1) is None
    assert store.unit("T", 3, 0) == (physical, size, 2_598_919)
    assert store.unit("T", 3, 1) is None
    assert store.units("T", 3, 0, 10) == [(physical, size, 2_598_919)]
    for key in ("k1", "k2", "u1", "T#TagA"):
        assert store.query("T", key, 32, 0, stored + 1000)[0] == [physical], key
    assert store.query("T", "k3", 32, 0, stored + 1000)[0] == []
    assert store.queues() == [("T", 3, 0, 1)]
    assert store.earliest_store_time() == stored
    assert store.offset_by_time("T", 3, stored) == 0
    store.close()


def test_a_batch_is_all_or_nothing(tmp_path: Path) -> None:
    """Elements get consecutive offsets; one that is too long keeps the others out."""
    store = started(tmp_path, maxMessageSize=100)
    elements = [(0, b"a", b""), (1, b"bb", b"TAGS\x01x\x02"), (2, b"ccc", b"")]
    status, offsets, end, first, stored = store.put_batch("B", 0, elements, born_host=HOST)
    assert (status, first) == (0, 0)
    assert offsets[0] == 0
    assert end == store.max_physical_offset()
    settle(store)
    records = decode_records(store.get("B", 0, 0, 32)[5])
    assert [(record[3], record[4], record[13]) for record in records] == [
        (0, 0, b"a"),
        (1, 1, b"bb"),
        (2, 2, b"ccc"),
    ]
    assert {record[9] for record in records} == {stored}
    refused = store.put_batch("B", 0, [(0, b"d", b""), (0, bytes(101), b"")])
    assert refused == (6, [], -1, -1, 0)
    assert store.put_batch("B", 0, []) == (6, [], -1, -1, 0)
    assert store.next_offset("B", 0) == 3
    store.close()


def test_statuses_of_messages_that_cannot_be_stored(tmp_path: Path) -> None:
    """The limits of spec store §3.5, and names that are no folder names (CVE-2019-17572)."""
    store = started(tmp_path, maxMessageSize=100)
    assert store.put("T", 0, bytes(101), b"")[0] == 6
    assert store.put("T", 0, b"", bytes(32_768))[0] == 7
    assert store.put("t" * 128, 0, b"x", b"")[0] == 6
    assert store.put("%RETRY%" + "t" * 128, 0, b"x", b"")[0] == 0
    assert store.put("%RETRY%" + "t" * 249, 0, b"x", b"")[0] == 6
    for name in ("", ".", "..", "../../x", "a/b", "a\0b"):
        assert store.put(name, 0, b"x", b"")[0] == 6, name
    assert store.put("T", -1, b"x", b"")[0] == 6
    assert store.put("T", 0, b"x", b"", born_host=b"123")[0] == 6
    settle(store)
    assert [row[0] for row in store.queues()] == ["%RETRY%" + "t" * 128]
    store.close()
    assert store.put("T", 0, b"x", b"")[0] == 4


def test_news_comes_through_the_descriptor(tmp_path: Path) -> None:
    """The descriptor is readable once a message is dispatched, and quiet once it is read."""
    store = started(tmp_path, flushIntervalCommitLog=60_000)
    fd = store.event_fd()
    assert select.select([fd], [], [], 0)[0] == []
    store.put("T", 0, b"x", b"")
    store.put("T", 1, b"x", b"")
    settle(store)
    assert select.select([fd], [], [], 5)[0] == [fd]
    flushed, news, failure = store.take_events()
    assert sorted(news) == [("T", 0, 1), ("T", 1, 1)]
    assert (flushed, failure) == (0, None)
    assert select.select([fd], [], [], 0)[0] == []
    assert store.flush() == store.max_physical_offset() == store.flushed_offset()
    assert select.select([fd], [], [], 5)[0] == [fd]
    assert store.take_events() == (store.flushed_offset(), [], None)
    store.set_growth_awaited(False)
    store.put("T", 0, b"x", b"")
    settle(store)
    assert select.select([fd], [], [], 0)[0] == []
    store.set_growth_awaited(True)
    assert select.select([fd], [], [], 0)[0] == [fd]
    assert store.take_events()[1] == [("T", 0, 2)]
    store.close()


def test_sync_flush_makes_each_put_durable_soon(tmp_path: Path) -> None:
    """Nobody has to ask: the flush thread syncs as soon as there is something."""
    store = started(tmp_path, flushDiskType="SYNC_FLUSH", flushIntervalCommitLog=60_000)
    for _ in range(20):
        _, physical, size, _, _ = store.put("T", 0, b"x", b"")
        end = time.monotonic() + 20
        while store.flushed_offset() < physical + size:
            assert time.monotonic() < end
            time.sleep(0.0005)
    settle(store)
    assert store.max_offset("T", 0) == 20
    store.close()


def test_settings_are_checked(tmp_path: Path) -> None:
    """A wrong setting is named, and the folder is not touched."""
    for more in ({"noSuchKey": 1}, {"mappedFileSizeCommitLog": "1_0"}, {"storeType": "x"}):
        with pytest.raises(StoreError) as caught:
            Store.open(config(tmp_path / "s", **more))
        kind, text = caught.value.args
        assert kind == "usage"
        assert next(iter(more)) in text
    assert not (tmp_path / "s").exists()


def test_close_is_once_and_final(tmp_path: Path) -> None:
    """After close the folder is free, and calls say that the store is closed."""
    store = started(tmp_path)
    assert store.writable() == (True, "")
    assert (tmp_path / "abort").read_text() == str(os.getpid())
    with pytest.raises(StoreError) as caught:
        Store.open(config(tmp_path))
    assert caught.value.args[0] == "locked"
    store.close()
    store.close()
    assert not (tmp_path / "abort").exists()
    with pytest.raises(StoreError) as caught:
        store.get("T", 0, 0, 1)
    assert caught.value.args[0] == "closed"
    assert store.writable() == (False, "the store is closed")
    started(tmp_path).close()


def test_puts_from_many_threads_lose_nothing(tmp_path: Path) -> None:
    """Every offset is given once and every message is read back under it."""
    store = started(tmp_path)
    seen: list[dict[int, bytes]] = [{} for _ in range(4)]

    def send(number: int) -> None:
        for index in range(500):
            body = f"{number}-{index}".encode()
            status, _, _, offset, _ = store.put("T", 0, body, b"")
            assert status == 0
            seen[number][offset] = body

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    settle(store)
    want = {offset: body for part in seen for offset, body in part.items()}
    assert sorted(want) == list(range(2000))
    at = 0
    while at < 2000:
        _, at_next, _, _, _, records, _ = store.get("T", 0, at, 32)
        for record in decode_records(records):
            assert record[13] == want[record[4]]
        at = at_next
    store.close()


def test_a_relative_folder_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is made where the process stands, however deep."""
    monkeypatch.chdir(tmp_path)
    for name in ("store", "a/b/store", "./c"):
        store = started(Path(name))
        assert store.put("T", 0, b"x", b"")[0] == 0
        store.close()
        assert (tmp_path / name / "commitlog").is_dir()


def test_checkpoints_come_by_themselves(tmp_path: Path) -> None:
    """Queues and index become durable while messages come in."""
    store = started(tmp_path, flushConsumeQueueThoroughInterval=10, flushIntervalCommitLog=5)
    end = time.monotonic() + 20
    checkpoint = tmp_path / "checkpoint"
    while int.from_bytes(checkpoint.read_bytes()[40:48], "big") < 20_000:
        assert store.put("T", 0, b"x" * 100, b"KEYS\x01k\x02")[0] == 0
        assert time.monotonic() < end
    assert (tmp_path / "consumequeue" / "T" / "0").is_dir()
    assert store.stats()["flushes"] > 0
    store.close()


def test_damage_is_an_error_with_a_kind(tmp_path: Path) -> None:
    """The text names the file and the offset, and nothing is cut."""
    store = started(tmp_path)
    for _ in range(3):
        store.put("T", 0, b"body", b"")
    store.close()
    log = tmp_path / "commitlog" / "00000000000000000000"
    whole = log.read_bytes()
    log.write_bytes(whole[:90] + b"#" + whole[91:])
    with pytest.raises(StoreError) as caught:
        Store.open(config(tmp_path))
    kind, text = caught.value.args
    assert kind == "corrupt"
    assert str(log) in text
    assert "offset 0" in text
    log.write_bytes(whole)
    again = Store.open(config(tmp_path))
    assert again.max_offset("T", 0) == 3
    again.close()


def test_a_busy_python_thread_does_not_slow_puts_down(tmp_path: Path) -> None:
    """A put keeps the GIL: giving it up would cost a switch interval of 5 ms each time (D6)."""
    store = started(tmp_path)
    stop = threading.Event()

    def spin() -> None:
        count = 0
        while not stop.is_set():
            count += 1

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        start = time.perf_counter()
        for _ in range(2_000):
            assert store.put("T", 0, b"x" * 100, b"")[0] == 0
        each = (time.perf_counter() - start) / 2_000
    finally:
        stop.set()
        thread.join()
    store.close()
    assert each < 0.001


def test_a_long_message_passes_whole(tmp_path: Path) -> None:
    """It is appended without the GIL, and every byte is there."""
    store = started(tmp_path, mappedFileSizeCommitLog=8 << 20)
    body = bytes(range(256)) * 16_384
    status, physical, size, _, _ = store.put("T", 0, memoryview(body), b"")
    assert status == 0
    settle(store)
    (record,) = decode_records(store.read(physical) or b"")
    assert (record[0], record[13]) == (size, body)
    store.close()


def test_many_messages_go_in_together_and_a_bad_one_stays_out(tmp_path: Path) -> None:
    store = started(tmp_path)

    def message(
        topic: str, body: bytes
    ) -> tuple[str, int, bytes, bytes, int, int, int, bytes, bytes, int, int, bool]:
        fixed = (7, 0, 1_700_000_000_000, HOST, HOST, 2, 0, False)
        return (topic, 1, body, b"KEYS\x01k\x02", *fixed)

    bodies = [b"one", b"two", b"three"]
    good = [message("T", body) for body in bodies]
    placed, stored = store.put_many([good[0], message("a/b", b"bad"), *good[1:]])
    assert [status for status, *_ in placed] == [0, 6, 0, 0]
    assert [offset for *_, offset in placed] == [0, -1, 1, 2]
    settle(store)
    found = decode_records(store.get("T", 1, 0, 32)[5])
    assert [(it[13], it[3], it[11], it[9]) for it in found] == [(b, 7, 2, stored) for b in bodies]
    assert [(it[5], it[0]) for it in found] == [place[1:3] for place in placed if not place[0]]
    assert store.put_many([]) == ([], 0)
    assert store.put_many([message("", b"bad")]) == ([(6, -1, 0, -1)], 0)
    # More than one file holds.
    large = [message("L", b"x" * 300_000) for _ in range(8)]
    assert [status for status, *_ in store.put_many(large)[0]] == [0] * 8
    store.close()
    assert {status for status, *_ in store.put_many(good)[0]} == {4}
