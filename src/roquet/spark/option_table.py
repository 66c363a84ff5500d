"""Every option of the Spark sources and sinks: name, values, default, meaning. Pure.

The tables are what options are checked against and what docs/reference/spark-options.md is
written from. Names are those of Spark's Kafka connector where the meaning is the same. Spark hands
them over in lower case, so case never matters.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARTITIONERS: Final = ("none", "key", "queue")
DELIVERIES: Final = ("at-least-once", "transactional", "idempotent")
UNIQUE_KEYS: Final = ("random", "plan")
LOG_TABLES: Final = ("messages", "damage")
META_TABLES: Final = ("brokers", "topics", "queues", "groups", "members")
ENGINE: Final = frozenset(
    {
        "checkpointlocation",
        "collation",
        "comment",
        "external",
        "is_managed_location",
        "location",
        "owner",
        "path",
        "provider",
        "queryname",
        "serialization.format",
        "transient_lastddltime",
    }
)
"""What Spark itself passes along, for a table of its catalog too."""
ENGINE_PREFIX: Final = "option."
"""Spark repeats the options of `CREATE TABLE` under names that begin with this."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `low` to `high` are the limits of a number; `choices` the only values."""

    name: str
    default: str
    doc: str
    number: bool = False
    flag: bool = False
    low: int = 0
    high: int = 2**62
    choices: tuple[str, ...] = ()


Table = tuple[Option, ...]

TIME_MAX: Final = 2**62
"""Unix milliseconds."""
_DURATION: Final = re.compile(r"([0-9]{1,12}) ?(ms|s|m|h)?")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def _number(name: str, default: str, doc: str, low: int = 1, high: int = 2**62) -> Option:
    return Option(name=name, default=default, doc=doc, number=True, low=low, high=high)


def _flag(name: str, default: str, doc: str) -> Option:
    return Option(name=name, default=default, doc=doc, flag=True)


def _text(name: str, default: str, doc: str) -> Option:
    return Option(name=name, default=default, doc=doc)


_WIRE: Table = (
    _text("nameServers", "needed", "`host:port`, several by `;`, `rmq://` in front allowed"),
    _number("timeoutMs", "10000", "milliseconds that one request may take", 1, 3_600_000),
    _number("fetchOffset.numRetries", "10", "how often a request is tried again", 0, 1000),
    _number("fetchOffset.retryIntervalMs", "500", "milliseconds between tries", 0, 60_000),
    _number(
        "unreachableTimeoutMs",
        "120000",
        "milliseconds to wait for a broker or name server that is away, before an error names it",
        0,
        86_400_000,
    ),
    _text(
        "credentials",
        "",
        "the name of keys in the environment of driver and workers: `north` means"
        " `ROQUET_ACCESS_KEY_NORTH` and `ROQUET_SECRET_KEY_NORTH`, or"
        " `ROQUET_CREDENTIALS_FILE_NORTH`; without it those without a name",
    ),
)
_SUBSCRIBE = _text("subscribe", "", "topics by comma")
_PATTERN = _text("subscribePattern", "", "a regular expression that the whole topic name matches")
_USERS_PATTERN = _text(
    "subscribePattern",
    "",
    "a regular expression that the whole topic name matches; system topics are left out, name them"
    " in `subscribe`",
)
_TIMES: Table = (
    _number("startingTimestamp", "", "Unix milliseconds by store time: from here on", 0),
    _number("endingTimestamp", "", "Unix milliseconds by store time: before this", 0),
)
_COLUMNS: Table = (
    _text(
        "columns",
        "all",
        "columns by comma; what is left out is never decoded, and not sent by Roquet brokers",
    ),
    _flag("includeBody", "true", "whether there is a column `body`"),
    _flag("includeHeaders", "true", "whether there is a column `properties`"),
    _text("tags", "*", "`a || b`: only messages with one of these tags"),
)
_SPLIT: Table = (
    _number("minPartitions", "", "about how many tasks share the work, at least"),
    _number(
        "maxBytesPerBatch",
        "33554432",
        "bytes of one Arrow batch; a task needs a few times as much memory",
        1 << 16,
        1 << 30,
    ),
)

