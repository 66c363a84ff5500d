"""The options of `archive` and `replay`. Pure, and quick to import."""

from __future__ import annotations

from typing import Final

from roquet.spark.option_table import Option, Table

FORMATS: Final = ("parquet", "delta")
BODIES: Final = ("raw", "json")


def _text(name: str, default: str, doc: str) -> Option:
    return Option(name=name, default=default, doc=doc)


def _number(name: str, default: str, doc: str, low: int = 0, high: int = 2**62) -> Option:
    return Option(name=name, default=default, doc=doc, number=True, low=low, high=high)


def _flag(name: str, doc: str) -> Option:
    return Option(name=name, default="false", doc=doc, flag=True)


_FORMAT = Option(
    name="format",
    default="parquet",
    doc="what the lake is made of; delta is new and not yet in our tests",
    choices=FORMATS,
)
_DRY = _flag("dryRun", "say what would be done, and do nothing")

ARCHIVE: Final[Table] = (
    _text("out", "needed", "the lake: a folder of any file system that Spark knows"),
    _FORMAT,
    _text("nameServers", "", "archive topics of this cluster; without it only look after the lake"),
    _text("subscribe", "", "topics by comma"),
    _text("subscribePattern", "", "a regular expression for whole topic names"),
    _text(
        "startingOffsets",
        "earliest",
        "or latest, or JSON: where queues begin that the lake does not know; others go on",
    ),
    Option(
        name="failOnDataLoss",
        default="true",
        doc="whether messages that are gone before they were archived end the job",
        flag=True,
    ),
    _number("maxOffsetsPerTrigger", "200000", "messages of a micro-batch at most", 1),
    _number("interval", "0", "seconds between micro-batches; 0: up to the present, then end"),
    _text("checkpoint", "OUT/_checkpoint", "folder for Spark's offsets; not shared by two jobs"),
    Option(
        name="body",
        default="raw",
        doc="raw, or parsed into the column `value` as well, by `schema`",
        choices=BODIES,
    ),
    _text("schema", "", "of parsed bodies: Spark DDL, or the path of a file with it"),
    _flag("compact", "merge small files of each topic and day"),
    _number("targetBytes", "134217728", "compaction: size of a file, about", 1),
    _number("graceMinutes", "0", "compaction: how long replaced files stay for running readers"),
    _number("retainDays", "", "remove days that ended more than this many days ago", 1, 100_000),
    _flag("check", "compare the catalog with what can be read from the lake"),
    _flag("breakLock", "take over the lock of a compaction that was killed"),
    _text("metricsPath", "", "folder of the driver for archive.prom, lag.prom, progress.jsonl"),
    _DRY,
)
REPLAY: Final[Table] = (
    _text("lake", "needed", "the folder that `archive` filled"),
    _FORMAT,
    _text("nameServers", "needed", "the cluster that gets the messages"),
    _text("topic", "", "one topic for all of them; else each goes to the topic it came from"),
    _text("subscribe", "all", "which archived topics, by comma"),
    _number("startingTimestamp", "", "Unix milliseconds by store time: from here on"),
    _number("endingTimestamp", "", "Unix milliseconds by store time: before this"),
    _text("keys", "", "only messages with one of these keys, by comma"),
    _text("tags", "", "`a || b`: only messages with one of these tags"),
    _number("rate", "", "messages a second at most, over two seconds", 1, 10_000_000),
    _number("waveRows", "50000", "offsets between two notes of progress", 1, 10_000_000),
    _text("run", "needed", "names this replay: the same name goes on where it stopped"),
    _text("progress", "LAKE/_replays/RUN", "folder for what is done, in the lake or elsewhere"),
    _text("metricsPath", "", "folder of the driver for replay.prom"),
    _DRY,
)
