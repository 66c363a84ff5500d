"""The native ingest over a real store: what is answered, what comes out, what waits for a flush."""

from __future__ import annotations

import contextlib
import functools
import select
import socket
from typing import TYPE_CHECKING

from ingest_harness import HEARTBEAT, HOST, answers, codes, feed, ingest, ingest_and_store, send
from roquet.protocol.java_hash import java_hash
from roquet.protocol.sql92.compiler import compile_sql
from roquet.roquet_native import Filter, decode_frames, decode_records, encode_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def test_answers_wait_for_their_flush_and_no_longer(tmp_path: Path) -> None:
    with ingest(tmp_path, sync=True) as it:
        replies, frames, broken = feed(it, 1, send(1) + send(2), 1000)
        assert (frames, broken) == ([], None)
        late = it.flushed(1 << 40, 0)
        assert it.counters()["waiting"] == 0
        told = [answers(replies), *(answers(data) for _, data in late)]
        assert {opaque: code for one in told for opaque, (code, _) in one.items()} == {1: 0, 2: 0}
        assert [key for key, _ in late] in ([1], [])


def test_send_with_a_property_that_is_handed_down_as_special_is_left_to_the_services(
    tmp_path: Path,
) -> None:
    with ingest_and_store(tmp_path, special=["hooked"]) as (it, store):
        replies, frames, broken = feed(
            it, 1, send(1) + send(2, more="hooked\x01x\x02") + send(3), 1000
        )
        assert (codes([(1, replies)]), len(frames), broken) == ({1: 0}, 2, None)
        assert store.max_physical_offset() > 0


def test_a_flush_releases_what_it_covers_in_order(tmp_path: Path) -> None:
    with ingest(tmp_path) as it:
        it.open(2, HOST)
        ends = []
        for key, opaque in ((1, 1), (2, 2), (1, 3)):
            assert feed(it, key, send(opaque), 1000)[0] == b""
            ends.append(it.counters()["waiting"])
        assert ends == [1, 2, 3]
        assert it.flushed(10, 0) == []
        size = (
            91 + len("body") + len("T") + len("UNIQ_KEY U1 ") + len("MSG_REGION R TRACE_ON true ")
        )
        size += len("CLUSTER C ")
        released = it.flushed(91 + len("Warm") + 2 * size, 0)
        assert [(key, answers(data)) for key, data in released] == [
            (1, {1: (0, None)}),
            (2, {2: (0, None)}),
        ]
        assert it.counters()["parked"] == 3


def test_a_sender_who_is_alone_is_synced_for_at_once(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path, flushes=True, here=True) as (it, store):
        it.open(2, HOST)
        assert feed(it, 1, send(1), 1000)[0] == b""
        assert codes(it.flushed(store.flush(), 1000)) == {1: 0}
        replies, _, _ = feed(it, 1, send(2) + send(3), 1000)
        assert answers(replies) == {2: (0, None), 3: (0, None)}
        assert store.flushed_offset() == store.max_physical_offset()
        for key, opaque in ((2, 4), (1, 5)):
            assert feed(it, key, send(opaque), 1000)[0] == b"", "two of them share a sync"
        assert store.flushed_offset() < store.max_physical_offset()
        assert codes(it.flushed(store.flush(), 1000)) == {4: 0, 5: 0}
        assert feed(it, 1, send(6), 1000)[0] == b"", "and may do so again"
        assert it.counters()["synced"] == 1


def test_late_failed_and_orphaned_answers(tmp_path: Path) -> None:
    with ingest(tmp_path) as it:
        feed(it, 1, send(1), 1000)
        assert it.expire(1099) == []
        ((key, data),) = it.expire(1100)
        assert (key, answers(data)) == (1, {1: (10, None)})
        feed(it, 1, send(2) + send(3), 2000)
        ((key, data),) = it.fail("the disk said no", 0)
        assert answers(data) == {2: (1, "the disk said no"), 3: (1, "the disk said no")}
        feed(it, 1, send(4), 3000)
        it.close(1)
        assert it.flushed(1 << 40, 0) == []
        assert it.counters()["waiting"] == 0


def test_a_copy_on_a_slave_is_waited_for_beside_the_flush(tmp_path: Path) -> None:
    with ingest(tmp_path, slave="wait") as it:
        feed(it, 1, send(1) + send(2), 1000)
        assert it.flushed(1 << 40, 0) == []
        assert codes(it.set_replicated(1 << 40, 0)) == {1: 0, 2: 0}
        feed(it, 1, send(3), 1000)  # Copied already, as it seems; both marks only ever go on.
        assert codes(it.set_replicated(0, 0)) == {3: 0}
        assert it.counters()["waiting"] == 0


