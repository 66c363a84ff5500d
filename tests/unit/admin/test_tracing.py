"""The steps of a message's life, of what clients that trace have written."""

from __future__ import annotations

from roquet.admin.tracing import steps_of
from roquet.protocol.messages.trace_lines import FIELD_END, RECORD_END, decode

START_MS = 1_700_000_000_000


def record(*fields: object) -> str:
    return FIELD_END.join(str(it) for it in fields) + RECORD_END


def pub(at_ms: int, cost_ms: int) -> str:
    more = ("", "", "h:1", 3, cost_ms, 0, "OFF", "true", "c:1")
    return record("Pub", at_ms, "r", "makers", "t", "ID1", *more)


def before(at_ms: int, request: str, tries: int) -> str:
    return record("SubBefore", at_ms, "r", "billing", request, "ID1", tries, "")


def after(request: str, cost_ms: int, good: str, code: int) -> str:
    return record("SubAfter", request, "ID1", cost_ms, good, "", code, "", "")


def test_begin_and_end_of_a_consumer_are_one_step() -> None:
    text = after("R2", 7, "true", 0) + before(START_MS + 1000, "R2", 1)
    text += before(START_MS + 10, "R1", 0) + after("R1", 90, "false", 4) + pub(START_MS, 5)
    steps = steps_of(decode(text.encode()))
    assert [(it.what, it.group, it.began_ms - START_MS) for it in steps] == [
        ("sent", "makers", 0),
        ("consumed", "billing", 10),
        ("consumed", "billing", 1000),
    ]
    assert [(it.took_ms, it.result, it.tries) for it in steps] == [
        (5, "SUCCESS", None),
        (90, "FAILED", 0),
        (7, "SUCCESS", 1),
    ]
    assert [it.end_ms - START_MS for it in steps] == [5, 100, 1007]


def test_a_step_without_an_end_says_so_and_what_cannot_be_read_is_none() -> None:
    text = before(START_MS, "R1", 0) + after("lost", 7, "true", 0) + record("Nonsense", "x")
    (step,) = steps_of(decode(text.encode()))
    assert (step.what, step.took_ms, step.result) == ("received, no end is known", None, "")
    assert step.end_ms == START_MS
