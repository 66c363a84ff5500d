"""The jobs and every option of each: name, values, default, meaning. Pure, and quick to import."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.options.kinds import DRY_RUN, PRESENCE, metrics
from roquet.spark.jobs.options.lake import ARCHIVE, REPLAY
from roquet.spark.jobs.options.state import CDC, DEDUP, SESSIONIZE
from roquet.spark.jobs.options.watch import DLQ, LAG, TRACE
from roquet.spark.option_table import STORAGE, Option, Table, suggestions

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME_MAX: Final = 64

_TOPICS: Table = (
    Option(name="subscribe", default="", doc="topics by comma"),
    Option(name="subscribePattern", default="", doc="a regular expression for whole topic names"),
)
_TIMES: Table = (
    Option(
        name="startingTimestamp",
        default="",
        doc="Unix milliseconds by store time: from here on",
        number=True,
    ),
    Option(
        name="endingTimestamp",
        default="",
        doc="Unix milliseconds by store time: before this",
        number=True,
    ),
)

STATS: Final[Table] = (
    Option(name="nameServers", default="", doc="live topics of this cluster, or else `store`"),
    Option(name="store", default="", doc="store folders by comma: commit logs without a broker"),
    *STORAGE,
    *_TOPICS,
    *_TIMES,
    *PRESENCE,
    Option(name="out", default="needed", doc="folder for the tables (Parquet) and the report"),
    Option(name="report", default="OUT/report.html", doc="the report's file"),
    Option(
        name="top",
        default="20",
        doc="how many hot keys of a topic are kept",
        number=True,
        low=1,
        high=1000,
    ),
    Option(
        name="traceTopic",
        default="",
        doc="the topic that clients trace to, ordinarily `RMQ_SYS_TRACE_TOPIC`: with it messages"
        " are counted by producer group too",
    ),
    metrics("stats.prom"),
    DRY_RUN,
)
AUDIT: Final[Table] = (
    Option(
        name="left",
        default="needed",
        doc="what should be there: store:FOLDER, topic:NAMESERVERS or lake:FOLDER (Parquet)",
    ),
    Option(name="right", default="needed", doc="what is there, in the same way"),
    *_TOPICS,
    *_TIMES,
    Option(
        name="brokerName",
        default="",
        doc="only this broker's queues; what a store is called, which does not know it",
    ),
    *PRESENCE,
    Option(name="out", default="needed", doc="folder for the tables queues and differences"),
    Option(
        name="show",
        default="1000",
        doc="how many queues and differences are printed; the tables have all",
        number=True,
        low=1,
        high=1_000_000,
    ),
    metrics("audit.prom"),
    DRY_RUN,
)
REBUILD: Final[Table] = (
    Option(
        name="store",
        default="needed",
        doc="the dead broker's store or commitlog folder; several folders of one log by `:`",
    ),
    Option(name="out", default="needed", doc="the new store's folder; it must not be there yet"),
    Option(name="report", default="OUT.report", doc="folder for damage, queues and unplaced"),
    Option(
        name="log",
        default="copy",
        doc="how commit-log files get there: `link` gives the same files a second name",
        choices=("copy", "link"),
    ),
    Option(name="index", default="full", doc="whether keys are indexed", choices=("full", "none")),
    Option(
        name="mappedFileSizeConsumeQueue",
        default="6000000",
        doc="bytes of a queue file, as the broker that opens the store is set",
        number=True,
        low=20,
        high=1 << 30,
    ),
    Option(
        name="maxHashSlotNum",
        default="5000000",
        doc="slots of an index file, as the broker is set",
        number=True,
        low=1,
        high=1 << 30,
    ),
    Option(
        name="maxIndexNum",
        default="20000000",
        doc="entries of an index file, as the broker is set",
        number=True,
        low=2,
        high=1 << 30,
    ),
    Option(
        name="messageDelayLevel",
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        doc="delay levels, as the broker is set",
    ),
    metrics("rebuild.prom"),
    DRY_RUN,
)
_ALERTS: Final = "0 no alert, 1 alerts"
_LETTERS: Final = "0 no dead letters, 1 dead letters, or a topic was made anew meanwhile"
_KNOWN: Final = "0 done, 1 nothing is known of the key, or the topic was made anew meanwhile"
_COUNTED: Final = "0 done, 1 a topic was made anew meanwhile"
_CHANGES: Final = "0 done, 1 messages were no changes and are left out"
_LATE: Final = "0 done, 1 messages came too late and are left out"


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One job: its name, what it does in a line, its options and what its exit codes mean."""

    name: str
    doc: str
    options: Table
    codes: str = "0 done"


JOBS: Final = (
    Job(
        "stats",
        "count messages by topic, queue, tag, producer, minute and key; report with plots",
        STATS,
        _COUNTED,
    ),
    Job(
        "audit",
        "compare two of topic, store and lake; name every message that differs",
        AUDIT,
        "0 no difference, 1 differences",
    ),
    Job(
        "archive",
        "topics into a lake, exactly once; compaction, retention, a checked catalog",
        ARCHIVE,
        "0 done, 1 catalog and lake differ",
    ),
    Job("replay", "an archive back into topics, from where it stopped", REPLAY),
    Job(
        "rebuild",
        "make a store that a broker opens out of commit-log files alone",
        REBUILD,
        "0 all of the log, 1 without what is damaged or has no queue",
    ),
    Job("lag", "how far groups are behind, over time; slow members, alerts", LAG, _ALERTS),
    Job("dlq", "dead letters by cause, with their retries; a list to resubmit", DLQ, _LETTERS),
    Job("trace", "latency and failures from the trace topic; the story of a key", TRACE, _KNOWN),
    Job("dedup", "topics without the messages that came twice", DEDUP, _LATE),
    Job("cdc", "changes of a database's table (Debezium) into a table of its rows", CDC, _CHANGES),
    Job("sessionize", "messages of a key that follow one another, as rows", SESSIONIZE, _LATE),
)


def job(name: str) -> Job:
    """Return a job. Raises UsageError for an unknown name, listing near ones."""
    for it in JOBS:
        if it.name == name:
            return it
    known = suggestions(name, [it.name for it in JOBS])
    raise UsageError(f"unknown job {name[:NAME_MAX]!r}; did you mean: {', '.join(known)}?")


def given(words: Sequence[str], table: Table) -> dict[str, str]:
    """Read `--name value`, `--name=value` and `--flag` words; dashes inside a name do not count.

    Raises UsageError for a word that is no option, an option without value or given twice. Whether
    names are known is for Given to say.
    """
    flags = {option.name.lower() for option in table if option.flag}
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            raise UsageError(f"{word[:80]!r} is no option: options are --name value")
        shown, has_value, value = word[2:].partition("=")
        name = shown.replace("-", "").lower()
        if not has_value:
            if name in flags:
                value = "true"
            elif rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif name in {option.name.lower() for option in table}:
                raise UsageError(f"--{shown[:80]} needs a value")
        if name in found:
            raise UsageError(f"--{shown[:80]} is given twice")
        found[name] = value
    return found
