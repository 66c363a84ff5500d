"""The book of half messages, its ranges, and the verdicts: without a broker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from roquet.broker.transactions import drafts
from roquet.broker.transactions.book import TransactionBook
from roquet.broker.transactions.ranges import OffsetSet
from roquet.broker.transactions.verdict import TransactionConfig, Verdict, judge
from roquet.protocol import properties as props
from roquet.protocol.messages.records import encode_record
from roquet.store.records import Record, read_records

HOUR_MS = 3_600_000
VECTORS = Path(__file__).parents[2] / "vectors"
CHECKS, IMMUNITY = "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS"


def test_ranges_are_a_set() -> None:
    chance = random.Random(7)
    ranges, model = OffsetSet(), set[int]()
    for _ in range(2000):
        if chance.random() < 0.03:
            below = chance.randrange(60)
            ranges.drop_below(below)
            model = {offset for offset in model if offset >= below}
        offset = chance.randrange(80)
        ranges.add(offset)
        model.add(offset)
        assert len(ranges) == len(model)
        asked = chance.randrange(90)
        assert (asked in ranges) == (asked in model)
        expected = next(n for n in range(asked, 200) if n not in model)
        assert ranges.next_missing(asked) == expected
        assert all(start < end for start, end in ranges.ranges)
        assert all(
            one[1] < other[0] for one, other in zip(ranges.ranges, ranges.ranges[1:], strict=False)
        )


def test_what_is_settled_moves_both_offsets() -> None:
    book = TransactionBook()
    book.begin(0, 0)
    for half in (2, 0):
        book.settle(half)
    book.note_op(0, 2)
    assert book.advance()
    assert (book.half_offset, book.op_offset) == (1, 0)
    book.settle(1)
    book.note_op(1, 1)
    assert book.advance()
    assert (book.half_offset, book.op_offset) == (3, 2)
    assert not book.advance()


def test_an_op_record_stays_while_it_says_something_about_what_is_above_a_gap() -> None:
    book = TransactionBook()
    book.settle(5)
    book.note_op(0, 5)
    book.note_op(1, -1)
    assert not book.advance()
    assert book.op_offset == 0
    assert book.is_settled(5)
    assert book.next_open(0) == 0
    assert book.next_open(5) == 6


def test_a_late_producer_means_the_copy() -> None:
    book = TransactionBook()
    assert book.living(0) == 0
    book.move(0, 3)
    book.move(3, 8)
    assert book.living(0) == book.living(3) == book.living(8) == 8
    assert book.is_settled(0)
    assert book.is_settled(3)
    book.settle(8)
    assert book.living(0) is None
    assert book.living(8) is None


def test_what_was_deleted_is_jumped_over() -> None:
    book = TransactionBook()
    for offset in (5, 6, 9, 12):
        book.settle(offset)
    book.jump(10)
    assert book._settled.ranges == [(12, 13)]
    assert book.half_offset == 10
    assert book.living(9) is None
    assert book.next_open(0) == 10


def test_book_that_begins_again_knows_nothing_of_before() -> None:
    book = TransactionBook()
    book.settle(4)
    book.move(1, 6)
    book.note_op(0, 4)
    book.begin(1, 0)
    assert [book.living(offset) for offset in (0, 1, 4, 6)] == [None, 1, 4, 6]
    # The op record of before is not known either, nor that 6 stands for 1.
    for offset in range(1, 5):
        book.settle(offset)
    assert book.advance()
    assert (book.half_offset, book.op_offset) == (5, 0)
    assert book.living(6) == 6


def test_op_record_stays_until_all_that_it_names_is_below_the_first_open_one() -> None:
    book = TransactionBook()
    book.settle(0)
    book.note_op(7, 1)
    book.note_op(8, -1)
    assert book.advance()
    assert (book.half_offset, book.op_offset) == (1, 0)
    book.settle(1)
    assert book.advance()
    assert (book.half_offset, book.op_offset) == (2, 9)


def test_book_keeps_nothing_of_what_is_settled_and_passed() -> None:
    book = TransactionBook()
    for old in range(5):
        book.move(old, old + 1)
    book.settle(5)
    book.note_op(0, 5)
    assert book.advance()
    assert (book._settled.ranges, dict(book._newer), dict(book._older)) == ([], {}, {})
    assert not book._ops


@pytest.mark.parametrize(
    ("properties", "age_ms", "expected"),
    [
        ({}, 0, Verdict.STOP),
        ({}, 5_999, Verdict.STOP),
        ({}, 6_000, Verdict.CHECK),
        # 8311: a clock set back a little is no reason to ask, one set back far is.
        ({}, -1_000, Verdict.STOP),
        ({}, -HOUR_MS, Verdict.CHECK),
        # 1517: a message that asked for more time is not asked about within it.
        ({IMMUNITY: "60"}, 59_999, Verdict.WAIT),
        ({IMMUNITY: "60"}, 60_000, Verdict.CHECK),
        # Less than the time-out does not shorten it, and no number is no wish.
        ({IMMUNITY: "1"}, 5_999, Verdict.WAIT),
        ({IMMUNITY: "soon"}, 6_000, Verdict.CHECK),
        ({IMMUNITY: "-1"}, 6_000, Verdict.CHECK),
        # 2117: whoever was asked once is asked again without waiting for the immunity.
        ({CHECKS: "1", IMMUNITY: "60"}, 30_000, Verdict.CHECK),
        ({CHECKS: "14"}, 600_000, Verdict.CHECK),
        ({CHECKS: "15"}, 600_000, Verdict.DISCARD),
        ({}, 72 * HOUR_MS + 1, Verdict.DISCARD),
        ({CHECKS: "many"}, 6_000, Verdict.CHECK),
    ],
)
def test_verdicts(properties: dict[str, str], age_ms: int, expected: Verdict) -> None:
    assert judge(properties, age_ms, TransactionConfig(), 72 * HOUR_MS) is expected


def recorded() -> dict[str, list[Record]]:
    """Return what a Java broker wrote, by topic."""
    log = (VECTORS / "store" / "clean" / "commitlog" / ("0" * 20)).read_bytes()
    found: dict[str, list[Record]] = {}
    at = 0
    while (size := int.from_bytes(log[at : at + 4])) > 0 and log[
        at + 4 : at + 8
    ] != b"\xcb\xd41\x94":
        (record,) = read_records(log[at : at + size])
        found.setdefault(record.topic, []).append(record)
        at += size
    return found


def test_records_are_those_of_a_java_broker() -> None:
    java = recorded()
    committed, rolled_back = java[drafts.HALF_TOPIC]
    (seen,) = java["GoldenTx"]
    draft = drafts.commit_draft(committed, props.read(committed.properties))
    assert draft is not None
    assert (draft.topic, draft.queue_id, draft.body) == ("GoldenTx", 1, seen.body)
    assert props.write(draft.properties).encode() == seen.properties
    assert (draft.sys_flag, draft.flag) == (seen.sys_flag, seen.flag)
    assert draft.prepared_transaction_offset == seen.prepared_transaction_offset
    assert (draft.born_timestamp, draft.born_host) == (seen.born_timestamp, seen.born_host)
    (op,) = java[drafts.OP_TOPIC]
    mine = drafts.op_draft([0, 1], op.store_host, op.born_timestamp)
    assert (mine.body, props.write(mine.properties).encode()) == (op.body, op.properties)
    assert drafts.op_offsets(op.body) == [committed.queue_offset, rolled_back.queue_offset]
    copy = drafts.checked_copy(rolled_back, 2)
    assert copy.properties.pop("TRANSACTION_CHECK_TIMES") == "2"
    assert props.write(copy.properties).encode() == rolled_back.properties


def test_a_record_is_written_as_it_was_read() -> None:
    for records in recorded().values():
        for record in records:
            (again,) = read_records(encode_record(record))
            assert again == record


def test_a_topic_that_is_too_long_for_the_layout_is_refused() -> None:
    record = recorded()["GoldenTx"][0]._replace(topic="t" * 128)
    with pytest.raises(ValueError, match="128"):
        encode_record(record)