def test_a_late_copy_is_told_and_so_is_a_late_flush(tmp_path: Path) -> None:
    with ingest(tmp_path, slave="wait") as it:
        feed(it, 1, send(1), 1000)
        assert it.expire(1060) == []  # The flush is still waited for.
        assert codes(it.flushed(1 << 40, 0)) == {1: 12}
    with ingest(tmp_path / "late", slave="wait") as it:
        feed(it, 1, send(1), 1000)
        assert codes(it.expire(1100)) == {1: 12}
        feed(it, 1, send(2), 2000)
        assert it.set_replicated(1 << 40, 0) == []
        assert codes(it.expire(2100)) == {2: 10}


def test_without_flush_only_the_copy_counts(tmp_path: Path) -> None:
    with ingest(tmp_path, slave="wait", flushes=False) as it:
        replies, _, _ = feed(it, 1, send(1) + send(2, more="WAIT\x01false\x02"), 1000)
        assert answers(replies) == {2: (0, None)}
        assert codes(it.expire(1060)) == {1: 12}
        feed(it, 1, send(3), 1000)
        assert codes(it.fail("gone", 0)) == {3: 1}


def test_a_missing_slave_is_told_at_once_or_with_the_flush(tmp_path: Path) -> None:
    with ingest(tmp_path, slave="lack", flushes=False) as it:
        data = send(1) + send(2, more="WAIT\x01false\x02")
        assert answers(feed(it, 1, data, 1000)[0]) == {1: (11, None), 2: (0, None)}
    with ingest(tmp_path / "flush", slave="lack") as it:
        assert feed(it, 1, send(1), 1000)[0] == b""
        assert codes(it.flushed(1 << 40, 0)) == {1: 11}


def test_who_does_not_wait_is_not_parked(tmp_path: Path) -> None:
    with ingest(tmp_path) as it:
        data = send(1, more="WAIT\x01false\x02") + send(2, flag=2)
        replies, frames, _ = feed(it, 1, data, 1000)
        assert (answers(replies), frames) == ({1: (0, None)}, [])
        assert it.counters()["waiting"] == 0
        ((topic, queue_id, messages, _, sends, _),) = it.take_stored()
        assert (topic, queue_id, messages, sends) == ("T", 1, 2, 2)


