"""The story of one message, and the steps that its time went into."""

from __future__ import annotations

import random

from roquet.spark.jobs.tracing.story import Sent, Tried, tell, words

SENT = Sent(msg_id="A", group="p", topic="t", host="h1", at=1000, cost=10)


def tried(group: str, at: int, cost: int | None, *, ok: bool, retry: int = 0) -> Tried:
    code = "SUCCESS" if ok else "FAILED"
    return Tried(
        msg_id="A", group=group, host="h2", at=at, cost=cost, success=ok, code=code, retry=retry
    )


def test_the_path_leads_to_the_group_that_was_done_last() -> None:
    tries = [
        tried("quick", 1020, 5, ok=True),
        tried("slow", 1030, 20, ok=False),
        tried("slow", 11_050, 50, ok=True, retry=1),
        tried("slow", 20_000, 5, ok=True, retry=2),
    ]
    story = tell("A", [SENT, Sent(msg_id="B", group="p", topic="t", host="h", at=1, cost=1)], tries)
    assert (story.group, story.total, len(story.steps)) == ("slow", 10_100, 5)
    assert [(step.what, step.span) for step in story.path] == [
        ("sent by p at h1", 10),
        ("until a consumer had it", 20),
        ("failed (FAILED) by slow at h2", 20),
        ("until it was tried again", 10_000),
        ("consumed by slow at h2, retry 1", 50),
    ]
    said = words(story)
    assert said[0] == "A of topic t: 10,100 ms in all"
    assert said[4] == "  +50 ms: until it was tried again, 10,000 ms (99%)"
    assert said[-1] == "  longest: until it was tried again"


def test_a_group_that_never_succeeded_is_the_last() -> None:
    tries = [tried("done", 5000, 5, ok=True), tried("stuck", 1100, None, ok=False)]
    story = tell("A", [SENT], tries)
    assert story.group == "stuck"
    assert story.path[-1].bad


def test_little_may_be_known() -> None:
    assert words(tell("A", [], [])) == ["A: nothing is known of it"]
    only_sent = tell("A", [SENT], [])
    assert only_sent.total == 10
    assert words(only_sent)[-1] == "  nobody is known to have consumed it"
    only_consumed = tell("A", [], [tried("g", 50, 5, ok=True)])
    assert (only_consumed.topic, only_consumed.total) == ("", 5)
    assert "(unknown)" in words(only_consumed)[0]


def test_steps_cover_the_way_exactly_once() -> None:
    chance = random.Random(9)
    for _ in range(500):
        tries = [
            tried(
                "g", SENT.at + chance.randrange(100), chance.randrange(30), ok=chance.random() < 0.5
            )
            for _ in range(chance.randrange(5))
        ]
        story = tell("A", [SENT], tries)
        assert sum(step.span for step in story.path) == story.total
        assert all(a.end == b.begin for a, b in zip(story.path, story.path[1:], strict=False))


def test_clocks_that_differ_are_shown_as_they_are() -> None:
    story = tell("A", [SENT], [tried("g", 900, 5, ok=True)])
    assert story.total == -95
    assert "%" not in "".join(words(story))
