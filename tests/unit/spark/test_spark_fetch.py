"""Reading a range against a scripted broker: gaps, moved offsets, answers that come late."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from roquet._native import project_records
from roquet.base.errors import Corrupt, Refused
from roquet.model.route import BrokerData
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import PullMessageRequest, PullMessageResponse
from roquet.spark.cluster.connections import Connections, Posted
from roquet.spark.offsets import DataLoss, QueueKey, Range
from roquet.spark.options import SourceOptions, Wire
from roquet.spark.reading.fetch import ROWS_MAX, QueueReader, slices

if TYPE_CHECKING:
    from collections.abc import Sequence

pa: Any = pytest.importorskip("pyarrow")
QUEUE = QueueKey("orders", "broker-a", 0)
NONE: frozenset[int] = frozenset()
CONNECTION: Any = None
HOST = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")


def record(offset: int, tag: str = "a", body: bytes = b"x") -> bytes:
    text = f"TAGS\x01{tag}\x02".encode()
    head = struct.pack(">iiqqiq", 0, 0, offset, 100 * offset, 0, 1)
    rest = head + HOST + struct.pack(">q", 2) + HOST + struct.pack(">iqi", 0, 0, len(body)) + body
    rest += bytes([6]) + b"orders" + struct.pack(">h", len(text)) + text
    crc = zlib.crc32(body) & 0x7FFFFFFF
    return struct.pack(">III", 12 + len(rest), 0xDAA320A7, crc) + rest


class Broker(Connections):
    """Has the offsets of `held`, gives `step` a pull, and plays `script` first."""

    def __init__(self, held: range, step: int = 3, missing: frozenset[int] = NONE) -> None:
        super().__init__(Wire(name_servers=()))
        self.held, self.step, self.missing = held, step, missing
        self.script: list[Command] = []
        self.asked: list[int] = []
        self.projections: list[str | None] = []
        self.obeys = False
        self.body: bytes | None = None

    @override
    def call(self, addresses: Any, command: Command) -> Command:
        assert tuple(addresses) == ("127.0.0.1:1",)
        header = PullMessageRequest.decode(command.ext)
        self.asked.append(header.queue_offset)
        self.projections.append(header.projection)
        if self.script:
            return self.script.pop(0)
        at = header.queue_offset
        if at not in self.held:
            return self.answer(ResponseCode.PULL_OFFSET_MOVED, self.held.start)
        end = min(at + self.step, self.held.stop)
        data = b"".join(record(n, "ab"[n % 2]) for n in range(at, end) if n not in self.missing)
        if self.body is not None:
            data = self.body
        answer = self.answer(ResponseCode.SUCCESS, end, data)
        if header.projection is None or not self.obeys:
            return answer
        ext = {**(answer.ext or {}), "projection": "1"}
        return Command(answer.code, ext=ext, body=project_records(data, header.projection))

    def answer(self, code: int, following: int, body: bytes = b"") -> Command:
        header = PullMessageResponse(
            suggest_which_broker_id=0,
            next_begin_offset=following,
            min_offset=self.held.start,
            max_offset=self.held.stop,
        )
        return Command(code, ext=header.encode(), body=body)


class Waiting(Broker):
    """Answers what was posted when it is taken; `limits` are of the next answers, `step` later."""

    def __init__(self, held: range, step: int = 3, missing: frozenset[int] = NONE) -> None:
        super().__init__(held, step, missing)
        self.limits: list[int] = []
        self.sent: list[list[int]] = []
        self.waiting: list[Command] = []
        self.fails: set[str] = set()

    @override
    def post(self, addresses: Any, commands: Sequence[Command]) -> Posted | None:
        if "post" in self.fails:
            return None
        assert not self.waiting, "answers are taken before more is sent"
        self.waiting = list(commands)
        headers = [PullMessageRequest.decode(command.ext) for command in commands]
        self.sent.append([header.queue_offset for header in headers])
        return Posted(CONNECTION, [*range(len(commands))])

    @override
    def take(self, posted: Posted) -> list[Command]:
        waiting, self.waiting = self.waiting, []
        if "take" in self.fails:
            return []
        return [self.call(["127.0.0.1:1"], command) for command in waiting]

    @override
    def call(self, addresses: Any, command: Command) -> Command:
        header = PullMessageRequest.decode(command.ext)
        given = self.limits.pop(0) if self.limits else self.step
        before, self.step = self.step, min(given, header.max_msg_nums)
        try:
            return super().call(addresses, command)
        finally:
            self.step = before


def reader(broker: Broker, begin: int, end: int, **changes: Any) -> QueueReader:
    options = SourceOptions.parse(
        {"nameServers": "a:1", "subscribe": "orders", "columns": "queueOffset"}, streaming=False
    )
    return QueueReader(
        dataclasses.replace(options, **changes),
        Range(QUEUE, begin, end),
        ("127.0.0.1:1",),
        connections=broker,
        wait=lambda _: None,
        locate=lambda: BrokerData(
            cluster="c", broker_name="broker-a", addresses={0: "127.0.0.1:1"}
        ),
    )


def offsets(reading: QueueReader) -> list[int]:
    return [n for batch in reading.batches() for n in batch.column(0).to_pylist()]


def test_reads_exactly_the_range() -> None:
    broker = Broker(range(100))
    assert offsets(reader(broker, 10, 20)) == list(range(10, 20))
    assert broker.asked == [10, 13, 16, 19]


def test_a_broker_that_sends_whole_messages_is_asked_for_a_projection_once() -> None:
    broker = Broker(range(100))
    assert offsets(reader(broker, 0, 9)) == list(range(9))
    assert broker.projections == ["headers", None, None]


def test_a_broker_that_leaves_bodies_out_is_asked_for_that_on_and_on() -> None:
    broker = Broker(range(100))
    broker.obeys = True
    assert offsets(reader(broker, 0, 9)) == list(range(9))
    assert broker.projections == ["headers"] * 3
    # An answer without messages tells nothing.
    broker.script = [broker.answer(ResponseCode.PULL_NOT_FOUND, 9)]
    assert offsets(reader(broker, 9, 12)) == [9, 10, 11]
    assert broker.projections[3:] == ["headers"] * 2
    # Whole messages are read beside others.
    broker.script = [broker.answer(ResponseCode.SUCCESS, 14, record(12) + record(13))]
    assert offsets(reader(broker, 12, 17)) == [12, 13, 14, 15, 16]


def test_tags_are_compared_as_text() -> None:
    reading = reader(Broker(range(100)), 0, 10, tags="a")
    assert offsets(reading) == [0, 2, 4, 6, 8]


def test_an_answer_that_is_not_there_yet_is_asked_for_again() -> None:
    broker = Broker(range(5))
    broker.script = [broker.answer(ResponseCode.PULL_NOT_FOUND, 0)] * 2
    assert offsets(reader(broker, 0, 5)) == [0, 1, 2, 3, 4]


def test_an_offset_reset_of_the_group_is_not_followed() -> None:
    broker = Broker(range(5))
    broker.script = [broker.answer(ResponseCode.PULL_OFFSET_MOVED, 3)]
    assert offsets(reader(broker, 0, 5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("held", "left"),
    [(range(4, 100), [4, 5, 6, 7]), (range(6), [2, 3, 4, 5]), (range(0), []), (range(50, 99), [])],
)
def test_lost_offsets_fail_or_are_counted(held: range, left: list[int]) -> None:
    with pytest.raises(DataLoss, match=r"orders/broker-a/0 \[2, 8\)"):
        offsets(reader(Broker(held), 2, 8))
    reading = reader(Broker(held), 2, 8, fail_on_data_loss=False)
    assert offsets(reading) == left
    assert reading.lost == 6 - len(left)


def test_a_hole_inside_of_an_answer_is_noticed() -> None:
    with pytest.raises(DataLoss, match="1 messages between offsets 0 and 9"):
        offsets(reader(Broker(range(9), missing=frozenset({4})), 0, 9))
    reading = reader(Broker(range(9), missing=frozenset({4})), 0, 9, fail_on_data_loss=False)
    assert offsets(reading) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert reading.lost == 1


def test_broken_records_and_refusals_are_errors() -> None:
    broker = Broker(range(9))
    broker.body = record(0)[:-1]
    with pytest.raises(Corrupt, match="cannot be decoded"):
        offsets(reader(broker, 0, 9))
    broker.script = [Command(ResponseCode.NO_PERMISSION, remark="no")]
    with pytest.raises(Refused, match="no"):
        offsets(reader(broker, 0, 9))


# --- pulls that are sent ahead ------------------------------------------------------------------


def test_more_and_more_is_asked_for_ahead() -> None:
    broker = Waiting(range(1000))
    assert offsets(reader(broker, 10, 200)) == list(range(10, 200))
    assert broker.asked == [*range(10, 200, 3)], "nothing twice, nothing behind the range"
    assert [len(sent) for sent in broker.sent] == [1, 2, 4, 8, 16, 16, 16]


def test_a_short_answer_makes_what_follows_it_void() -> None:
    broker = Waiting(range(1000))
    broker.limits = [3, 3, 3, 3, 3, 1]
    assert offsets(reader(broker, 0, 100)) == list(range(100))
    assert broker.sent[:4] == [[3], [6, 9], [12, 15, 18, 21], [16]]


def test_with_a_filter_the_answer_says_where_to_go_on() -> None:
    broker = Waiting(range(1000))
    assert offsets(reader(broker, 0, 20, tags="a")) == list(range(0, 20, 2))
    assert broker.sent == [[at] for at in range(3, 20, 3)]
    # Nothing of an answer matches, and it says where to go on.
    broker = Waiting(range(1000))
    broker.body = b""
    assert offsets(reader(broker, 0, 20, tags="a")) == []
    assert broker.asked == [*range(0, 20, 3)]


@pytest.mark.parametrize("fails", [{"post"}, {"take"}])
def test_what_was_sent_in_vain_is_asked_for_again(fails: set[str]) -> None:
    broker = Waiting(range(1000))
    broker.fails = fails
    assert offsets(reader(broker, 0, 20)) == list(range(20))
    assert broker.asked == [*range(0, 20, 3)]


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_BUSY])
def test_other_answers_are_left_to_a_pull_alone(code: int) -> None:
    broker = Waiting(range(1000))
    odd = [broker.answer(ResponseCode.SUCCESS, 3, b"".join(map(record, range(3))))]
    broker.script = [*odd, broker.answer(code, 3)]
    assert offsets(reader(broker, 0, 20)) == list(range(20))
    assert broker.asked[:3] == [0, 3, 3]


def test_lost_offsets_are_judged_by_a_pull_alone() -> None:
    # The queue ends earlier than planned, in the middle of what was sent ahead.
    with pytest.raises(DataLoss, match=r"orders/broker-a/0 \[0, 100\)"):
        offsets(reader(Waiting(range(50)), 0, 100))
    reading = reader(Waiting(range(50)), 0, 100, fail_on_data_loss=False)
    assert offsets(reading) == list(range(50))
    assert reading.lost == 50


def test_few_bytes_are_on_their_way() -> None:
    broker = Waiting(range(1000), step=4)
    broker.body = b"".join(record(n, body=bytes(6000)) for n in range(4))
    reading = reader(broker, 0, 400, bytes_per_batch=100_000, fail_on_data_loss=False)
    offsets(reading)
    assert max(len(sent) for sent in broker.sent) == 4, "of 24 KiB each"


def test_batches_keep_their_limits() -> None:
    rows = ROWS_MAX * 2 + 5
    pieces = list(slices(pa.record_batch({"n": pa.array(range(rows))})))
    assert [n for piece in pieces for n in piece.column(0).to_pylist()] == list(range(rows))
    assert max(piece.num_rows for piece in pieces) <= ROWS_MAX
    wide = pa.record_batch({"body": pa.array([bytes(1 << 20)] * 100)})
    assert [piece.num_rows for piece in slices(wide)] == [25, 25, 25, 25]
