"""Batches on the fast path: glued together, answered with every id, or left to the processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest_harness import HOST, feed, ingest, ingest_and_store, send
from roquet.protocol.messages.batch import encode as encode_batch
from roquet.protocol.messages.message_id import parse_offset_id
from roquet.roquet_native import decode_frames, decode_records, encode_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def batch(
    opaque: int,
    elements: Sequence[tuple[int, bytes, bytes]],
    *,
    properties: str = "UNIQ_KEY\x01B\x02",
    code: int = 320,
    flag: int = 0,
) -> bytes:
    ext = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1700000000000",
        "h": "9",
        "i": properties,
        "m": "true",
    }
    body = encode_batch(elements)
    return encode_command(0, code, flag, "JAVA", 513, opaque, None, ext, body)


def test_a_batch_is_stored_behind_what_came_before_it(tmp_path: Path) -> None:
    elements = [(1, b"one", b"k\x01v\x02"), (2, b"", b""), (3, b"three", b"WAIT\x01false")]
    with ingest_and_store(tmp_path) as (it, store):
        before = store.max_physical_offset()
        replies, frames, broken = feed(it, 1, send(1) + batch(2, elements) + send(3), 1000)
        assert (frames, broken) == ([], None)
        assert [(frame[5], frame[1]) for frame in decode_frames(replies)[0]] == [
            (1, 0),
            (2, 0),
            (3, 0),
        ]
        ext = decode_frames(replies)[0][1][7]
        assert ext is not None
        assert (ext["queueId"], ext["queueOffset"], ext["transactionId"]) == ("1", "1", "B")
        places = [parse_offset_id(text) for text in ext["msgId"].split(",")]
        assert [host for host, _ in places] == [HOST] * 3
        stored = [decode_records(store.read(at) or b"")[0] for _, at in places]
        assert [(record[3], record[13], record[15]) for record in stored] == [
            (flag, body, properties) for flag, body, properties in elements
        ]
        assert it.counters()["sends"] == 3
        grown = store.max_physical_offset() - before
        assert it.take_stored()[0][:4] == ("T", 1, 5, grown)


def test_a_batch_without_a_key_of_its_own_says_none(tmp_path: Path) -> None:
    with ingest(tmp_path, flushes=False) as it:
        one = [(0, b"x", b"")]
        for properties in ("", "WAIT\x01false\x02"):
            replies, frames, _ = feed(it, 1, batch(1, one, properties=properties), 1000)
            assert frames == []
            ext = decode_frames(replies)[0][0][7]
            assert ext is not None
            assert "transactionId" not in ext
        # A message of its own without one gets it from the processors.
        assert len(feed(it, 1, send(2).replace(b"UNIQ_KEY", b"UNIQ_KEx"), 1000)[1]) == 1


def test_a_batch_waits_for_the_flush_of_its_last_message(tmp_path: Path) -> None:
    with ingest(tmp_path, parked_max=2) as it:
        elements = [(0, b"x" * 100, b""), (0, b"y" * 100, b"")]
        assert feed(it, 1, batch(1, elements), 1000)[0] == b""
        # 91 bytes of a record without body, topic and properties.
        begin, size = 91 + len("Warm"), 91 + 100 + len("T")
        assert it.flushed(begin + 2 * size - 1, 0) == []
        [(key, data)] = it.flushed(begin + 2 * size, 0)
        [frame] = decode_frames(data)[0]
        assert (key, frame[5], frame[1]) == (1, 1, 0)
        assert frame[7] is not None
        assert frame[7]["msgId"].count(",") == 1
        # A batch is one answer, and one place among those that wait.
        waiting = b"".join(batch(opaque, elements) for opaque in (2, 3, 4))
        refused = decode_frames(feed(it, 1, waiting, 1000)[0])[0]
        assert [(frame[5], frame[1]) for frame in refused] == [(4, 2)]


def test_what_is_odd_about_a_batch_is_for_the_processors(tmp_path: Path) -> None:
    good = (0, b"x", b"k\x01v\x02")
    whole = batch(1, [good, good])
    cut = encode_command(
        0, 320, 0, "JAVA", 513, 1, None, {**_ext(whole), "m": "true"}, encode_batch([good])[:-1]
    )
    odd = [
        batch(1, [good, (0, b"x", b"DELAY\x013\x02")]),
        batch(1, [good, (0, b"x", b"DELAY\x010\x02")]),
        batch(1, [(0, b"x", b"TRAN_MSG\x01true\x02"), good]),
        batch(1, [(0, b"x", b"INNER_NUM\x012\x02")]),
        batch(1, [good], properties="MSG_REGION\x01mine\x02"),
        batch(1, [good] * 60_000),
        cut,
    ]
    for frame in odd:
        folder = tmp_path / str(odd.index(frame))
        with ingest_and_store(folder) as (it, store):
            end = store.max_physical_offset()
            replies, frames, _ = feed(it, 1, frame, 1000)
            assert (replies, [found[1] for found in frames]) == (b"", [320])
            assert store.max_physical_offset() == end, "nothing of it is stored"
            assert it.counters()["sends"] == 0


def test_a_frame_of_any_send_code_may_be_a_batch_or_none(tmp_path: Path) -> None:
    with ingest(tmp_path, flushes=False) as it:
        one = [(5, b"x", b"")]
        replies, frames, _ = feed(it, 1, batch(1, one, code=310) + batch(2, one, flag=2), 1000)
        assert frames == []
        assert [frame[5] for frame in decode_frames(replies)[0]] == [1]
        alone = encode_command(0, 320, 0, "JAVA", 513, 3, None, _ext(send(3)), b"whole")
        replies, frames, _ = feed(it, 1, alone, 1000)
        assert (len(replies) > 0, frames) == (True, [])
        assert it.counters()["sends"] == 3


def _ext(frame: bytes) -> dict[str, str]:
    ext = decode_frames(frame)[0][0][7]
    assert ext is not None
    return ext
