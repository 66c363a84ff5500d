"""The options of `dedup`, `sessionize` and `cdc`. Pure, and quick to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roquet.spark.jobs.options.kinds import DRY_RUN, FORMAT, flag, number, text
from roquet.spark.jobs.options.lake import SCHEMAS
from roquet.spark.option_table import Option

if TYPE_CHECKING:
    from roquet.spark.option_table import Table

_YEARS: Final = 10 * 366 * 86_400
_SOURCE: Final[Table] = (
    text("nameServers", "needed", "the cluster whose topics are followed"),
    text("subscribe", "", "topics by comma"),
    text("subscribePattern", "", "a regular expression for whole topic names"),
    text("startingOffsets", "earliest", "or latest, or JSON: where the first run begins"),
    number("maxOffsetsPerTrigger", "200000", "messages of a micro-batch at most", 1),
)
_TIME: Final = text(
    "time",
    "storeTimestamp",
    "the time of a message: bornTimestamp, storeTimestamp, or $.NAME of a JSON body (a text, or"
    " Unix milliseconds); a message without it has its store time",
)
_RUN: Final[Table] = (
    number(
        "interval", "0", "seconds between micro-batches; 0: up to the present, then end", 0, 86_400
    ),
    text("checkpoint", "OUT/_checkpoint", "folder for offsets and state; of this job alone"),
    text("metricsPath", "", "folder of the driver for JOB.prom, lag.prom and progress.jsonl"),
    DRY_RUN,
)

DEDUP: Final[Table] = (
    *_SOURCE,
    text(
        "key",
        "uniqKey",
        "what two messages that are the same have in common: uniqKey, keys, tags, bodyCRC, or"
        " $.NAME of a JSON body; one without it is never a repetition",
    ),
    _TIME,
    number(
        "within",
        "3600",
        "seconds by time: how much later a repetition may come, and how late any message",
        1,
        _YEARS,
    ),
    text("out", "", "folder for the messages (Parquet), or else `topic`"),
    text("topic", "", "the topic that gets the messages; it may not be one that is read"),
    *_RUN,
)
SESSIONIZE: Final[Table] = (
    *_SOURCE,
    text(
        "key",
        "keys",
        "whose sessions: keys (a message with several counts for each), tags, or $.NAME of a JSON"
        " body",
    ),
    _TIME,
    number("gap", "1800", "seconds without a message that end a session", 1, _YEARS),
    number("late", "3600", "seconds by time: how late a message may come", 0, _YEARS),
    text("collect", "", "$.NAME of a JSON body: its values in order of time, a list a session"),
    number("collectMax", "1000", "values kept of one session, the first", 1, 100_000),
    text("out", "needed", "folder for the sessions (Parquet)"),
    *_RUN,
)
CDC: Final[Table] = (
    *_SOURCE,
    text("key", "needed", "columns of the table's key by comma; none of them may be null"),
    text(
        "table",
        "the first",
        "whose changes are kept, by comma, as `shop.orders` or `shop.public.orders` in `source`;"
        " without it those of another table than the first end the job",
    ),
    Option(
        name="body",
        default="json",
        doc="how envelopes are written: json, with `payload` or without, or avro",
        choices=("json", "avro"),
    ),
    text("columns", "", "body json: the table's columns as Spark DDL, `id bigint, name string`"),
    text("schema", "", "body avro: the envelope's schema as JSON, or the path of a file with it"),
    SCHEMAS,
    text("out", "needed", "folder of the table; it has the rows of one table"),
    FORMAT,
    number("buckets", "16", "parts of a new table: a change writes that of its key again", 1, 4096),
    flag(
        "failOnBadBodies",
        "end the job at a message that is no change, and merge nothing of its micro-batch; else it"
        " is kept in OUT/_bad and counted",
    ),
    *_RUN,
)