SOURCE: Final[Table] = (
    *_WIRE,
    _SUBSCRIBE,
    _USERS_PATTERN,
    _text("assign", "", 'queues: `{"topic": {"broker": [0, 1]}}`'),
    _text(
        "brokers",
        "",
        "brokers by comma that a read must see: one that is away is waited for, then an error; for"
        " a stream also the only ones of its last plan that are waited for. Without it, a read that"
        " has no plan yet waits for the brokers that our name server says have left",
    ),
    _text(
        "startingOffsets",
        "batch `earliest`, stream `latest`",
        'or JSON `{"topic": {"broker": {"0": 5}}}`, -2 earliest, -1 latest; queues not named:'
        " earliest. A stream uses it only when it has no checkpoint",
    ),
    _text(
        "endingOffsets",
        "`latest`",
        "batch only, same JSON; the end is not part of the range; queues not named: latest",
    ),
    _text(
        "startingTimestamp",
        "",
        'Unix milliseconds by store time: from here on; or JSON `{"topic": 1700000000000}`, topics'
        " not named: earliest",
    ),
    _text(
        "endingTimestamp",
        "",
        "Unix milliseconds by store time: before this; or JSON as above, topics not named: latest",
    ),
    _number(
        "maxOffsetsPerTrigger",
        "",
        "offsets of a micro-batch, shared out by backlog; each queue with messages gets one at"
        " least, even beyond the limit",
    ),
    _number(
        "maxBytesPerTrigger",
        "",
        "stored bytes of a micro-batch, by the mean size of messages at its beginning; instead of"
        " maxOffsetsPerTrigger",
    ),
    _number(
        "minOffsetsPerTrigger",
        "",
        "stream: a micro-batch waits until so many offsets are there, but for `maxTriggerDelay` at"
        " most; not with Trigger.AvailableNow and Trigger.Once",
    ),
    _text(
        "maxTriggerDelay",
        "15m",
        "how long messages wait for `minOffsetsPerTrigger`: `500ms`, `30s`, `15m`, `2h`",
    ),
    *_SPLIT,
    _number("maxRecordsPerPartition", "", "offsets of one task at most"),
    _flag(
        "failOnDataLoss",
        "true",
        "whether messages that are gone, or a topic that was made anew, fail the query",
    ),
    *_COLUMNS,
    _text("sql", "", "an SQL92 expression that the broker evaluates; instead of `tags`"),
    _flag("pushdown", "false", "batch: take filters from Spark, whose conf has to allow it"),
    _text("metricsPath", "", "stream: a folder of the driver for progress.jsonl and lag.prom"),
    _text("group", "TOOLS_CONSUMER", "the group that brokers see; nothing is committed to it"),
    _text(
        "reportGroup",
        "",
        "stream: a consumer group of its own to which the driver commits what micro-batches have"
        " read, so that every tool shows the lag; a stream never reads it back",
    ),
)
STORAGE: Final[Table] = (
    _text("storageEndpoint", "", "S3: `http://host:port` of another service than Amazon's"),
    _text("storageRegion", "", "S3: the region; without it that of the environment or the bucket"),
    _text(
        "storageCredentials",
        "",
        "S3 and Azure: the name of keys in the environment of driver and workers, as `credentials`"
        " of `roquet` are named; without it what the file system finds by itself"
        " (`AWS_ACCESS_KEY_ID`, profiles, roles)",
    ),
)
"""Where an object store is, and whose keys open it."""
LOG: Final[Table] = (
    _text(
        "path",
        "needed",
        "store folders or commitlog folders by comma: of a disk, the same everywhere, or URIs"
        " (`s3a`, `s3`, `gs`, `abfss`, `hdfs`, what fsspec has) of copies that nobody writes",
    ),
    *STORAGE,
    Option(name="table", default="messages", doc="rows: records, or ranges", choices=LOG_TABLES),
    Option(
        name="onCorrupt",
        default="fail",
        doc="what a damaged range does to `messages`; `damage` always has it",
        choices=("fail", "report"),
    ),
    _SUBSCRIBE,
    _USERS_PATTERN,
    *_TIMES,
    *_COLUMNS,
    *_SPLIT,
    _text("brokerName", "", "what the column `brokerName` says: files do not know it"),
)
META: Final[Table] = (
    *_WIRE,
    Option(name="table", default="queues", doc="which table", choices=META_TABLES),
    _SUBSCRIBE,
    _PATTERN,
    _text("groups", "all", "consumer groups by comma"),
)
SINK: Final[Table] = (
    *_WIRE,
    _text("topic", "", "for rows without a column `topic`"),
    Option(
        name="partitioner",
        default="none",
        doc="batches in turn over queues and brokers, each task beginning with another queue; by"
        " the first key; or by the columns `queueId` and `brokerName`",
        choices=PARTITIONERS,
    ),
    _text(
        "brokerName",
        "",
        "the broker that rows go to; with `queue` for rows without a column `brokerName`",
    ),
    Option(
        name="uniqueKeys",
        default="plan",
        doc="unique keys of rows without a column `uniqKey`: `plan` makes them of run, partition"
        " and row, so that a repeated task makes the same ones; `random` as clients make them",
        choices=UNIQUE_KEYS,
    ),
    _text("runId", "", "with `plan`: names the run; a stream has its query and micro-batch"),
    _text("group", "roquet_spark", "the producer group"),
    _number(
        "maxRowsPerSecond",
        "",
        "rows that each task sends in a second at most; Spark runs as many tasks at a time as it"
        " has cores",
        high=1_000_000_000,
    ),
    Option(
        name="delivery",
        default="at-least-once",
        doc="`transactional`: rows are half messages that the commit of the write releases, so that"
        " no row comes twice; `idempotent`: brokers of Roquet store each row once, the rows of a"
        " queue all from one task (`roquet.spark.once.by_queue`)",
        choices=DELIVERIES,
    ),
    _text(
        "transactionPath",
        "checkpointLocation/roquet-sink",
        "with `transactional` and `idempotent`: a folder of the driver that keeps what was decided;"
        " a batch needs it and `runId`",
    ),
    _text("metricsPath", "", "a folder of the driver for sink.prom, figures for Prometheus"),
)


_SECONDS: Final = range(1_000_000_000, 10_000_000_000)
"""Unix seconds of 2001 to 2286; milliseconds of some weeks of 1970, which no message has."""
_ELSEWHERE: Final = {
    "bootstrap.servers": "nameservers",
    "kafka.bootstrap.servers": "nameservers",
    "kafka.group.id": "group",
    "kafka.topic": "subscribe",
    "namesrv": "nameservers",
    "namesrvaddr": "nameservers",
    "namesrv_addr": "nameservers",
    "topics": "subscribe",
    "topic": "subscribe",
}
"""What other connectors and clients call the same, in lower case."""


def suggestions(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three near names, or all of them when none is near."""
    names = list(known)
    if (same := _ELSEWHERE.get(name.lower())) in names:
        return [same]
    return difflib.get_close_matches(name, names, n=3) or names


def _no_seconds(name: str, time: int) -> int:
    """Return a time. Raises UsageError for seconds, which would be in 1970 and read everything."""
    if time in _SECONDS:
        raise UsageError(f"{name} = {time}: in seconds; Unix milliseconds are {time}000")
    return time


class Given:
    """Given options, found by name in any case and checked against a table."""

    def __init__(self, given: Mapping[str, str], table: Table, beside: Table = ()) -> None:
        """Raise UsageError for a name that is not in the table, listing near ones.

        Names in `beside` have no effect: a table of SQL has the options of reading and of writing
        in one list.
        """
        others = {option.name.lower() for option in beside}
        self._given = {name.lower(): value for name, value in given.items()}
        self._table = {option.name.lower(): option for option in table}
        for name in self._given:
            engines = name in ENGINE or name.startswith(ENGINE_PREFIX)
            if name not in self._table and name not in others and not engines:
                known = [self._table[item].name for item in suggestions(name, self._table)]
                raise UsageError(f"unknown option {name[:80]!r}; did you mean: {', '.join(known)}?")

    def text(self, name: str) -> str | None:
        """Return the value without blanks around it; None when it is not given."""
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def number(self, name: str) -> int | None:
        """Return a whole number within the limits. Raises UsageError."""
        value, option = self.text(name), self._table[name.lower()]
        if value is None:
            return None
        if not (
            value.isascii() and value.isdigit() and option.low <= int(value[:20]) <= option.high
        ):
            raise UsageError(
                f"{name} = {value[:80]!r}: must be a whole number from {option.low} to"
                f" {option.high}"
                + (", Unix milliseconds as 1700000000000" if name.endswith("Timestamp") else "")
            )
        return _no_seconds(name, int(value)) if name.endswith("Timestamp") else int(value)

    def milliseconds(self, name: str) -> int:
        """Return a length of time: a number with ms, s, m or h; bare, milliseconds.

        Raises UsageError.
        """
        value = self.text(name) or self._table[name.lower()].default
        found = _DURATION.fullmatch(value)
        if found is None:
            raise UsageError(f"{name} = {value[:80]!r}: must be a time as 500ms, 30s, 15m or 2h")
        return int(found[1]) * _UNITS[found[2] or "ms"]

    def timestamps(self, name: str) -> int | dict[str, int] | None:
        """Return Unix milliseconds, or those of topics from a JSON object. Raises UsageError."""
        value = self.text(name)
        if value is None:
            return None
        if not value.startswith("{"):
            return self.number(name)
        try:
            source: Any = json.loads(value)
        except ValueError as error:
            raise UsageError(f"{name} is no JSON: {error}") from error
        found = cast("dict[str, object]", source)
        for topic, time in found.items():
            if not isinstance(time, int) or isinstance(time, bool) or not 0 <= time <= TIME_MAX:
                raise UsageError(
                    f"{name}: {topic[:80]!r} has {str(time)[:80]!r}; must be Unix milliseconds"
                )
            _no_seconds(name, time)
        if not found:
            raise UsageError(f"{name} names no topic")
        return cast("dict[str, int]", found)

    def flag(self, name: str) -> bool:
        """Return true or false. Raises UsageError."""
        value = self.text(name)
        if value is None:
            return self._table[name.lower()].default == "true"
        if value.lower() not in {"true", "false"}:
            raise UsageError(f"{name} = {value[:80]!r}: must be true or false")
        return value.lower() == "true"

    def choice(self, name: str) -> str:
        """Return one of the allowed values. Raises UsageError."""
        option = self._table[name.lower()]
        value = (self.text(name) or option.default).lower()
        if value not in option.choices:
            raise UsageError(f"{name} = {value[:80]!r}: must be one of {', '.join(option.choices)}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return the parts of a list by comma, each once."""
        parts = (part.strip() for part in (self.text(name) or "").split(","))
        return tuple(dict.fromkeys(part for part in parts if part))
