"""Options of the Spark sources and the sink, read and checked before any task starts. Pure."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from typing import TYPE_CHECKING, Final, Self

from roquet.acl.credentials import check_name
from roquet.base.errors import UsageError
from roquet.protocol import hosts, names, tags
from roquet.protocol.sql92.compiler import compile_sql
from roquet.spark import option_table
from roquet.spark.offsets import EARLIEST, LATEST, Offsets, QueueKey, from_json, queues_from_json
from roquet.spark.option_table import Given
from roquet.spark.remote.systems import URI, Storage, check
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

PATTERN_LENGTH_MAX: Final = 1024
EXPRESSION_LENGTH_MAX: Final = 4096
DEFAULT_GROUP: Final = "TOOLS_CONSUMER"
"""Brokers know this group from the start, so reading creates nothing there."""
RUN_ID_LENGTH_MAX: Final = 256
_URI: Final = re.compile(
    r"(?:(?P<file>file):(?://(?P<host>[^/]*))?(?=/)|[a-z][a-z0-9+.-]*://)", re.IGNORECASE
)
BATCH_BYTES: Final = 32 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How brokers are talked to. Times in seconds."""

    name_servers: tuple[str, ...]
    timeout_s: float = 10.0
    retries: int = 10
    retry_pause_s: float = 0.5
    unreachable_s: float = 0.0
    """How long what is away is waited for, beyond the tries."""
    credentials: str | None = None
    """Their name in the environment: keys themselves would be shown in plans."""

    @property
    def url(self) -> str:
        """What `roquet.connect` is given."""
        return "rmq://" + ";".join(self.name_servers)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a queue's reading begins or ends: by time, else by its own offset, else `default`."""

    default: int
    offsets: Offsets = dataclasses.field(default_factory=dict[QueueKey, int])
    timestamp_ms: int | None = None
    timestamps: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    """Of some topics, Unix milliseconds; others are read by `default`."""

    def time_of(self, topic: str) -> int | None:
        """Return the time at which a topic begins or ends, None: it is not given by time."""
        return self.timestamps.get(topic, self.timestamp_ms)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """What is read: at most one of the three is set, all topics otherwise."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[QueueKey] = frozenset()

    def has(self, queue: QueueKey) -> bool:
        """Whether a queue is one of those that are read, if it is there."""
        if self.queues:
            return queue in self.queues
        return queue.topic in self.names or self.matches(queue.topic)

    def names_topic(self, topic: str) -> bool:
        """Whether queues of a topic may be among those that are read."""
        return any(it.topic == topic for it in self.queues) or self.has(QueueKey(topic, "", 0))

    def matches(self, topic: str) -> bool:
        """Whether the pattern means a topic, no pattern any; system topics have to be named."""
        if self.names or self.queues or names.is_hidden(topic):
            return False
        return self.pattern is None or re.fullmatch(self.pattern, topic) is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything about reading. Rows are messages."""

    wire: Wire
    topics: Topics
    columns: tuple[str, ...] = COLUMNS
    starting: Position | None = None
    """None: earliest for a batch, latest for a stream."""
    ending: Position = dataclasses.field(default_factory=lambda: Position(default=LATEST))
    rows_per_trigger: int | None = None
    bytes_per_trigger: int | None = None
    rows_min_per_trigger: int | None = None
    """A micro-batch waits for so many, at most `trigger_delay_s` seconds."""
    trigger_delay_s: float = 900.0
    report_group: str | None = None
    """Is told how far a stream is."""
    partitions_min: int | None = None
    rows_per_partition: int | None = None
    bytes_per_batch: int = BATCH_BYTES
    fail_on_data_loss: bool = True
    tags: str = "*"
    sql: str | None = None
    pushdown: bool = False
    metrics_path: str | None = None
    group: str = DEFAULT_GROUP
    brokers: frozenset[str] = frozenset()
    """Those that a read must see."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Self:
        """Read options. Raises UsageError naming the option, the value and the rule."""
        options = Given(given, option_table.SOURCE, option_table.SINK)
        if streaming:
            for name in ("endingOffsets", "endingTimestamp"):
                if options.text(name) is not None:
                    raise UsageError(f"{name}: a stream has no end; read a batch instead")
        sql = _sql(options)
        both = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
        if all(options.text(name) is not None for name in both):
            raise UsageError(f"give one of {' and '.join(both)}")
        # First: a table whose options Spark keeps back is told so there.
        wire = _wire(options)
        topics = _topics(options)
        return cls(
            wire=wire,
            topics=topics,
            columns=_columns(options),
            starting=_position(options, "starting", topics),
            ending=_position(options, "ending", topics) or Position(default=LATEST),
            rows_per_trigger=options.number("maxOffsetsPerTrigger"),
            bytes_per_trigger=options.number("maxBytesPerTrigger"),
            rows_min_per_trigger=_rows_min(options),
            trigger_delay_s=options.milliseconds("maxTriggerDelay") / 1000,
            report_group=_report_group(options),
            partitions_min=options.number("minPartitions"),
            rows_per_partition=options.number("maxRecordsPerPartition"),
            bytes_per_batch=options.number("maxBytesPerBatch") or BATCH_BYTES,
            fail_on_data_loss=options.flag("failOnDataLoss"),
            tags=_tags(options),
            sql=sql,
            pushdown=options.flag("pushdown"),
            metrics_path=options.text("metricsPath") or None,
            group=_group(options, DEFAULT_GROUP),
            brokers=frozenset(options.names("brokers")),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Everything about reading commit-log files. Times are Unix milliseconds."""

    paths: tuple[str, ...]
    table: str = "messages"
    report: bool = False
    """Damage is reported, and what is readable read on; otherwise it is an error."""
    topics: Topics = dataclasses.field(default_factory=Topics)
    columns: tuple[str, ...] = COLUMNS
    tags: str = "*"
    stored: tuple[int, int] = (-(2**63), 2**63 - 1)
    """Only records stored at or after the first and before the second."""
    partitions_min: int | None = None
    bytes_per_batch: int = BATCH_BYTES
    broker_name: str = ""
    storage: Storage = dataclasses.field(default_factory=Storage)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read options. Raises UsageError."""
        options = Given(given, option_table.LOG)
        paths = tuple(map(_place, options.names("path")))
        if not paths:
            raise UsageError("path is needed: the folder of a store, or its commitlog folder")
        if options.text("subscribe") and options.text("subscribePattern"):
            raise UsageError("give one of subscribe and subscribePattern, or none for all topics")
        low, high = options.number("startingTimestamp"), options.number("endingTimestamp")
        every = cls(paths=()).stored
        return cls(
            paths=paths,
            table=options.choice("table"),
            report=options.choice("onCorrupt") == "report",
            topics=Topics(names=_names(options), pattern=_pattern(options)),
            columns=_columns(options),
            tags=_tags(options),
            stored=(every[0] if low is None else low, every[1] if high is None else high),
            partitions_min=options.number("minPartitions"),
            bytes_per_batch=options.number("maxBytesPerBatch") or BATCH_BYTES,
            broker_name=options.text("brokerName") or "",
            storage=Storage.of(options),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetaOptions:
    """Everything about reading what a cluster says of itself."""

    wire: Wire
    table: str
    topics: Topics
    groups: tuple[str, ...] = ()
    """Consumer groups; none named: all."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read options. Raises UsageError."""
        options = Given(given, option_table.META)
        if options.text("subscribe") and options.text("subscribePattern"):
            raise UsageError("give one of subscribe and subscribePattern, or none for all topics")
        groups = options.names("groups")
        for group in groups:
            wrong = names.check_group(group)
            if wrong is not None:
                raise UsageError(f"groups = {group[:80]!r}: {wrong}")
        return cls(
            wire=_wire(options),
            table=options.choice("table"),
            topics=Topics(names=_names(options), pattern=_pattern(options)),
            groups=groups,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything about writing."""

    wire: Wire
    topic: str | None = None
    """For rows without a column `topic`."""
    partitioner: str = "none"
    plan_keys: bool = True
    """Unique keys are made of run, partition and row."""
    run_id: str | None = None
    group: str = "roquet_spark"
    broker: str | None = None
    """For rows that name no broker; None: any."""
    rows_per_s: int | None = None
    """Of each task; None: as fast as it goes."""
    metrics_path: str | None = None
    transactional: bool = False
    """Rows are half messages until the write is committed."""
    idempotent: bool = False
    """Brokers store each row once."""
    transaction_path: str | None = None
    """A folder of the driver."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read options. Raises UsageError."""
        options = Given(given, option_table.SINK, option_table.SOURCE)
        topic = options.text("topic")
        if topic is not None:
            wrong = names.check_topic(topic) or names.check_may_send(topic)
            if wrong is not None:
                raise UsageError(f"topic = {topic[:80]!r}: {wrong}")
        run_id = options.text("runId") or None
        if run_id is not None and len(run_id) > RUN_ID_LENGTH_MAX:
            raise UsageError(f"runId is longer than {RUN_ID_LENGTH_MAX}")
        delivery = options.choice("delivery")
        is_once = delivery in {"transactional", "idempotent"}
        if is_once and options.choice("uniqueKeys") != "plan":
            raise UsageError(f"delivery = {delivery} needs uniqueKeys = plan")
        return cls(
            wire=_wire(options),
            topic=topic,
            partitioner=options.choice("partitioner"),
            plan_keys=options.choice("uniqueKeys") == "plan",
            run_id=run_id,
            group=_group(options, "roquet_spark"),
            broker=options.text("brokerName") or None,
            rows_per_s=options.number("maxRowsPerSecond"),
            metrics_path=options.text("metricsPath") or None,
            transactional=delivery == "transactional",
            idempotent=delivery == "idempotent",
            transaction_path=_decisions(options, given) if is_once else None,
        )


# --- parts -------------------------------------------------------------------------------------


def _wire(options: Given) -> Wire:
    text = options.text("nameServers")
    if not text:
        raise UsageError(
            "nameServers is needed, as in rmq://127.0.0.1:9876 (Spark hands over no option of a"
            " catalog's table that was created with columns, or that is written to: leave the"
            " columns out and give the option `columns`, or create a temporary view)"
        )
    try:
        found = hosts.split_name_servers(text.removeprefix("rmq://").replace(",", ";"))
    except ValueError as error:
        raise UsageError(f"nameServers = {text[:80]!r}: {error}") from error
    if not found:
        raise UsageError(f"nameServers = {text[:80]!r} names no name server")
    timeout = options.number("timeoutMs")
    retries = options.number("fetchOffset.numRetries")
    pause = options.number("fetchOffset.retryIntervalMs")
    return Wire(
        name_servers=found,
        timeout_s=10.0 if timeout is None else timeout / 1000,
        retries=10 if retries is None else retries,
        retry_pause_s=0.5 if pause is None else pause / 1000,
        unreachable_s=_unreachable_s(options),
        credentials=_credentials(options),
    )


def _credentials(options: Given) -> str | None:
    name = options.text("credentials") or None
    if name is not None:
        check_name(name)
    return name


def _decisions(options: Given, given: Mapping[str, str]) -> str | None:
    """Return the folder for decisions, of a stream that of its checkpoint. Raises UsageError."""
    named = options.text("transactionPath")
    lower = {name.lower(): value for name, value in given.items()}
    path = named or lower.get("checkpointlocation")
    if not path:
        return None
    try:
        folder = _local(path)
    except UsageError as error:
        raise UsageError(
            f"transactionPath = {path[:200]!r}: decisions are kept in a folder that the driver has,"
            " also where it runs the next time"
        ) from error
    return folder if named else f"{folder}/roquet-sink"


def _unreachable_s(options: Given) -> float:
    found = options.number("unreachableTimeoutMs")
    return 120.0 if found is None else found / 1000


def _place(path: str) -> str:
    """Return the folder that is named, or the URI of a store elsewhere. Raises UsageError."""
    if path.lower().startswith("file:") or not URI.match(path):
        return _local(path)
    check(path)
    return path


def _local(path: str) -> str:
    """Return the folder that a path or a `file:` URI names. Raises UsageError for other URIs."""
    uri = _URI.match(path)
    if uri is None:
        return path
    if uri["file"] is not None and uri["host"] in {None, "", "localhost"}:
        return urllib.parse.unquote(path[uri.end() :])
    raise UsageError(
        f"path = {path[:200]!r}: commit-log files are read from folders that every worker has at"
        " the same path; copy or mount what is elsewhere"
    )


def _topics(options: Given) -> Topics:
    ways = ("subscribe", "subscribePattern", "assign")
    given = [name for name in ways if options.text(name)]
    if len(given) != 1:
        hint = "" if given else ": subscribe=orders reads a topic, topic is where a sink writes"
        raise UsageError(f"give exactly one of {', '.join(ways)}; there are {len(given)}{hint}")
    if given[0] == "assign":
        return Topics(queues=frozenset(queues_from_json(options.text("assign") or "")))
    return Topics(names=_names(options), pattern=_pattern(options))


def _names(options: Given) -> tuple[str, ...]:
    found = options.names("subscribe")
    for topic in found:
        wrong = names.check_topic(topic)
        if wrong is not None:
            raise UsageError(f"subscribe = {topic[:80]!r}: {wrong}")
    return found


def _pattern(options: Given) -> str | None:
    value = options.text("subscribePattern")
    if not value:
        return None
    if len(value) > PATTERN_LENGTH_MAX:
        raise UsageError(f"subscribePattern is longer than {PATTERN_LENGTH_MAX}")
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"subscribePattern = {value[:80]!r}: {error}") from error
    return value


