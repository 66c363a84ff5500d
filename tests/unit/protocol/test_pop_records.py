"""Records of the revive topic against what Java 5.5.0 writes and reads (vectors/pop)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roquet.protocol import properties as props
from roquet.protocol.fastjson import JsonError
from roquet.protocol.pop import records, topics
from roquet.protocol.pop.records import PopAck, PopCheckpoint, has_bit, with_bit

_LINES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors/pop/records.jsonl").read_text().split("\n")
    if line
]
_WRITTEN = {line["name"]: line for line in _LINES if "name" in line}
_READ = [line for line in _LINES if "source" in line]
_T = 1_700_000_000_000


def _checkpoint(**changes: Any) -> PopCheckpoint:
    values: dict[str, Any] = {
        "topic": "T",
        "group": "g",
        "queue_id": 0,
        "start_offset": 3,
        "pop_time_ms": _T,
        "invisible_ms": 10_000,
        "broker_name": "broker-a",
        "diffs": (0,),
        "count": 1,
    }
    return PopCheckpoint(**(values | changes))


_MANY = (0, 1, 2, 5, 9, 31, 70_000)
_CHECKPOINTS = {
    "ck-one": _checkpoint(start_offset=0, invisible_ms=60_000),
    "ck-many": _checkpoint(
        queue_id=5, start_offset=1 << 40, invisible_ms=300_000, diffs=_MANY, count=7
    ),
    "ck-none": _checkpoint(start_offset=7, invisible_ms=60_000, diffs=(), count=0),
    "ck-all": _checkpoint(
        topic="%RETRY%g_T",
        diffs=(0, 1),
        count=2,
        bits=2,
        revive_offset=77,
        re_puts="4",
        suspended=True,
    ),
    "ck-text": _checkpoint(topic='Tü"\\中😀</a>\u2028\t\x01\x7f'),
    "ck-no-broker": _checkpoint(broker_name=None, bits=-1),
    "ck-32": _checkpoint(
        queue_id=1, start_offset=64, invisible_ms=60_000, diffs=tuple(range(32)), count=32
    ),
}


def _ack(**changes: Any) -> PopAck:
    values: dict[str, Any] = {
        "topic": "T",
        "group": "g",
        "queue_id": 2,
        "start_offset": 100,
        "pop_time_ms": _T,
        "broker_name": "broker-a",
    }
    return PopAck(**(values | changes))


_BATCH = _ack(batch=(100, 103, 1 << 33))
_ACKS = {
    "ack": _ack(offset=101),
    "ack-retry": _ack(topic="%RETRY%g_T", offset=100),
    "ack-empty": _ack(
        topic=None, group=None, queue_id=0, start_offset=0, broker_name=None, offset=0
    ),
    "batch": _BATCH,
    "batch-of-buffer": _BATCH,
    "batch-empty": _ack(batch=()),
}


def test_every_recorded_record_is_compared() -> None:
    assert set(_WRITTEN) == set(_CHECKPOINTS) | set(_ACKS)
    assert len(_READ) > 20


@pytest.mark.parametrize("name", _CHECKPOINTS)
def test_checkpoint_is_written_byte_for_byte_as_java_does(name: str) -> None:
    checkpoint, java = _CHECKPOINTS[name], _WRITTEN[name]
    assert checkpoint.encode() == java["body"].encode()
    if name != "ck-text":  # Its topic holds the marks that end a name.
        assert props.write(checkpoint.properties()) == java["properties"]
    assert topics.revive_topic("DefaultCluster") == java["topic"]
    assert PopCheckpoint.decode(java["body"].encode()) == checkpoint


@pytest.mark.parametrize("name", _ACKS)
def test_ack_is_written_byte_for_byte_as_java_does(name: str) -> None:
    ack, java = _ACKS[name], _WRITTEN[name]
    assert ack.encode() == java["body"].encode()
    of_buffer = name in {"batch-of-buffer", "batch-empty"}
    assert props.write(ack.properties(_T + 60_000, of_buffer=of_buffer)) == java["properties"]
    assert PopAck.decode(java["body"].encode(), batch=ack.batch is not None) == ack


# Java reads these, and its revive then fails for ever: they are refused here.
_REFUSED = {'{"d":[null,1]}', '{"aol":[null]}', "null", ""}
# A batch without a list is Java's null and an empty list here.
_AS_WRITTEN = {'{"ao":1,"aol":null}': b'{"ao":1,"aol":[],"pt":0,"q":0,"so":0}'}
# Java wants strict JSON here; what is told apart without doubt is taken.
_TAKEN = {"{so:1,t:'T'}"}


@pytest.mark.parametrize("line", _READ, ids=lambda line: line["source"][:50] or "empty")
def test_odd_body_is_read_as_java_reads_it(line: dict[str, Any]) -> None:
    source, java = line["source"], line["read"]
    if source in _TAKEN:
        assert PopCheckpoint.decode(source.encode()).start_offset == 1
        return

    def reread() -> bytes:
        if line["tag"] == records.CHECKPOINT_TAG:
            return PopCheckpoint.decode(source.encode()).encode()
        return PopAck.decode(source.encode(), batch=True).encode()

    too_many = '"n":44' in java
    if java.startswith("!") or source in _REFUSED or too_many:
        with pytest.raises(JsonError):
            reread()
    else:
        assert reread() == _AS_WRITTEN.get(source, java.encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"n":3,"d":[0,1]}',
        b'{"n":33}',
        b'{"d":' + str(list(range(33))).encode() + b"}",
        b'{"so":1e400}',
        b"\xff",
        b"[" * 100,
    ],
)
def test_checkpoint_with_impossible_counts_is_refused(body: bytes) -> None:
    with pytest.raises(JsonError):
        PopCheckpoint.decode(body)


def test_batch_of_too_many_offsets_is_refused() -> None:
    with pytest.raises(JsonError, match="65537"):
        PopAck.decode(b'{"aol":' + str([0] * 65_537).encode() + b"}", batch=True)


def test_old_checkpoint_without_offsets_counts_from_its_start() -> None:
    old = _checkpoint(diffs=(), count=3)
    assert old.offsets() == (3, 4, 5)
    assert [old.index_of(offset) for offset in (2, 3, 5, 6)] == [-1, 0, 2, -1]


def test_checkpoint_maps_offsets_to_bits() -> None:
    sparse = _checkpoint(diffs=_MANY, count=7)
    assert [sparse.index_of(offset) for offset in sparse.offsets()] == list(range(7))
    assert [sparse.index_of(offset) for offset in (2, 6, 70_004)] == [-1, -1, -1]


def test_ack_without_broker_name_belongs_to_the_broker_that_reads_it() -> None:
    ack = _ack(broker_name=" ", start_offset=3, queue_id=0, offset=3)
    assert ack.merge_key("broker-a") == _checkpoint().merge_key
    assert ack.merge_key("broker-b") != _checkpoint().merge_key


def test_ack_of_other_names_and_numbers_with_the_same_text_is_no_checkpoints() -> None:
    checkpoint = _checkpoint(topic="orders_eu", group="g", queue_id=1, start_offset=23)
    same = {"queue_id": 1, "start_offset": 23, "pop_time_ms": checkpoint.pop_time_ms}
    key = checkpoint.merge_key
    assert _ack(topic="orders_eu", group="g", **same).merge_key("b") == key
    assert _ack(topic="orders", group="_eug", **same).merge_key("b") != key
    moved = {**same, "queue_id": 12, "start_offset": 3}
    assert _ack(topic="orders_eu", group="g", **moved).merge_key("b") != key


@pytest.mark.parametrize(
    ("text", "times"), [(None, 0), ("4", 4), ("x", 127), ("", 127), ("9" * 12, 127)]
)
def test_re_put_times_that_cannot_be_read_count_as_many(text: str | None, times: int) -> None:
    assert _checkpoint(re_puts=text).re_put_times == times


def test_bits_are_those_of_an_i32() -> None:
    bits = 0
    for index in range(32):
        assert not has_bit(bits, index)
        bits = with_bit(bits, index)
        assert has_bit(bits, index)
        assert -(2**31) <= bits < 2**31
    assert bits == -1


def test_retry_topics_name_group_and_topic() -> None:
    v1 = topics.pop_retry_topic("T_1", "g_2", v2=False)
    v2 = topics.pop_retry_topic("T_1", "g_2", v2=True)
    assert (v1, v2) == ("%RETRY%g_2_T_1", "%RETRY%g_2+T_1")
    assert topics.normal_topic(v1, "g_2") == topics.normal_topic(v2, "g_2") == "T_1"
    assert topics.normal_topic("T_1", "g_2") == "T_1"
    assert topics.normal_topic("%RETRY%g_2", "g_2") == ""
    assert topics.normal_topic("%RETRY%other_T", "g_2") == ""
    assert topics.split_retry_v2(v2) == ("g_2", "T_1")
    for other in (v1, "T+1", "%RETRY%+T", "%RETRY%g+", "%RETRY%g+T+x"):
        assert topics.split_retry_v2(other) is None
    assert topics.is_revive_topic("rmq_sys_REVIVE_LOG_c")
    assert not topics.is_revive_topic("REVIVE_LOG_c")
