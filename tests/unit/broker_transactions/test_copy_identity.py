"""Which half messages count as copies of one: everything that identifies them is the same."""

from __future__ import annotations

import pytest

from roquet.broker.transactions.book import TransactionBook
from roquet.broker.transactions.copies import Copies
from roquet.protocol import properties as props
from roquet.store.records import Record

PROPERTIES = {
    "REAL_TOPIC": "orders",
    "REAL_QID": "3",
    "UNIQ_KEY": "K",
    "__transactionId__": "T",
    "TRANSACTION_CHECK_TIMES": "1",
}


def half(properties: dict[str, str], **fields: object) -> Record:
    given = dict.fromkeys(Record._fields, 0) | {
        "born_timestamp": 7,
        "born_host": b"\x7f\0\0\1\0\0\x2a\x9f",
        "body": b"body",
        "body_crc": 9,
        "properties": props.write(properties).encode(),
        **fields,
    }
    return Record(**given)  # type: ignore[arg-type]


def noted(copies: Copies, offset: int, record: Record) -> bool:
    return copies.note_open(offset, record, props.read(record.properties))


def test_copies_of_one_half_message_count_at_the_newest() -> None:
    book = TransactionBook()
    copies = Copies(book)
    assert copies.oldest_open is None
    assert not noted(copies, 2, half(PROPERTIES))
    # How often it was asked about, and what a disk adds, are the copy's own.
    again = half({**PROPERTIES, "TRANSACTION_CHECK_TIMES": "2"}, store_timestamp=99, size=300)
    assert noted(copies, 5, again)
    assert noted(copies, 6, again)
    assert [book.living(offset) for offset in (2, 5, 6)] == [6, 6, 6]
    assert copies.oldest_open == 6


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        ({"REAL_TOPIC": "other"}, {}),
        ({"REAL_QID": "4"}, {}),
        ({"UNIQ_KEY": "L"}, {}),
        ({"__transactionId__": "U"}, {}),
        ({}, {"born_timestamp": 8}),
        ({}, {"born_host": b"\x7f\0\0\2\0\0\x2a\x9f"}),
        ({}, {"body": b"longer"}),
        ({}, {"body_crc": 10}),
    ],
)
def test_half_messages_that_differ_in_what_identifies_them_are_no_copies(
    properties: dict[str, str], fields: dict[str, object]
) -> None:
    book = TransactionBook()
    copies = Copies(book)
    other = half({**PROPERTIES, **properties}, **fields)
    assert not noted(copies, 0, half(PROPERTIES))
    assert not noted(copies, 1, other)
    assert [book.living(offset) for offset in (0, 1)] == [0, 1]
    assert copies.oldest_open == 0
    assert copies.older_than(9, other) == 1
    assert copies.older_than(9, half(PROPERTIES)) == 0


@pytest.mark.parametrize("name", ["REAL_TOPIC", "REAL_QID", "__transactionId__"])
def test_half_messages_that_both_lack_a_property_are_copies_still(name: str) -> None:
    book = TransactionBook()
    copies = Copies(book)
    without = half({key: value for key, value in PROPERTIES.items() if key != name})
    assert not noted(copies, 0, without)
    assert noted(copies, 1, without)


@pytest.mark.parametrize("key", [{}, {"UNIQ_KEY": ""}])
def test_half_message_without_a_key_is_no_copy_of_any(key: dict[str, str]) -> None:
    book = TransactionBook()
    copies = Copies(book)
    nameless = half({"REAL_TOPIC": "orders", **key})
    for offset in range(2):
        assert not noted(copies, offset, nameless)
    assert [book.living(offset) for offset in (0, 1)] == [0, 1]
    assert copies.oldest_open is None
    assert copies.older_than(9, nameless) is None


def test_copy_that_says_whose_it_is_has_been_put_together_already() -> None:
    book = TransactionBook()
    copies = Copies(book)
    noted(copies, 0, half(PROPERTIES))
    book.move(0, 4)
    assert noted(copies, 4, half(PROPERTIES))
    assert [book.living(offset) for offset in (0, 4)] == [4, 4]


def test_settled_copy_settles_the_older_open_one_once_and_never_a_newer_one() -> None:
    copies = Copies(TransactionBook())
    noted(copies, 4, half(PROPERTIES))
    assert copies.older_than(3, half(PROPERTIES)) is None
    assert copies.older_than(5, half(PROPERTIES)) == 4
    assert copies.oldest_open is None
    assert copies.older_than(6, half(PROPERTIES)) is None