def test_a_delayed_message_waits_elsewhere_and_counts_there(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        replies, frames, _ = feed(it, 1, send(1, more="DELAY\x013\x02"), 1000)
        (answer,), _ = decode_frames(replies)
        assert (answer[1], frames) == (0, [])
        assert (answer[7] or {})["queueId"] == "1"
        assert [line[:3] for line in it.take_stored()] == [("Later", 1, 1)]
        arrival(lambda: store.max_offset("Later", 2), 1)
        ((physical, size, _),) = store.units("Later", 2, 0, 1)
        (record,) = decode_records(store.read(physical, size) or b"")
        assert (record[2], record[14]) == (2, "Later")
        assert record[15].endswith(b"CLUSTER\x01C\x02REAL_TOPIC\x01T\x02REAL_QID\x011\x02")
        assert b"DELAY\x013\x02" in record[15]
        odd = [
            send(n, more=f"DELAY\x01{text}\x02") for n, text in enumerate(("19", "0", "03", "x"))
        ]
        odd.append(send(9, more="DELAY\x012\x02REAL_QID\x017\x02"))
        for frame in odd:
            assert len(feed(it, 1, frame, 1000)[1]) == 1
            it.idle(1)
        assert store.max_offset("T", 1) == 0


def test_a_half_message_waits_elsewhere_and_is_counted_by_its_topic(tmp_path: Path) -> None:
    half = "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"
    with ingest_and_store(tmp_path) as (it, store):
        named = send(2, more=half + "__transactionId__\x01mine\x02")
        replies, frames, _ = feed(it, 1, send(1, more=half) + named, 1000)
        (answer, _), _ = decode_frames(replies)
        assert (answer[1], frames) == (0, [])
        assert ((answer[7] or {})["queueId"], (answer[7] or {})["transactionId"]) == ("1", "U1")
        assert it.take_halves() == {"T": 2}
        assert it.take_halves() == {}
        assert [line[:3] for line in it.take_stored()] == [("Half", 1, 2)]
        arrival(lambda: store.max_offset("Half", 0), 2)
        found = [
            decode_records(store.read(physical, size) or b"")[0]
            for physical, size, _ in store.units("Half", 0, 0, 2)
        ]
        real = b"REAL_TOPIC\x01T\x02REAL_QID\x011\x02"
        assert found[0][15].endswith(b"CLUSTER\x01C\x02__transactionId__\x01U1\x02" + real)
        assert found[1][15].endswith(b"CLUSTER\x01C\x02" + real)
        assert [(record[2], record[14]) for record in found] == [(0, "Half")] * 2
        for number, odd in enumerate(
            ("TRAN_MSG\x01true\x02", half + "DELAY\x011\x02", half + "REAL_QID\x011\x02")
        ):
            assert len(feed(it, 1, send(number, more=odd), 1000)[1]) == 1
            it.idle(1)
        assert it.counters()["halves"] == 2
        assert store.max_offset("T", 1) == 0


def test_beyond_the_bound_sends_are_refused(tmp_path: Path) -> None:
    with ingest(tmp_path, parked_max=2) as it:
        data = b"".join(send(n) for n in range(4)) + send(4, more="WAIT\x01false\x02")
        replies, frames, _ = feed(it, 1, data, 1000)
        assert frames == []
        assert answers(replies) == {2: (2, "too busy"), 3: (2, "too busy"), 4: (0, None)}
        assert (it.counters()["waiting"], it.counters()["refused"]) == (2, 2)


def test_nothing_overtakes_a_send_that_was_not_admitted(tmp_path: Path) -> None:
    with ingest(tmp_path) as it:
        data = send(1) + HEARTBEAT + send(2, topic="unknown") + send(3)
        _, frames, _ = feed(it, 1, data, 1000)
        assert [frame[5] for frame in frames] == [900, 2, 3]
        assert [frame[5] for frame in feed(it, 1, send(4), 1000)[1]] == [4]
        it.idle(1)
        assert feed(it, 1, send(5), 1000)[1] == []
        assert it.counters()["sends"] == 2


def test_what_came_before_a_broken_frame_is_done(tmp_path: Path) -> None:
    with ingest(tmp_path) as it:
        _, frames, broken = feed(it, 1, send(1) + HEARTBEAT + b"\xff\xff\xff\xff", 1000)
        assert broken is not None
        assert "frame length is -1" in broken
        assert [frame[5] for frame in frames] == [900]
        assert it.counters()["waiting"] == 1


def test_any_split_is_the_same(tmp_path: Path) -> None:
    with ingest(tmp_path, parked_max=1000) as it:
        data = send(1) + send(2)
        for cut in range(len(data)):
            first = feed(it, 1, memoryview(data)[:cut], 1000)
            second = feed(it, 1, memoryview(data)[cut:], 1000)
            assert first[1] == second[1] == []
            assert it.held(1) == 0
        assert it.counters()["sends"] == 2 * len(data)


def pull(opaque: int, *, code: int = 11, encoding: int = 0, **changes: str) -> bytes:
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "1",
        "commitOffset": "9",
        "suspendTimeoutMillis": "0",
        "subVersion": "7",
        **changes,
    }
    return encode_command(encoding, code, 0, "GO", 513, opaque, None, ext, b"")


def arrival(store_end: Callable[[], int], end: int) -> None:
    """Wait for the dispatcher, which is a thread of its own."""
    for _ in range(1000):
        if store_end() >= end:
            return
        select.select([], [], [], 0.01)
    raise AssertionError("the dispatcher does not keep up")


def test_a_pull_gets_the_records_and_says_what_to_note(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, None, None), ("Tagged", 7, [1], None)])
        feed(it, 1, send(1), 1000)
        arrival(lambda: store.max_offset("T", 1), 1)
        replies, _, _ = feed(it, 1, pull(5, encoding=1), 1000)
        ((_, code, _, _, _, opaque, remark, _, body),), _ = decode_frames(replies)
        assert (code, opaque, remark) == (0, 5, "FOUND")
        assert [record[13] for record in decode_records(body)] == [b"body"]
        ((*where, sums),) = it.take_pulled()
        assert (where, sums[:8]) == (["g", "T", 1], (0, 1, 1, 1, 0, 1, len(body), 0))
        assert it.take_pulled() == []
        assert [frame[5] for frame in feed(it, 1, pull(6, subVersion="8"), 1000)[1]] == [6]
        it.drop_group("g")
        assert [frame[5] for frame in feed(it, 1, pull(7), 1000)[1]] == [7]


