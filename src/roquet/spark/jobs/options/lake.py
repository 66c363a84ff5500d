"""The options of `archive` and `replay`. Pure, and quick to import."""

from __future__ import annotations

from typing import Final

from roquet.spark.jobs.options.kinds import DRY_RUN, FORMAT, flag, number, text
from roquet.spark.option_table import Option, Table

BODIES: Final = ("raw", "json", "avro", "protobuf")
SCHEMAS: Final = text(
    "schemas",
    "",
    "body avro: bodies begin with a zero byte and the id of their schema in four (Confluent's"
    " form), and are read as `schema` has it: the folder of those schemas, as `7.avsc`, or the"
    " registry, as http://host:8081",
)


ARCHIVE: Final[Table] = (
    text("out", "needed", "the lake: a folder of any file system that Spark knows"),
    FORMAT,
    text("nameServers", "", "archive topics of this cluster; without it only look after the lake"),
    text("subscribe", "", "topics by comma"),
    text("subscribePattern", "", "a regular expression for whole topic names"),
    text(
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
    number("maxOffsetsPerTrigger", "200000", "messages of a micro-batch at most", 1),
    number("interval", "0", "seconds between micro-batches; 0: up to the present, then end", 0),
    text("checkpoint", "OUT/_checkpoint", "folder for Spark's offsets; not shared by two jobs"),
    Option(
        name="body",
        default="raw",
        doc="raw, or parsed into the column `value` as well, by `schema`",
        choices=BODIES,
    ),
    text(
        "schema",
        "",
        "of parsed bodies, or the path of a file with it: Spark DDL for json, without it the fields"
        " that bodies have; Avro's JSON; for protobuf a file of `protoc --descriptor_set_out"
        " --include_imports`",
    ),
    text("message", "", "body protobuf: the full name of the message's type"),
    SCHEMAS,
    flag(
        "failOnBadBodies",
        "end the job at a body that is not as the schema says, and archive nothing of its"
        " micro-batch; else it is kept in the lake's table of bad bodies and counted",
    ),
    flag("compact", "merge small files of each topic and day"),
    number("targetBytes", "134217728", "compaction: size of a file, about", 1),
    number("graceMinutes", "0", "compaction: how long replaced files stay for running readers", 0),
    number("retainDays", "", "remove days that ended more than this many days ago", 1, 100_000),
    flag("check", "compare the catalog with what can be read from the lake"),
    flag("breakLock", "take over the lock of a compaction that was killed"),
    text("metricsPath", "", "folder of the driver for archive.prom, lag.prom, progress.jsonl"),
    DRY_RUN,
)
REPLAY: Final[Table] = (
    text("lake", "needed", "the folder that `archive` filled"),
    FORMAT,
    text("nameServers", "needed", "the cluster that gets the messages"),
    text("topic", "", "one topic for all of them; else each goes to the topic it came from"),
    text("subscribe", "all", "which archived topics, by comma"),
    number("startingTimestamp", "", "Unix milliseconds by store time: from here on", 0),
    number("endingTimestamp", "", "Unix milliseconds by store time: before this", 0),
    text("keys", "", "only messages with one of these keys, by comma"),
    text("tags", "", "`a || b`: only messages with one of these tags"),
    number("rate", "", "messages a second at most, over two seconds", 1, 10_000_000),
    number("waveRows", "50000", "offsets between two notes of progress", 1, 10_000_000),
    text("run", "needed", "names this replay: the same name goes on where it stopped"),
    text("progress", "LAKE/_replays/RUN", "folder for what is done, in the lake or elsewhere"),
    text("metricsPath", "", "folder of the driver for replay.prom"),
    DRY_RUN,
)
