"""What a lake's catalog comes to: the same by lines, by notes and in any order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark.jobs.storage.catalog import Entry, gone
from roquet.spark.jobs.storage.summary import Held, Part, Summary, from_json

PLACES = [Part("orders", "2026-11-23", f"b{number}") for number in range(4)]
OPS = st.sampled_from(("add", "remove", "retire"))
LINES = st.lists(st.tuples(OPS, st.sampled_from(PLACES), st.integers(0, 2), st.integers(1, 9)))


def text(lines: list[tuple[str, Part, int, int]]) -> str:
    found: list[str] = []
    for op, place, queue, end in lines:
        entry = Entry(place, "b", queue, 0, end, end, 0)
        found += [entry.json()] if op == "add" else gone([place], op)
    return "\n".join(found)


@given(LINES, st.integers(0, 20))
def test_summaries_add_up_to_that_of_all_lines(
    lines: list[tuple[str, Part, int, int]], cut: int
) -> None:
    whole = Summary()
    whole.add_lines(text(lines))
    early, late = Summary(), Summary()
    early.add_lines(text(lines[:cut]))
    late.add_lines(text(lines[cut:]))
    # A note of one half is added to the other, the newer one first.
    late.add(from_json(json.loads(json.dumps(early.to_json()))))
    assert late.to_json() == whole.to_json()
    added = {place for op, place, _, _ in lines if op == "add"}
    assert whole.parts() == added - {place for op, place, _, _ in lines if op != "add"}
    ends: dict[Held, int] = {}
    for op, place, queue, end in lines:
        if op == "add":
            held = Held(place.topic, "b", queue)
            ends[held] = max(end, ends.get(held, 0))
    assert whole.ends() == ends


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"added": "text", "gone": [], "ends": []},
        {"added": [["orders", "2026-11-23"]], "gone": [], "ends": []},
        {"added": [], "gone": [], "ends": [["orders", "b", 0]]},
        {"added": [], "gone": [], "ends": [["orders", "b", "first", 5]]},
    ],
)
def test_damaged_summary_is_refused(found: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_json(found)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"op":"add","topic":"t","day":"d"}',
        '{"op":"add","topic":"t","day":"d","part":"p"}',
        '{"op":"add","topic":"t","day":"d","part":"p","brokerName":"b","queueId":0}',
        '{"op":"add","topic":"t","day":"d","part":"p","brokerName":"b","queueId":0,"toOffset":"1"}',
    ],
)
def test_damaged_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Summary().add_lines(text)