def test_what_finds_nothing_is_answered_as_well(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, [1], None)])
        feed(it, 1, send(1), 1000)
        arrival(lambda: store.max_offset("T", 1), 1)
        asked = [("1", 19), ("2", 21), ("0", 20)]
        for opaque, (offset, code) in enumerate(asked):
            replies = feed(it, 1, pull(opaque, sysFlag="0", queueOffset=offset), 1000)[0]
            assert answers(replies)[opaque][0] == code
        assert answers(feed(it, 1, pull(9, sysFlag="0", queueId="2"), 1000)[0]) == {
            9: (19, "NO_MESSAGE_IN_QUEUE")
        }
        sums = {queue_id: sums for _, _, queue_id, sums in it.take_pulled()}
        assert sums == {1: (0, None, 0, 0, 3, 0, 0, 0, 0), 2: (0, None, 0, 0, 1, 0, 0, 0, 0)}


def waiting_pull(opaque: int, *, code: int = 11, queue_id: str = "1") -> bytes:
    return pull(opaque, code=code, queueId=queue_id, sysFlag="3", suspendTimeoutMillis="20000")


def test_a_pull_waits_for_its_message(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, None, None)])
        waiting = waiting_pull(1) + waiting_pull(2, code=361)
        assert feed(it, 1, waiting, 1000)[:2] == (b"", [])
        assert it.held_pulls() == 2
        assert it.take_pulled() == [("g", "T", 1, (0, 0, 2, 0, 0, 0, 0, 0, 0))]
        feed(it, 1, send(1), 1000)
        arrival(lambda: store.max_offset("T", 1), 1)
        assert not it.arrived("T", 0, 5)
        assert it.arrived("T", 1, 1)
        out, left, more = it.serve(2000)
        assert (left, more, it.held_pulls()) == ([], False, 0)
        assert [(key, answers(data)) for key, data in out] == [
            (1, {1: (0, "FOUND"), 2: (0, "FOUND")})
        ]
        ((_, _, _, sums),) = it.take_pulled()
        assert sums[:6] == (None, None, 0, 2, 0, 2)


def test_answers_that_are_due_together_are_one_write_for_each_connection(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, None, None)])
        it.open(2, HOST)
        # Queue by queue the two take turns.
        for opaque, (key, where) in enumerate([(1, "0"), (2, "1"), (1, "1")], 1):
            assert feed(it, key, waiting_pull(opaque, queue_id=where), 1000)[0] == b""
        for queue_id in (0, 1):
            store.put("T", queue_id, b"body", b"")
        for queue_id in (0, 1):
            arrival(functools.partial(store.max_offset, "T", queue_id), 1)
            it.arrived("T", queue_id, 1)
        out, left, more = it.serve(2000)
        assert (left, more) == ([], False)
        assert {key: set(answers(data)) for key, data in out} == {1: {1, 3}, 2: {2}}
        assert len(out) == 2


def test_a_tag_decides_which_message_wakes_it(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, [java_hash("B")], None)])
        feed(it, 1, waiting_pull(1), 1000)
        feed(it, 1, send(1, more="TAGS\x01A\x02"), 1000)
        arrival(lambda: store.max_offset("T", 1), 1)
        assert it.arrived("T", 1, 1)
        assert it.serve(2000) == ([], [], False)
        assert it.held_pulls() == 1
        feed(it, 1, send(2, more="TAGS\x01B\x02"), 1000)
        arrival(lambda: store.max_offset("T", 1), 2)
        assert it.arrived("T", 1, 2)
        ((_, data),), _, _ = it.serve(2000)
        ((_, code, _, _, _, opaque, _, ext, body),), _ = decode_frames(data)
        assert (code, opaque, ext["nextBeginOffset"] if ext else "") == (0, 1, "2")
        assert len(decode_records(body)) == 1


def test_a_filter_decides_what_is_given_and_what_wakes_it(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [("T", 7, None, Filter(compile_sql("price > 2")))])
        for number, price in enumerate((1, 3, 2)):
            feed(it, 1, send(number, more=f"price\x01{price}\x02"), 1000)
        arrival(lambda: store.max_offset("T", 1), 3)
        asked = pull(5, sysFlag="0", maxMsgNums="32")
        ((_, code, _, _, _, _, _, ext, body),), _ = decode_frames(feed(it, 1, asked, 1000)[0])
        assert (code, ext["nextBeginOffset"] if ext else "") == (0, "3")
        assert [record[4] for record in decode_records(body)] == [1]
        waiting = pull(6, sysFlag="2", queueOffset="3", suspendTimeoutMillis="20000")
        assert feed(it, 1, waiting, 1000)[:2] == (b"", [])
        for number, price in enumerate((2, 9), 3):
            feed(it, 1, send(number, more=f"price\x01{price}\x02"), 1000)
            arrival(functools.partial(store.max_offset, "T", 1), number + 1)
            it.arrived("T", 1, number + 1)
            out = it.serve(2000)[0]
            assert [answers(data) for _, data in out] == ([{6: (0, "FOUND")}] if price > 2 else [])


