"""Options of `lag` and what it says of its rows; without a Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from roquet.base.errors import UsageError
from roquet.spark.jobs import lag
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.shared.metrics import Gauge
from roquet.spark.jobs.shared.page import Lines, write
from roquet.spark.jobs.watching.lag_page import duration, gauges, lines, page


class Row:
    """A row as Spark hands it over: by attribute and by name."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
GROUPS = [
    Row(
        group="g",
        topic='t"\n',
        queues=2,
        messagesLeft=70,
        consumedRate=2.0,
        producedRate=1.0,
        stoppedQueues=1,
        secondsToCatchUp=70.0,
    ),
    Row(group="new", topic="t", queues=1, messagesLeft=1, stoppedQueues=0),
]
ALERTS = [
    Row(kind="stopped", group="g", topic="t", brokerName="b", queueId=1, clientId="c", detail="d"),
    Row(kind="no offsets", group="new", detail="<nothing>"),
]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "one of nameServers and snapshots"),
        ({"snapshots": "/s"}, "out is needed"),
        ({"snapshots": "/s", "out": "s3://b/o"}, "report is needed"),
        ({"nameServers": "a:b:c", "out": "/o"}, "nameServers"),
        ({"snapshots": "/s", "out": "/o", "groups": "bad group"}, "groups = 'bad group'"),
        ({"snapshots": "/s", "out": "/o", "subscribePattern": "("}, "subscribePattern"),
        ({"snapshots": "/s", "out": "/o", "slowBelow": "101"}, "from 1 to 100"),
        ({"snapshots": "/s", "out": "/o", "maxlags": "1"}, "did you mean: maxLag"),
    ],
)
def test_options_that_are_wrong(options: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        lag.plan(options)


def test_the_plan_says_whether_snapshots_are_taken() -> None:
    first, *rest = lag.plan({"nameServers": "a:1", "out": "/o", "samples": "3", "groups": "g"})
    assert first == "take 3 snapshots of g of a:1, one every 10 s, and append them to /o/snapshots"
    assert rest == [
        it.replace("all groups", "g") for it in lag.plan({"snapshots": "/o/snapshots", "out": "/o"})
    ]


@pytest.mark.timeout(300)
def test_the_page_has_plots_and_shows_names_as_text() -> None:
    history = [
        Row(group="g", topic="t", at=BEGIN + timedelta(seconds=10 * step), messagesLeft=90 - step)
        for step in range(3)
    ]
    queues = [
        Row(group="g", topic="t", brokerName="b", queueId=1, messagesLeft=70, state="stopped")
    ]
    members = [Row(group="g", clientId="c", state="slow", messagesLeft=70, stoppedQueues=1)]
    made = page(
        "here", history=history, groups=GROUPS, queues=queues, members=members, alerts=ALERTS
    )
    assert made.cards[0] == ("2", "alerts")
    assert made.cards[2] == ("never", "until the last has caught up")
    left, *_ = made.charts
    assert isinstance(left, Lines)
    assert left.values == {"g": [90.0, 89.0, 88.0], "new": [None, None, None]}
    html = write(made)
    assert html.count("base64,") == 5
    assert "&lt;nothing&gt;" in html
    empty = page("here", history=[], groups=[], queues=[], members=[], alerts=[])
    assert "no snapshots" in write(empty)


def test_lines_name_the_place_of_an_alert() -> None:
    said = lines(GROUPS[1:], ALERTS)
    assert said == (
        "new t: 1 left, unknown consumed, unknown produced, catches up: never",
        "ALERT stopped: g t b queue 1 c: d",
        "ALERT no offsets: new: <nothing>",
        "2 alerts",
    )
    assert lines([], []) == ("no alert",)


def test_metrics_escape_labels_and_leave_out_what_is_unknown() -> None:
    text = metrics.text(gauges(GROUPS, ALERTS))
    assert 'roquet_lag_messages{group="g",topic="t\\"\\n"} 70\n' in text
    assert 'roquet_lag_alerts{kind="stopped"} 1\n' in text
    assert text.count("roquet_lag_catch_up_seconds{") == 1
    assert metrics.text([Gauge("a", "b", {(): 1.5})]) == "# HELP a b\n# TYPE a gauge\na 1.5\n"


def test_metrics_never_fail_a_job(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    metrics.write(str(tmp_path / "file"), "x.prom", [])
    assert "metrics are not written" in caplog.text
    metrics.write(str(tmp_path / "new"), "x.prom", [Gauge("a", "b", {(): 1})])
    assert (tmp_path / "new/x.prom").read_text().endswith("a 1\n")
    assert [it.name for it in (tmp_path / "new").iterdir()] == ["x.prom"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "never"),
        (0, "now"),
        (0.5, "under 1 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (1e6, "11.6 d"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
