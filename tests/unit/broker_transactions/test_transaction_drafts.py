"""The records of a transaction, made of each other: which fields they keep."""

from __future__ import annotations

import pytest

from roquet.broker.transactions import drafts
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.store.records import Record
from roquet.store.results import Draft

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
PROPERTIES = {"UNIQ_KEY": "K", "REAL_TOPIC": "orders", "REAL_QID": "3", "TAGS": "a"}


def sent(**properties: str) -> Draft:
    return Draft(
        topic="orders",
        queue_id=3,
        body=b"body",
        properties=properties,
        sys_flag=sys_flag.TRANSACTION_PREPARED | 1,
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
    )


def half() -> Record:
    fields = dict.fromkeys(Record._fields, 0) | {
        "topic": drafts.HALF_TOPIC,
        "properties": props.write(PROPERTIES).encode(),
        "body": b"body",
        "flag": 5,
        "sys_flag": 1,
        "born_timestamp": 7,
        "born_host": HOST,
        "store_host": HOST,
        "reconsume_times": 2,
        "physical_offset": 900,
    }
    return Record(**fields)  # type: ignore[arg-type]


def test_half_message_waits_in_the_half_queue_and_knows_its_place() -> None:
    draft = sent(UNIQ_KEY="K", TRAN_MSG="true")
    drafts.to_half(draft, "producers")
    assert (draft.topic, draft.queue_id) == (drafts.HALF_TOPIC, 0)
    # Compression and the like stay; that it is prepared is not for consumers of the half queue.
    assert draft.sys_flag == 1
    assert draft.properties == {
        "UNIQ_KEY": "K",
        "TRAN_MSG": "true",
        "PGROUP": "producers",
        "__transactionId__": "K",
        "REAL_TOPIC": "orders",
        "REAL_QID": "3",
    }


def test_half_message_keeps_what_its_producer_may_say_and_nothing_else() -> None:
    theirs = {"PGROUP": "own", "__transactionId__": "T", "UNIQ_KEY": "K"}
    ours = {
        "REAL_TOPIC": "other",
        "REAL_QID": "9",
        "TRANSACTION_CHECK_TIMES": "14",
        "TRAN_PREPARED_QUEUE_OFFSET": "0",
    }
    draft = sent(**theirs, **ours)
    drafts.to_half(draft, "producers")
    assert draft.properties == {**theirs, "REAL_TOPIC": "orders", "REAL_QID": "3"}


def test_half_message_without_key_or_group_gets_none() -> None:
    draft = sent()
    drafts.to_half(draft, "")
    assert draft.properties == {"REAL_TOPIC": "orders", "REAL_QID": "3"}


def fields(draft: Draft) -> tuple[object, ...]:
    return (draft.body, draft.flag, draft.born_timestamp, draft.born_host, draft.store_host)


def test_committed_message_is_the_half_message_in_its_real_place() -> None:
    draft = drafts.commit_draft(half(), PROPERTIES)
    assert draft is not None
    assert (draft.topic, draft.queue_id) == ("orders", 3)
    assert draft.properties == {"UNIQ_KEY": "K", "TAGS": "a"}
    assert draft.sys_flag == sys_flag.TRANSACTION_COMMIT | 1
    assert (draft.reconsume_times, draft.prepared_transaction_offset) == (2, 900)
    assert fields(draft) == (b"body", 5, 7, HOST, HOST)


def test_copies_of_half_messages_keep_its_fields_and_say_how_often_it_was_asked_about() -> None:
    copy = drafts.checked_copy(half(), 4)
    assert (copy.topic, copy.queue_id) == (drafts.HALF_TOPIC, 0)
    assert copy.properties == {**PROPERTIES, "TRANSACTION_CHECK_TIMES": "4"}
    aside = drafts.put_aside(half())
    assert (aside.topic, aside.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    assert (aside.properties, aside.reconsume_times) == (PROPERTIES, 2)
    for draft in (copy, aside):
        assert (draft.sys_flag, *fields(draft)) == (1, b"body", 5, 7, HOST, HOST)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b"7", [7]),
        (b"7,8,", [7, 8]),
        (b"x,7,-1,,8.0", [7]),
        (b"9" * 19, [10**19 - 1]),
        (b"9" * 20 + b",5", [5]),
    ],
)
def test_op_record_names_the_numbers_of_its_body_and_the_rest_is_passed_over(
    body: bytes, expected: list[int]
) -> None:
    assert drafts.op_offsets(body) == expected
