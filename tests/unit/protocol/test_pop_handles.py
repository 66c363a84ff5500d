"""Receipt handles, tables of offsets and batches against what Java 5.5.0 writes (vectors/pop)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.pop import PopMessageResponse
from roquet.protocol.pop import handle
from roquet.protocol.pop.batch_ack import BatchAckBody
from roquet.protocol.pop.handle import HandleError, ReceiptHandle, Taken

_LINES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors/pop/handles.jsonl").read_text().split("\n")
    if line
]


def _of(kind: str) -> list[dict[str, Any]]:
    found = [line for line in _LINES if line["kind"] == kind]
    assert found
    return found


@pytest.mark.parametrize("line", _of("handle"), ids=lambda line: line["text"])
def test_handle_is_written_as_java_does(line: dict[str, Any]) -> None:
    start, popped, invisible, revive, broker, queue, offset = line["fields"]
    flag = handle.retry_flag(line["topic"])
    mine = ReceiptHandle(start, popped, invisible, revive, flag, broker, queue, offset)
    assert mine.encode() == line["text"]
    assert mine.is_ordered == (revive == 999)
    if " " not in broker:
        assert ReceiptHandle.decode(line["text"]) == mine


@pytest.mark.parametrize("line", _of("odd"), ids=lambda line: line["text"] or "empty")
def test_odd_handle_is_read_as_java_reads_it(line: dict[str, Any]) -> None:
    if isinstance(line["read"], str) or line["text"].startswith("+"):
        with pytest.raises(HandleError):
            ReceiptHandle.decode(line["text"])
    else:
        assert list(ReceiptHandle.decode(line["text"])) == line["read"]


def test_handle_beyond_its_length_is_refused() -> None:
    with pytest.raises(HandleError):
        ReceiptHandle.decode("1 2 3 4 0 b 5 6 " + "7" * handle.LENGTH_MAX)


@pytest.mark.parametrize("line", _of("real"), ids=lambda line: line["given"])
def test_topic_of_a_handle_is_that_of_java(line: dict[str, Any]) -> None:
    assert handle.real_topic("T", "g", handle.retry_flag(line["given"])) == line["topic"]


def test_tables_of_an_answer_are_those_of_java() -> None:
    (java,) = _of("tables")
    taken = [
        Taken("T", 3, 100, (100, 101, 105)),
        Taken("%RETRY%g_T", 0, 7, (7,)),
        Taken("%RETRY%g+T", 0, 1 << 40, (1 << 40,)),
    ]
    assert handle.start_offset_info(taken) == java["starts"]
    assert handle.msg_offset_info(taken) == java["offsets"]
    assert handle.order_count_info({("0", 3, None): 1, ("0", 3, 101): 2}) == java["counts"]
    starts = handle.read_start_offset_info(java["starts"])
    assert starts == {("0", 3): 100, ("1", 0): 7, ("2", 0): 1 << 40}
    offsets = handle.read_msg_offset_info(java["offsets"])
    assert offsets == {("0", 3): [100, 101, 105], ("1", 0): [7], ("2", 0): [1 << 40]}
    counts = handle.read_order_count_info(java["counts"])
    assert counts == {("0", 3, None): 1, ("0", 3, 101): 2}
    answer = PopMessageResponse(
        pop_time=1_000,
        invisible_time=60_000,
        revive_qid=999,
        start_offset_info=java["starts"],
        msg_offset_info=java["offsets"],
        order_count_info=java["counts"],
    )
    tables = handle.PopTables(answer, "broker-a")
    found = tables.handle("T", 3, 101)
    assert found.encode() == "100 1000 60000 999 0 broker-a 3 101"
    assert tables.deliveries(found) == 2
    assert tables.deliveries(found._replace(queue_offset=105)) == 1
    assert tables.deliveries(found._replace(queue_id=1)) == 0


@pytest.mark.parametrize("text", ["0 1", "0 qo1 2", "0 1%2 3", "0 qo1%x 2", "0 x 1", "0 1 x", ";"])
def test_broken_counts_are_refused(text: str) -> None:
    with pytest.raises(HandleError):
        handle.read_order_count_info(text)


@pytest.mark.parametrize("text", ["0 1", "0 1 2 3", "0 x 1", "0 1 x", "0 1 2;0 1 3", ";"])
def test_broken_table_is_refused(text: str) -> None:
    with pytest.raises(HandleError):
        handle.read_start_offset_info(text)
    with pytest.raises(HandleError):
        handle.read_msg_offset_info(text)


def test_batch_is_written_and_read_as_java_does() -> None:
    (java,) = _of("batch")
    body = BatchAckBody.decode(java["body"].encode())
    assert body.broker_name == "broker-a"
    (ack,) = body.acks
    assert list(ack.offsets) == java["offsets"]
    assert (ack.group, ack.topic, ack.retry_flag, ack.queue_id) == ("g", "T", "1", 2)
    assert (ack.revive_queue, ack.pop_time_ms, ack.invisible_ms) == (5, 1_700_000_000_000, 30_000)
    # Java writes whole words of 64 bits, which end in zeros.
    assert BatchAckBody.decode(body.encode()) == body


def test_batch_takes_long_names() -> None:
    names = {"consumerGroup": "g", "topic": "T", "startOffset": 5, "bitSet": "BQ=="}
    (ack,) = BatchAckBody.decode(json.dumps({"acks": [names]}).encode()).acks
    assert (ack.group, ack.topic, ack.offsets) == ("g", "T", (5, 7))


@pytest.mark.parametrize("bits", ['"b":"%"', '"b":"' + "/" * 4 * 4096 + '"', '"b":[1]', '"so":"x"'])
def test_broken_batch_is_refused(bits: str) -> None:
    with pytest.raises(JsonError):
        BatchAckBody.decode(b'{"acks":[{%s}]}' % bits.encode())