def _position(options: Given, which: str, topics: Topics) -> Position | None:
    """Read where to begin or end: a timestamp, else earliest, latest or offsets."""
    times = options.timestamps(f"{which}Timestamp")
    text = options.text(f"{which}Offsets")
    if times is not None and text is not None:
        raise UsageError(f"give one of {which}Timestamp and {which}Offsets")
    otherwise = EARLIEST if which == "starting" else LATEST
    if isinstance(times, int):
        return Position(default=otherwise, timestamp_ms=times)
    if times is not None:
        for topic in times:
            if not topics.names_topic(topic):
                raise UsageError(f"{which}Timestamp: topic {topic[:80]!r} is not read")
        return Position(default=otherwise, timestamps=times)
    if text is None:
        return None
    if text.lower() in {"earliest", "latest"}:
        if which == "ending" and text.lower() == "earliest":
            raise UsageError("endingOffsets = 'earliest' would read nothing")
        return Position(default=EARLIEST if text.lower() == "earliest" else LATEST)
    offsets = from_json(text, symbols=True)
    if which == "ending" and EARLIEST in offsets.values():
        raise UsageError("endingOffsets: -2 (earliest) would read nothing")
    return Position(default=otherwise, offsets=offsets)


def _rows_min(options: Given) -> int | None:
    found, most = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
    if found is not None and most is not None and found > most:
        raise UsageError(f"minOffsetsPerTrigger = {found} is above maxOffsetsPerTrigger = {most}")
    return found


