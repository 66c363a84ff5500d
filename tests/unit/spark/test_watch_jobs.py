"""Options of `dlq` and `trace`, and what they say of their rows; without a Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from roquet.base.errors import UsageError
from roquet.cli import app
from roquet.spark.jobs import dlq, trace
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.page import Bars, Spans, write
from roquet.spark.jobs.tracing import page as trace_page
from roquet.spark.jobs.tracing.story import Sent, Tried, tell
from roquet.spark.jobs.watching import dlq_page

if TYPE_CHECKING:
    from collections.abc import Sequence


class Row:
    """A row as Spark hands it over: by attribute and by name; None for what is not given."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@pytest.mark.parametrize(
    ("job", "options", "why"),
    [
        (dlq, {}, "one of nameServers and lake"),
        (dlq, {"lake": "/l"}, "out is needed"),
        (dlq, {"lake": "/l", "out": "/o", "groups": "bad group"}, "groups"),
        (dlq, {"lake": "/l", "origin": "/o"}, "did you mean: originals"),
        (trace, {}, "one of nameServers and store"),
        (trace, {"store": "/s", "nameServers": "a:1"}, "and not both"),
        (trace, {"store": "/s"}, "out is needed"),
        (trace, {"store": "/s", "out": "/o", "key": "two words"}, "one key or id"),
        (trace, {"nameServers": "a:1", "out": "/o", "traceTopic": "bad topic"}, "subscribe"),
        (trace, {"store": "/s", "out": "hdfs://x/o"}, "report is needed"),
    ],
)
def test_options_that_are_wrong(job: Any, options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        job.plan(options)


def test_a_dry_run_prints_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--store", "/s", "--out", "/o", "--key", "k", "--dry-run"]
    assert app.run(["pipeline", "run", "trace", *words]) == 0
    shown = capsys.readouterr().out
    assert "read RMQ_SYS_TRACE_TOPIC from /s (roquet-log), about all topics" in shown
    assert "the key k" in shown
    words = ["--lake", "/l", "--originals", "/a", "--out", "/o", "--dry-run"]
    assert app.run(["pipeline", "run", "dlq", *words]) == 0
    shown = capsys.readouterr().out
    assert "look for their originals in /a and /l" in shown
    words = ["--name-servers", "a:1", "--out", "/o", "--dry-run"]
    assert app.run(["pipeline", "run", "lag", *words]) == 0
    assert "take 5 snapshots of all groups" in capsys.readouterr().out


CAUSE = Row(
    group="g",
    originTopic="t",
    cause="failed <b>",
    letters=3,
    messages=2,
    originalsGone=1,
    firstDead=datetime(2026, 5, 1, tzinfo=UTC),
    lastDead=datetime(2026, 5, 2, tzinfo=UTC),
    retriesMax=16,
    secondsToDeathP50=90.0,
)


@pytest.mark.timeout(300)
def test_the_page_of_dead_letters() -> None:
    letter = Row(
        storeTimestamp=datetime(2026, 5, 2, tzinfo=UTC),
        group="g",
        originTopic="t",
        retries=16,
        cause="c",
        body=b"<script>\xff" + b"x" * 500,
    )
    over_time = [Row(at=1000, group="g", letters=3)]
    html = write(
        dlq_page.page(
            "here", causes=[CAUSE], over_time=over_time, letters=[letter], unreadable=["%DLQ%z"]
        )
    )
    assert html.count("base64,") == 3
    assert "without read permission: %DLQ%z" in html
    assert "<script>" not in html
    empty = dlq_page.page("here", causes=[], over_time=[], letters=[], unreadable=["%DLQ%z"])
    assert "here: no dead letters · without read permission: %DLQ%z" in write(empty)
    assert dlq_page.lines([CAUSE], ["%DLQ%z"], "last") == (
        "g t: 3 failed <b>, up to 16 retries, 1 originals gone",
        "%DLQ%z cannot be read: it has no read permission",
        "last",
    )
    text = metrics.text(dlq_page.gauges([CAUSE]))
    assert 'roquet_dlq_letters{group="g",topic="t",cause="failed <b>"} 3\n' in text


@pytest.mark.timeout(300)
def test_the_page_of_traces_draws_the_path() -> None:
    sent = Sent(msg_id="A", group="p", topic="t", host="h", at=1000, cost=10)
    failed = Tried(
        msg_id="A", group="c", host="h", at=1100, cost=5, success=False, code="EXCEPTION"
    )
    done = Tried(msg_id="A", group="c", host="h", at=1500, cost=5, success=True, code="SUCCESS")
    story = tell("A", [sent], [failed, done])
    latency = Row(producerGroup="p", topic="t", consumerGroup="c", messages=2, consumed=1, p99=505)
    failure = Row(group="c", host="h", code="EXCEPTION", consumptions=1, messages=1)
    counts = {"sends": 1, "consumptions": 2, "damaged": 0}
    made = trace_page.page(
        "here",
        counts=counts,
        over_time=[Row(at=1000, messages=1, p50=505, p99=505)],
        latencies=[latency],
        failures=[failure],
        damaged=[],
        stories=[story],
    )
    spans, *_ = made.charts
    assert isinstance(spans, Spans)
    assert spans.begins == [0, 10, 100, 105, 500]
    assert spans.ends == [10, 100, 105, 500, 505]
    html = write(made)
    assert html.count("base64,") == 5
    said = trace_page.lines(counts, [latency], [failure], [story], "k")
    assert said[0] == "1 sends, 2 consumptions, 0 unreadable"
    assert said[2] == "FAILED c  at h: 1 EXCEPTION"
    assert said[1].startswith("p at None to t to c at None: 1 of 2 messages")
    unknown = trace_page.lines(counts, [], [], [], "nowhere")
    assert unknown[-1] == "nothing is known of the key nowhere"
    text = metrics.text(trace_page.gauges([latency], [failure]))
    assert 'roquet_trace_failed{group="c",topic="",code="EXCEPTION"} 1\n' in text
    assert text.count("roquet_trace_latency_p50_ms{") == 0
    nothing = dict.fromkeys(counts, 0)
    empty = trace_page.page(
        "here", counts=nothing, over_time=[], latencies=[], failures=[], damaged=[], stories=[]
    )
    assert "no traces" in write(empty)


def test_each_row_of_a_chart_has_a_name_of_its_own() -> None:
    def bars(latencies: Sequence[Row], failures: Sequence[Row]) -> list[Sequence[str]]:
        counts = {"sends": 1, "consumptions": 1, "damaged": 0}
        made = trace_page.page(
            "here",
            counts=counts,
            over_time=[],
            latencies=latencies,
            failures=failures,
            damaged=[],
            stories=[],
        )
        return [chart.names for chart in made.charts if isinstance(chart, Bars)]

    def latency(producer: str, consumer: str, topic: str) -> Row:
        hosts = {"producerHost": producer, "consumerHost": consumer}
        return Row(producerGroup="p", consumerGroup="c", topic=topic, p99=5, **hosts)

    def failure(host: str, topic: str) -> Row:
        return Row(group="c", host=host, topic=topic, code="FAILED", consumptions=1, messages=1)

    plain = bars([latency("a", "x", "t"), latency("a", "y", "t")], [failure("x", "t")])
    assert plain == [["c at x", "c at y"], ["c FAILED"]]
    hosts = bars(
        [latency("a", "x", "t"), latency("b", "x", "t")], [failure("x", "t"), failure("y", "t")]
    )
    assert hosts == [["p at a to c at x", "p at b to c at x"], ["c at x FAILED", "c at y FAILED"]]
    topics = bars(
        [latency("a", "x", "t"), latency("a", "x", "u")], [failure("x", "t"), failure("x", "u")]
    )
    assert topics == [
        ["t: p at a to c at x", "u: p at a to c at x"],
        ["c t at x FAILED", "c u at x FAILED"],
    ]
