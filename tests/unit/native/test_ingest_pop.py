"""Acknowledgements of popped messages that the native ingest takes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from ingest_harness import HOST, SEND_EXT, answers, feed, ingest_and_store, send
from roquet.protocol.pop.batch_ack import BatchAck, BatchAckBody
from roquet.roquet_native import decode_frames, decode_records, encode_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.roquet_native import Ingest, Store

NOW = 1_700_000_000_000
WHEEL = "rmq_sys_wheel_timer"
REVIVE = "rmq_sys_REVIVE_LOG_c"
Pop = tuple[str, str, int, int, int, bool, bool, bool, bool, int]
PLAIN = ("broker-a", REVIVE, 8, 100_000, 1000, False, True, False, False, -1)
MERGES = ("broker-a", REVIVE, 8, 100_000, 1000, True, True, False, False, -1)


def ack(
    opaque: int, fields: dict[str, str] | None = None, *, flag: int = 0, body: bytes = b""
) -> bytes:
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "extraInfo": f"0 {NOW} 60000 2 0 broker-a 1 0",
        "offset": "0",
        **(fields or {}),
    }
    return encode_command(0, 200_051, flag, "JAVA", 513, opaque, None, ext, body)


@contextlib.contextmanager
def settling(
    folder: Path, pop: Pop | None = PLAIN, *, sync: bool = False, slave: bool = False
) -> Iterator[tuple[Ingest, Store]]:
    """An ingest that takes acknowledgements of queues 0 to 3 of T; queue 1 has one message."""
    with ingest_and_store(folder) as (it, store):
        it.set_state(
            sends=True,
            pulls=True,
            sync_flush=sync,
            sync_here=False,
            flush_timeout_ms=100,
            waits_for_slave=slave,
            lacks_slave=False,
            slave_timeout_ms=60,
            body_max=4096,
            batch_max=1000,
            store_host=HOST,
            stamps=[],
            special=[],
            send_ext=SEND_EXT,
            encoding=0,
            version=513,
            parked_max=10,
            busy_remark="too busy",
            lite_pulls=True,
            holds_max=3,
            hold_ms=None,
            hold_ms_max=60_000,
            delays=None,
            halves=None,
            barrier=[200_051],
            pop=pop,
        )
        it.set_topic("T", 4, 4, 0, 0, 4)
        it.set_group("g", 0, [])
        store.put("T", 1, b"body", b"")
        until = time.monotonic() + 30
        while store.max_offset("T", 1) < 1:
            assert time.monotonic() < until, "the dispatcher does not keep up"
            time.sleep(0.001)
        yield it, store


def stored(folder: Path) -> list[tuple[str, int, dict[str, object], str]]:
    """Return topic, queue, body and properties of the records of POP in the log."""
    (file,) = [it for it in (folder / "commitlog").iterdir() if it.stat().st_blocks]
    data, end = file.read_bytes(), 0
    while data[end + 4 : end + 7] == b"\xda\xa3\x20":
        end += int.from_bytes(data[end : end + 4], "big")
    found = decode_records(data[:end])
    return [
        (record[14], record[3], json.loads(record[13]), record[15].decode())
        for record in found
        if b"TIMER_DELIVER_MS" in record[15]
    ]


def test_acks_of_one_read_are_stored_and_answered(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, _):
        burst = (
            ack(1) + send(2) + ack(3, {"offset": "1", "extraInfo": f"1 {NOW} 1 0 0 broker-a 1 9"})
        )
        replies, frames, broken = feed(it, 1, burst, NOW + 10)
        assert (frames, broken) == ([], None)
        assert {opaque: code for opaque, (code, _) in answers(replies).items()} == dict.fromkeys(
            (1, 2, 3), 0
        )
        assert it.counters()["acks"] == 2
    waiting, due = stored(tmp_path)
    assert waiting[:3] == (
        WHEEL,
        0,
        {"ao": 0, "bn": "broker-a", "c": "g", "pt": NOW, "q": 1, "so": 0, "t": "T"},
    )
    step = (NOW + 60_000) - 1000
    assert f"TIMER_OUT_MS\x01{step}\x02REAL_TOPIC\x01{REVIVE}\x02REAL_QID\x012\x02" in waiting[3]
    # Its time has come: it does not wait.
    assert due[:2] == (REVIVE, 0)
    assert "TIMER_OUT_MS" not in due[3]


@pytest.mark.parametrize(
    "fields",
    [
        {"topic": "Unknown"},
        {"queueId": "4"},
        {"queueId": "-1"},
        {"offset": "2"},
        {"offset": "-1"},
        {"liteTopic": "light"},
        {"consumerGroup": ""},
        {"consumerGroup": 'a"'},
        {"extraInfo": f"0 {NOW} 60000 2 0 broker-b 1 0"},
        {"extraInfo": f"0 {NOW} 60000 8 0 broker-a 1 0"},
        {"extraInfo": f"0 {NOW} 60000 999 0 broker-a 1 0"},
        {"extraInfo": f"0 {NOW} 100001 2 0 broker-a 1 0"},
        {"extraInfo": f"0 {NOW} -1 2 0 broker-a 1 0"},
        {"extraInfo": f"0 {NOW} 60000 2 0 broker-a 1"},
    ],
    ids=str,
)
def test_an_ack_that_is_not_plain_is_for_the_processors(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    with settling(tmp_path) as (it, _):
        replies, frames, _ = feed(it, 1, ack(1, fields) + ack(2), NOW)
        assert (replies, [frame[5] for frame in frames]) == (b"", [1, 2])
        # Nothing overtakes it until the processors are done.
        assert [frame[5] for frame in feed(it, 1, ack(3), NOW)[1]] == [3]
        it.idle(1)
        assert list(answers(feed(it, 1, ack(4), NOW)[0])) == [4]
    assert len(stored(tmp_path)) == 1


def test_an_ack_that_nobody_waits_for_is_for_the_processors(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, _):
        assert len(feed(it, 1, ack(1, flag=2), NOW)[1]) == 1


def test_an_ack_with_a_body_is_for_the_processors_who_know_its_limit(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, _):
        assert len(feed(it, 1, ack(1, body=b"x"), NOW)[1]) == 1


def test_without_a_state_of_pop_every_ack_is_for_the_processors(tmp_path: Path) -> None:
    with settling(tmp_path, None) as (it, _):
        assert len(feed(it, 1, ack(1), NOW)[1]) == 1
    (tmp_path / "b").mkdir()
    with settling(tmp_path / "b") as (it, _):
        it.suspend()
        assert len(feed(it, 1, ack(1), NOW)[1]) == 1


def test_names_that_need_an_escape_are_for_the_processors(tmp_path: Path) -> None:
    with settling(tmp_path, ('broker"a', *PLAIN[1:])) as (it, _):
        assert len(feed(it, 1, ack(1), NOW)[1]) == 1


def test_acks_that_the_log_does_not_take_are_for_the_processors(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, store):
        store.close()
        replies, frames, _ = feed(it, 1, ack(1) + ack(2), NOW)
        assert (replies, [frame[5] for frame in frames]) == (b"", [1, 2])
        assert it.counters()["returned"] == 2


def test_acks_for_memory_are_returned_by_checkpoint_and_answered_later(tmp_path: Path) -> None:
    with settling(tmp_path, MERGES) as (it, _):
        other = {"extraInfo": f"1 {NOW} 60000 2 0 broker-a 1 1", "offset": "1"}
        burst = ack(1) + ack(2) + ack(3, other)
        came = it.feed(1, burst, NOW)
        assert len(came) == 5
        replies, frames, broken, merges, pops = came
        assert (replies, frames, broken, pops) == (b"", [], None, [])
        assert merges == [
            (("T", "g", 1, 0, NOW), [0, 0], [1, 2], ack(1) + ack(2), False),
            (("T", "g", 1, 1, NOW), [1], [3], ack(3, other), False),
        ]
        assert it.counters()["acks"] == 0
        written = answers(it.merged([1, 3], False, 2_000))
        assert {opaque: code for opaque, (code, _) in written.items()} == {1: 0, 3: 0}
        assert it.counters()["acks"] == 2
        ((request, response, _, _, counts, took_us),) = it.take_answered()
        assert (request, response, sum(counts), took_us) == (200_051, 0, 2, 4_000)
    assert stored(tmp_path) == []


def batch_ack(opaque: int, *acks: BatchAck, broker_name: str = "broker-a") -> bytes:
    body = BatchAckBody(broker_name=broker_name, acks=acks).encode()
    return encode_command(0, 200_151, 0, "JAVA", 513, opaque, None, {}, body)


FIRST = BatchAck(
    group="g",
    topic="T",
    retry_flag="0",
    start_offset=0,
    queue_id=1,
    revive_queue=2,
    pop_time_ms=NOW,
    invisible_ms=60_000,
    offsets=(0, 1),
)


def test_a_plain_batch_is_stored_by_checkpoint_and_answered(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, _):
        later = dataclasses.replace(FIRST, pop_time_ms=NOW - 1, offsets=(1,))
        replies, frames, _ = feed(it, 1, batch_ack(1, FIRST, later) + ack(2), NOW)
        assert frames == []
        assert {opaque: code for opaque, (code, _) in answers(replies).items()} == {1: 0, 2: 0}
        kinds = [(line[0], sum(line[4])) for line in it.take_answered()]
        assert kinds == [(200_151, 1), (200_051, 1)]
    found = stored(tmp_path)
    assert [body.get("aol") for _, _, body, _ in found] == [[0, 1], [1], None]
    assert [body["ao"] for _, _, body, _ in found] == [-1, -1, 0]
    assert "UNIQ_KEY\x01T@1@-1@g@" in found[0][3]
    assert "TAGS\x01bAck\x02" in found[0][3]


@pytest.mark.parametrize(
    "fields",
    [
        {"offsets": (0, 9)},
        {"retry_flag": "1"},
        {"topic": "%RETRY%g_T"},
        {"topic": "nowhere"},
        {"queue_id": 4},
        {"queue_id": -1},
        {"revive_queue": 8},
        {"group": "nobody"},
        {"pop_time_ms": NOW + 1},
        {"invisible_ms": 100_001},
        {"start_offset": -1, "offsets": (0,)},
    ],
)
def test_a_batch_with_anything_odd_is_for_the_processors_as_a_whole(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    odd = dataclasses.replace(FIRST, **fields)
    with settling(tmp_path) as (it, _):
        replies, frames, _ = feed(it, 1, batch_ack(1, FIRST, odd), NOW)
        assert (replies, [frame[5] for frame in frames]) == (b"", [1])
    assert stored(tmp_path) == []


def test_batches_of_another_broker_or_several_for_memory_are_for_the_processors(
    tmp_path: Path,
) -> None:
    with settling(tmp_path) as (it, _):
        assert len(feed(it, 1, batch_ack(1, FIRST, broker_name="broker-b"), NOW)[1]) == 1
    (tmp_path / "b").mkdir()
    with settling(tmp_path / "b", MERGES) as (it, _):
        assert len(feed(it, 1, batch_ack(1, FIRST, FIRST), NOW)[1]) == 1


def test_a_batch_for_memory_is_returned_whole_and_answered_later(tmp_path: Path) -> None:
    with settling(tmp_path, MERGES) as (it, _):
        came = it.feed(1, batch_ack(1, FIRST) + ack(2), NOW)
        assert len(came) == 5
        assert came[3] == [
            (("T", "g", 1, 0, NOW), [0, 1], [1], batch_ack(1, FIRST), True),
            (("T", "g", 1, 0, NOW), [0], [2], ack(2), False),
        ]
        assert {at: code for at, (code, _) in answers(it.merged([1], True, 0)).items()} == {1: 0}
        assert [line[0] for line in it.take_answered()] == [200_151]


def change(opaque: int, fields: dict[str, str] | None = None, *, flag: int = 0) -> bytes:
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "extraInfo": f"0 {NOW} 60000 2 0 broker-a 1 0",
        "offset": "0",
        "invisibleTime": "30000",
        **(fields or {}),
    }
    return encode_command(0, 200_053, flag, "JAVA", 513, opaque, None, ext, b"")


def test_a_change_stores_the_new_checkpoint_and_the_end_of_the_old_one(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, _):
        replies, frames, _ = feed(it, 1, change(1), NOW)
        assert frames == []
        ((_, code, *_, opaque, remark, ext, _),) = decode_frames(replies)[0]
        assert (opaque, code, remark) == (1, 0, "not set any response code")
        # It begins a millisecond later: the end of the old one is not that of both.
        assert ext == {"popTime": str(NOW + 1), "invisibleTime": "30000", "reviveQid": "2"}
        # With another start the two are told apart anyway.
        later = {"extraInfo": f"0 {NOW} 60000 2 0 broker-a 1 0", "invisibleTime": "0"}
        replies, _, _ = feed(it, 1, change(2, later), NOW + 5)
        ext = decode_frames(replies)[0][0][7]
        assert ext is not None
        assert ext["popTime"] == str(NOW + 5)
    found = stored(tmp_path)
    assert [body.get("ao") for _, _, body, _ in found] == [None, 0, None, 0]
    assert [body["pt"] for _, _, body, _ in found] == [NOW + 1, NOW, NOW + 5, NOW]
    assert (found[0][2]["d"], found[0][2]["it"], found[0][2]["so"]) == ([0], 30_000, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"invisibleTime": "-1"},
        {"invisibleTime": "100001"},
        {"invisibleTime": "x"},
        {"suspend": "true"},
        {"liteTopic": ""},
        {"offset": "1", "extraInfo": f"1 {NOW} 60000 2 0 broker-a 1 1"},
        {"queueId": "4"},
        {"topic": "nowhere"},
        {"consumerGroup": "nobody"},
        {"extraInfo": f"0 {NOW} 60000 999 0 broker-a 1 0"},
        {"extraInfo": f"0 {NOW} 60000 2 0 broker-b 1 0"},
    ],
)
def test_a_change_with_anything_odd_is_for_the_processors(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    with settling(tmp_path) as (it, _):
        replies, frames, _ = feed(it, 1, change(1, fields), NOW)
        assert (replies, [frame[5] for frame in frames]) == (b"", [1])
        assert len(feed(it, 2, change(1, flag=2), NOW)[1]) == 1
    (tmp_path / "b").mkdir()
    with settling(tmp_path / "b", MERGES) as (it, _):
        assert len(feed(it, 1, change(1), NOW)[1]) == 1
    assert stored(tmp_path) == []


def test_a_change_of_what_was_popped_before_a_deletion_is_for_the_processors(
    tmp_path: Path,
) -> None:
    for deleted_ms, left in ((NOW - 1, 0), (NOW, 1), (NOW + 1, 1)):
        folder = tmp_path / str(deleted_ms)
        folder.mkdir()
        with settling(folder, (*PLAIN[:-1], deleted_ms)) as (it, _):
            assert len(feed(it, 1, change(1), NOW)[1]) == left


def test_acks_wait_for_the_flush_that_sends_wait_for(tmp_path: Path) -> None:
    with settling(tmp_path, sync=True) as (it, store):
        replies, frames, _ = feed(it, 1, ack(1) + change(2) + batch_ack(3, FIRST) + send(4), NOW)
        assert (replies, frames) == (b"", [])
        ((_, replies),) = it.flushed(store.max_physical_offset(), NOW + 3)
        assert {at: code for at, (code, _) in answers(replies).items()} == {1: 0, 2: 0, 3: 0, 4: 0}
        assert it.counters()["acks"] == 3


def test_acks_whose_flush_failed_are_refused(tmp_path: Path) -> None:
    with settling(tmp_path, slave=True) as (it, _):
        assert feed(it, 1, ack(1) + change(2), NOW)[0] == b""
        ((_, replies),) = it.fail("UNKNOWN_ERROR no disk", NOW)
        first, second = decode_frames(replies)[0]
        assert (first[1], first[6]) == (1, "put ack msg error: UNKNOWN_ERROR no disk")
        text = "append checkpoint or ack origin failed: UNKNOWN_ERROR no disk"
        assert (second[1], second[6]) == (1, text)
        assert second[7] == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}


def test_acks_wait_for_the_slave_that_sends_wait_for(tmp_path: Path) -> None:
    with settling(tmp_path, slave=True) as (it, store):
        assert feed(it, 1, ack(1), NOW) == (b"", [], None)
        ((_, replies),) = it.set_replicated(store.max_physical_offset(), NOW)
        assert {at: code for at, (code, _) in answers(replies).items()} == {1: 0}
        # A record without its copy is in the log nevertheless: that is a success.
        assert feed(it, 1, ack(2), NOW)[0] == b""
        ((_, replies),) = it.expire(NOW + 61)
        assert {at: code for at, (code, _) in answers(replies).items()} == {2: 0}


def test_acks_that_need_not_wait_do_not(tmp_path: Path) -> None:
    for name, asynchronous, waits in (
        ("both", (True, True), ()),
        ("acks", (True, False), (2,)),
        ("checkpoints", (False, True), (1, 2)),
    ):
        (tmp_path / name).mkdir()
        with settling(tmp_path / name, (*PLAIN[:7], *asynchronous, -1), slave=True) as (it, _):
            found = answers(feed(it, 1, ack(1) + change(2), NOW)[0])
            assert sorted(found) == [at for at in (1, 2) if at not in waits]


def test_acks_beyond_what_may_wait_are_for_the_processors(tmp_path: Path) -> None:
    with settling(tmp_path, slave=True) as (it, _):
        burst = b"".join(ack(number) for number in range(12))
        replies, frames, _ = feed(it, 1, burst, NOW)
        assert (replies, [frame[5] for frame in frames]) == (b"", [10, 11])


def test_a_batch_that_the_log_does_not_take_goes_to_the_processors(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, store):
        store.close()
        replies, frames, _ = feed(it, 1, ack(1) + batch_ack(2, FIRST), NOW)
        assert (replies, [frame[5] for frame in frames]) == (b"", [1, 2])


def pop(opaque: int, **fields: str) -> bytes:
    ext = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "8",
        "invisibleTime": "60000",
        "pollTime": "15000",
        "bornTime": str(NOW),
        "initMode": "0",
        "exp": "a || b",
        "expType": "TAG",
        "order": "false",
        **fields,
    }
    return encode_command(0, 200_050, 0, "JAVA", 513, opaque, None, ext, b"")


def test_plain_pops_are_returned_and_what_is_decided_is_given(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, store):
        came = it.feed(1, pop(1), NOW)
        assert len(came) == 5
        assert came[:4] == (b"", [], None, [])
        assert came[4] == [(1, "T", "g", -1, 8, 60_000, 15_000, NOW, "a || b", pop(1))]
        names = ("g", "T", "%RETRY%g_T")
        wish = (
            1,
            names,
            [(False, 0, 0), (False, 1, 0)],
            8,
            None,
            (NOW, 60_000, NOW),
            2,
            False,
            False,
            False,
        )
        given = it.give(wish)
        assert given is not None
        reply, rest, batches, passed = given
        assert (rest, batches, passed) == (0, [(1, 0, [0], 1)], [])
        ((_, code, *_, opaque, remark, ext, _),) = decode_frames(reply)[0]
        assert (opaque, code, remark) == (1, 0, "FOUND")
        assert ext == {
            "popTime": str(NOW),
            "invisibleTime": "60000",
            "reviveQid": "2",
            "restNum": "0",
            "startOffsetInfo": "0 1 0",
            "msgOffsetInfo": "0 1 0",
        }
        assert it.counters()["pops"] == 1
        ((group, topic, queue_id, sums),) = it.take_pulled()
        assert (group, topic, queue_id, sums[:6]) == ("g", "T", 1, (None, None, 0, 1, 1, 1))
        store.close()
        assert it.give(wish) is None
    ((topic, _, body, properties),) = stored(tmp_path)
    assert (topic, body["so"], body["d"]) == (WHEEL, 0, [0])
    assert f"REAL_TOPIC\x01{REVIVE}\x02REAL_QID\x012\x02" in properties


@pytest.mark.parametrize(
    "fields",
    [{"order": "true"}, {"expType": "SQL92"}, {"topic": "%RETRY%g_T"}, {"consumerGroup": "x"}],
)
def test_pops_that_are_not_plain_come_out(tmp_path: Path, fields: dict[str, str]) -> None:
    with settling(tmp_path) as (it, _):
        assert [frame[5] for frame in feed(it, 1, pop(1, **fields), NOW)[1]] == [1]


def test_a_pop_behind_a_frame_for_the_processors_comes_out_as_well(tmp_path: Path) -> None:
    with settling(tmp_path) as (it, _):
        burst = ack(1, {"offset": "99"}) + pop(2)
        assert [frame[5] for frame in feed(it, 1, burst, NOW)[1]] == [1, 2]