def test_an_expression_that_a_pull_brings_must_be_known(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, store):
        it.set_group("g", 0, [])
        for number, tag in enumerate("AB"):
            feed(it, 1, send(number, more=f"TAGS\x01{tag}\x02"), 1000)
        arrival(lambda: store.max_offset("T", 1), 2)
        tagged = pull(5, sysFlag="4", subscription="B", maxMsgNums="32")
        filtered = pull(
            6, sysFlag="4", maxMsgNums="32", subscription="TAGS = 'A'", expressionType="SQL92"
        )
        assert [frame[5] for frame in feed(it, 1, tagged + filtered, 1000)[1]] == [5, 6]
        it.idle(1)
        it.set_expression("TAG", "B", [java_hash("B")], None)
        it.set_expression("SQL92", "TAGS = 'A'", None, Filter(compile_sql("TAGS = 'A'")))
        replies, passed, _ = feed(it, 1, tagged + filtered, 1000)
        frames, _ = decode_frames(replies)
        found = {frame[5]: [record[4] for record in decode_records(frame[8])] for frame in frames}
        assert (found, passed) == ({5: [1], 6: [0]}, [])
        # The same text is another thing in the other language.
        assert [f[5] for f in feed(it, 1, pull(7, sysFlag="4", subscription="TAGS = 'A'"), 1000)[1]]
        it.idle(1)
        it.drop_expressions()
        assert [frame[5] for frame in feed(it, 1, tagged, 1000)[1]] == [5]


def test_the_time_of_a_held_pull_ends(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, _):
        it.set_group("g", 0, [("T", 7, None, None)])
        feed(it, 1, waiting_pull(1), 1000)
        assert it.expire(18_999) == []
        assert it.serve(2000) == ([], [], False)
        assert it.expire(23_001) == []
        ((_, data),), _, _ = it.serve(2000)
        assert answers(data) == {1: (19, "NO_MESSAGE_IN_QUEUE")}
        ((_, _, _, sums),) = it.take_pulled()
        assert sums[3:5] == (0, 1)


def test_held_pulls_are_bounded_and_go_with_their_connection(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, _):
        it.set_group("g", 0, [("T", 7, None, None)])
        it.open(2, HOST)
        it.set_held_beside(1)
        feed(it, 2, waiting_pull(1), 1000)
        replies, _, _ = feed(it, 1, waiting_pull(2) + waiting_pull(3), 1000)
        assert answers(replies) == {3: (19, "NO_MESSAGE_IN_QUEUE")}
        assert it.held_pulls() == 2
        it.close(1)
        assert it.held_pulls() == 1
        it.expire(1 << 40)
        ((key, _),), _, _ = it.serve(2000)
        assert key == 2


def test_what_is_no_longer_admitted_is_for_the_processors(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path) as (it, _):
        it.set_group("g", 0, [("T", 7, None, None)])
        feed(it, 1, waiting_pull(1), 1000)
        it.set_topic("T", 4, 0, 0, 0)
        it.expire(1 << 40)
        out, ((key, frame),), more = it.serve(2000)
        assert ([data for _, data in out if data], key, frame[5], more) == ([], 1, 1, False)
        assert it.held_pulls() == 0


def test_answers_go_to_the_socket_as_far_as_it_takes_them(tmp_path: Path) -> None:
    with ingest_and_store(tmp_path, flushes=False) as (it, store), pair() as (ours, theirs):
        it.set_group("g", 0, [("T", 7, None, None)])
        for number in range(40):
            assert it.feed(1, send(number, body=b"b" * 4000), 1000, ours.fileno()) == b""
        assert len(answers(theirs.recv(1 << 16))) == 40
        arrival(lambda: store.max_offset("T", 1), 40)
        ours.setblocking(False)
        asked = pull(50, maxMsgNums="32")
        rest = b""
        got = b""
        for _ in range(100):
            left = it.feed(1, asked, 1000, ours.fileno())
            assert isinstance(left, bytes)
            rest += left
            if left:
                break
        while True:
            try:
                got += theirs.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
        frames, used = decode_frames(got + rest)
        assert used == len(got + rest)
        assert rest
        assert {len(decode_records(frame[8])) for frame in frames} == {32}


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs
