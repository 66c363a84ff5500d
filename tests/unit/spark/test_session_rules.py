"""Sessions whatever order messages come in; options of `dedup` and `sessionize`."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.base.errors import UsageError
from roquet.spark.jobs import dedup, sessionize
from roquet.spark.jobs.options.tables import JOBS
from roquet.spark.jobs.sessions.rules import Event, Rules, from_text, to_text

EVENTS = st.lists(
    st.builds(
        Event,
        at_ms=st.integers(0, 300),
        size=st.integers(1, 9),
        value=st.one_of(st.none(), st.sampled_from(["a", "b"])),
    ),
    max_size=30,
)
SOURCE = {"nameServers": "n:1", "subscribe": "orders"}


@settings(deadline=None)
@given(events=EVENTS, gap=st.integers(1, 40), cut=st.integers(0, 30), most=st.integers(1, 40))
def test_sessions_do_not_depend_on_the_order_of_messages(
    events: list[Event], gap: int, cut: int, most: int
) -> None:
    rules = Rules(gap, most)
    whole = rules.grown([], sorted(events, key=lambda it: it.at_ms))
    held = from_text(to_text(rules.grown([], reversed(events[:cut]))))
    assert rules.grown(held, events[cut:]) == whole
    assert sum(it.messages for it in whole) == len(events)
    assert sum(it.size for it in whole) == sum(it.size for it in events)
    for one, other in itertools.pairwise(whole):
        assert other.begin_ms - one.end_ms >= gap
    for it in whole:
        inside = [e for e in events if it.begin_ms <= e.at_ms <= it.end_ms]
        assert len(inside) == it.messages
        times = sorted(e.at_ms for e in inside)
        assert all(b - a < gap for a, b in itertools.pairwise(times))
        values = sorted((e.at_ms, e.value) for e in inside if e.value is not None)
        assert it.values == values[:most]


@settings(deadline=None)
@given(events=EVENTS, watermark=st.integers(0, 400))
def test_what_is_done_can_be_joined_by_nothing(events: list[Event], watermark: int) -> None:
    rules = Rules(20, 5)
    done, still = rules.split(rules.grown([], events), watermark)
    assert all(it.end_ms + 20 <= watermark for it in done)
    assert all(it.end_ms + 20 > watermark for it in still)
    later = rules.grown(done, [Event(watermark, 1, None)])
    assert later[: len(done)] == done


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({**SOURCE}, "one of out and topic"),
        ({**SOURCE, "out": "/o", "topic": "t"}, "one of out and topic"),
        ({**SOURCE, "topic": "t"}, "checkpoint is needed"),
        ({**SOURCE, "topic": "orders", "checkpoint": "/c"}, "would be read again"),
        ({"subscribe": "orders", "out": "/o"}, "nameServers is needed"),
        ({"nameServers": "n:1", "out": "/o"}, "one of subscribe and subscribePattern"),
        ({**SOURCE, "out": "/o", "key": "body"}, "must be uniqKey, keys, tags"),
        ({**SOURCE, "out": "/o", "key": "$.a'); drop"}, "must be uniqKey, keys, tags"),
        ({**SOURCE, "out": "/o", "within": "0"}, "from 1 to"),
        ({**SOURCE, "out": "/o", "wihtin": "5"}, "did you mean: within"),
    ],
)
def test_dedup_options_that_are_wrong(options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        dedup.plan(options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({**SOURCE}, "out is needed"),
        ({**SOURCE, "out": "/o", "key": "uniqKey"}, "must be keys, tags or"),
        ({**SOURCE, "out": "/o", "collect": "body"}, "of a JSON body"),
        ({**SOURCE, "out": "/o", "time": "soon"}, "must be bornTimestamp, storeTimestamp or"),
        ({**SOURCE, "out": "/o", "gap": "-1"}, "from 1 to"),
    ],
)
def test_sessionize_options_that_are_wrong(options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sessionize.plan(options)


def test_plans_say_what_will_be_done() -> None:
    told = "\n".join(dedup.plan({**SOURCE, "topic": "once", "checkpoint": "/c", "within": "60"}))
    assert "the topic once" in told
    assert "uniqKey of a message less than 60 s before, by storeTimestamp" in told
    told = "\n".join(sessionize.plan({**SOURCE, "out": "/o", "gap": "60", "time": "$.at"}))
    assert "ended by 60 s without a message, by $.at" in told
    assert {"dedup", "sessionize"} <= {it.name for it in JOBS}
