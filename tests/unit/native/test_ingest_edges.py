"""The native ingest at the edges of its rules: what is counted, added, refused and given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest_harness import HOST, codes, feed, ingest_and_store, send
from roquet.roquet_native import decode_frames, decode_records, encode_command

if TYPE_CHECKING:
    from pathlib import Path


def test_copies_that_nobody_can_prove_are_given_up_as_far_as_they_are_named(
    tmp_path: Path,
) -> None:
    with ingest_and_store(tmp_path, slave="wait", flushes=False) as (it, store):
        ends = []
        for opaque in (1, 2, 3):
            feed(it, 1, send(opaque), 1000)
            ends.append(store.max_physical_offset())
        assert it.lapse(ends[0] - 1, 1000) == []
        assert codes(it.lapse(ends[0], 1000)) == {1: 12}
        assert it.lapse(ends[1] - 1, 1000) == []
        assert codes(it.lapse(ends[2], 1000)) == {2: 12, 3: 12}
    # One that waits for its flush as well is answered with it.
    with ingest_and_store(tmp_path / "flush", slave="wait", flushes=True) as (it, store):
        feed(it, 1, send(1), 1000)
        assert it.lapse(store.max_physical_offset(), 1000) == []
        assert codes(it.flushed(1 << 40, 1000)) == {1: 12}


def test_what_the_log_does_not_take_is_left_to_the_processors_in_order(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        store.close()
        replies, frames, broken = feed(it, 1, send(1) + send(2) + send(3, flag=2), 1000)
        assert (replies, broken) == (b"", None)
        assert [frame[5] for frame in frames] == [1, 2, 3]
        counters = it.counters()
        assert (counters["returned"], counters["sends"], counters["waiting"]) == (3, 0, 0)
        assert it.take_stored() == []


def test_body_longer_than_allowed_is_left_to_the_processors(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, _):
        for size, taken in ((0, False), (1, True), (4095, True), (4096, True), (4097, False)):
            # Of a connection of its own: what follows a frame of the processors waits for them.
            it.open(size + 2, HOST)
            replies, frames, broken = feed(it, size + 2, send(1, body=b"x" * size), 1000)
            assert (bool(replies), len(frames), broken) == (taken, int(not taken), None), size


def test_bytes_counted_are_those_in_the_log(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        for bodies in ([b"a"], [b"abc" * 100, b"de", b"f"]):
            before = store.max_physical_offset()
            data = b"".join(send(n, body=body) for n, body in enumerate(bodies))
            assert feed(it, 1, data, 1000)[1:] == ([], None)
            grown = store.max_physical_offset() - before
            assert grown > 91 * len(bodies)
            assert [line[:4] for line in it.take_stored()] == [("T", 1, len(bodies), grown)]


def test_flags_of_a_topic_are_added_to_those_of_its_messages(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        for added, flag, stored in ((0, 0, 0), (0, 2, 2), (2, 0, 2), (2, 2, 2), (2, 1, 3)):
            it.set_topic("T", 4, 4, added, 0)
            begin = store.max_physical_offset()
            (frame,), _ = decode_frames(send(1))
            ext = {**(frame[7] or {}), "f": str(flag)}
            data = encode_command(0, 310, 0, "JAVA", 513, 1, None, ext, b"body")
            assert feed(it, 1, data, 1000)[1:] == ([], None)
            (record,) = decode_records(store.read(begin) or b"")
            assert record[6] == stored, (added, flag)
