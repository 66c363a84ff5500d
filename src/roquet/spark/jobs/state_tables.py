"""The options of `dedup` and `sessionize`. Pure, and quick to import."""

from __future__ import annotations

from typing import Final

from roquet.spark.option_table import Option, Table


def _text(name: str, default: str, doc: str) -> Option:
    return Option(name=name, default=default, doc=doc)


def _number(name: str, default: str, doc: str, low: int = 1, high: int = 2**62) -> Option:
    return Option(name=name, default=default, doc=doc, number=True, low=low, high=high)


_YEARS: Final = 10 * 366 * 86_400
_SOURCE: Final[Table] = (
    _text("nameServers", "needed", "the cluster whose topics are followed"),
    _text("subscribe", "", "topics by comma"),
    _text("subscribePattern", "", "a regular expression for whole topic names"),
    _text("startingOffsets", "earliest", "or latest, or JSON: where the first run begins"),
    _number("maxOffsetsPerTrigger", "200000", "messages of a micro-batch at most"),
)
_TIME: Final = _text(
    "time",
    "storeTimestamp",
    "the time of a message: bornTimestamp, storeTimestamp, or $.NAME of a JSON body (a text, or"
    " Unix milliseconds); a message without it has its store time",
)
_RUN: Final[Table] = (
    _number(
        "interval", "0", "seconds between micro-batches; 0: up to the present, then end", 0, 86_400
    ),
    _text("checkpoint", "OUT/_checkpoint", "folder for offsets and state; of this job alone"),
    _text("metricsPath", "", "folder of the driver for JOB.prom, lag.prom and progress.jsonl"),
    Option(name="dryRun", default="false", doc="say what would be done, and do nothing", flag=True),
)

DEDUP: Final[Table] = (
    *_SOURCE,
    _text(
        "key",
        "uniqKey",
        "what two messages that are the same have in common: uniqKey, keys, tags, bodyCRC, or"
        " $.NAME of a JSON body; one without it is never a repetition",
    ),
    _TIME,
    _number(
        "within",
        "3600",
        "seconds by time: how much later a repetition may come, and how late any message",
        1,
        _YEARS,
    ),
    _text("out", "", "folder for the messages (Parquet), or else `topic`"),
    _text("topic", "", "the topic that gets the messages; it may not be one that is read"),
    *_RUN,
)
SESSIONIZE: Final[Table] = (
    *_SOURCE,
    _text(
        "key",
        "keys",
        "whose sessions: keys (a message with several counts for each), tags, or $.NAME of a JSON"
        " body",
    ),
    _TIME,
    _number("gap", "1800", "seconds without a message that end a session", 1, _YEARS),
    _number("late", "3600", "seconds by time: how late a message may come", 0, _YEARS),
    _text("collect", "", "$.NAME of a JSON body: its values in order of time, a list a session"),
    _number("collectMax", "1000", "values kept of one session, the first", 1, 100_000),
    _text("out", "needed", "folder for the sessions (Parquet)"),
    *_RUN,
)
