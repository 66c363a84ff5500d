"""Options of the jobs that watch consumers: `lag`, `dlq`, `trace`. Pure, and quick to import."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roquet.base.errors import UsageError
from roquet.protocol.names import TRACE_TOPIC
from roquet.spark.jobs.options import kinds
from roquet.spark.jobs.options.kinds import DRY_RUN, PRESENCE
from roquet.spark.option_table import STORAGE, Given, Option, Table

_METRICS: Final = Option(
    name="metricsPath", default="", doc="a folder of the driver for roquet_JOB.prom (Prometheus)"
)
_PAGE: Table = (
    Option(name="out", default="needed", doc="folder for the tables (Parquet) and the report"),
    Option(name="report", default="OUT/report.html", doc="the report's file"),
)


def _times(what: str) -> Table:
    return (
        Option(
            name="startingTimestamp",
            default="",
            doc=f"Unix milliseconds: {what} from here on",
            number=True,
        ),
        Option(
            name="endingTimestamp",
            default="",
            doc=f"Unix milliseconds: {what} before this",
            number=True,
        ),
    )


LAG: Final[Table] = (
    Option(
        name="nameServers",
        default="",
        doc="take snapshots of this cluster; without it, only the table is looked at",
    ),
    Option(name="groups", default="all", doc="consumer groups by comma"),
    Option(name="subscribe", default="all", doc="topics by comma"),
    Option(name="subscribePattern", default="", doc="a regular expression for whole topic names"),
    kinds.number("samples", "5", "how many snapshots are taken", 1, 100_000),
    kinds.number("interval", "10", "seconds from one snapshot to the next", 1, 86_400),
    Option(
        name="snapshots",
        default="OUT/snapshots",
        doc="the table (Parquet) that snapshots are appended to and read from",
    ),
    *_times("snapshots taken"),
    kinds.number(
        "window", "3600", "rates and states are those of the last so many seconds", 1, 31_536_000
    ),
    kinds.number(
        "maxLag", "10000", "alert when a group has more messages of a topic before it", 0, 2**62
    ),
    kinds.number(
        "maxCatchUp", "600", "alert when catching up takes more seconds, or never ends", 1, 2**62
    ),
    kinds.number(
        "stoppedAfter", "60", "alert when a queue with messages stands still so long", 1, 2**62
    ),
    kinds.number(
        "slowBelow", "50", "a member is slow below so many per cent of its group's mean", 1, 100
    ),
    kinds.number("ignoreLag", "100", "with fewer messages nothing is slow", 0, 2**62),
    *_PAGE,
    _METRICS,
    DRY_RUN,
)
DLQ: Final[Table] = (
    Option(name="nameServers", default="", doc="live dead letters of this cluster"),
    Option(
        name="lake",
        default="",
        doc="instead: a Parquet folder with the columns of the source that has them",
    ),
    Option(name="groups", default="all", doc="consumer groups by comma, without %DLQ%"),
    Option(
        name="originals",
        default="",
        doc="a Parquet folder with the columns of the source; what is not in it is looked for in"
        " the live topics",
    ),
    Option(
        name="traces",
        default="",
        doc="what the job trace has written: how consumption failed becomes the cause",
    ),
    Option(
        name="causeProperty",
        default="",
        doc="a property of messages in which your consumers say the cause",
    ),
    *_times("dead letters stored"),
    *PRESENCE,
    *_PAGE,
    _METRICS,
    DRY_RUN,
)
TRACE: Final[Table] = (
    Option(name="nameServers", default="", doc="the live trace topic of this cluster"),
    Option(name="store", default="", doc="instead: store folders by comma, without a broker"),
    *STORAGE,
    Option(name="traceTopic", default=TRACE_TOPIC, doc="the topic that clients trace to"),
    Option(name="subscribe", default="all", doc="only messages of these topics, by comma"),
    Option(name="key", default="", doc="tell the story of the messages with this key or id"),
    *_times("trace messages stored"),
    *PRESENCE,
    *_PAGE,
    _METRICS,
    DRY_RUN,
)


def number(given: Given, table: Table, name: str) -> int:
    """Return a number, or the default that the table has for it. Raises UsageError."""
    found = given.number(name)
    return next(int(it.default) for it in table if it.name == name) if found is None else found


def out_and_report(given: Given) -> tuple[str, Path]:
    """Return the folder of tables and the page's file. Raises UsageError."""
    out, report = given.text("out"), given.text("report")
    if not out:
        raise UsageError("out is needed: the folder for tables and report")
    if report is None and "://" in out:
        raise UsageError("report is needed when out is no folder of this machine")
    return out, Path(report or Path(out) / "report.html")