def _report_group(options: Given) -> str | None:
    text = options.text("reportGroup") or None
    if text is None:
        return None
    wrong = names.check_group(text)
    if wrong is None and (names.is_system_group(text) or text == DEFAULT_GROUP):
        wrong = "it is a group of the brokers' own"
    if wrong is not None:
        raise UsageError(f"reportGroup = {text[:80]!r}: {wrong}")
    return text


def _columns(options: Given) -> tuple[str, ...]:
    text = options.text("columns")
    wanted = set(COLUMNS)
    if text is not None:
        by_lower = {name.lower(): name for name in COLUMNS}
        asked = [name.lower() for name in options.names("columns")]
        unknown = [name for name in asked if name not in by_lower]
        if unknown or not asked:
            raise UsageError(f"columns = {text[:80]!r}: there are {', '.join(COLUMNS)}")
        wanted = {by_lower[name] for name in asked}
    if not options.flag("includeBody"):
        wanted.discard("body")
    if not options.flag("includeHeaders"):
        wanted.discard("properties")
    if not wanted:
        raise UsageError("no column is left to read")
    return tuple(name for name in COLUMNS if name in wanted)


def _tags(options: Given) -> str:
    text = options.text("tags") or "*"
    try:
        tags.subscribe("any", text)
    except tags.ExpressionError as error:
        raise UsageError(f"tags = {text[:80]!r}: {error}") from error
    return text


def _sql(options: Given) -> str | None:
    text = options.text("sql") or None
    if text is None:
        return None
    if options.text("tags"):
        raise UsageError("give one of tags and sql")
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise UsageError(f"sql is longer than {EXPRESSION_LENGTH_MAX}")
    try:
        compile_sql(text)
    except tags.ExpressionError as error:
        raise UsageError(f"sql = {text[:80]!r}: {error}") from error
    return text


def _group(options: Given, default: str) -> str:
    text = options.text("group") or default
    wrong = names.check_group(text)
    if wrong is not None:
        raise UsageError(f"group = {text[:80]!r}: {wrong}")
    return text
