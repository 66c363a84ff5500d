"""Options of the Spark source and sink, checked. Pure.

Names are those of Spark's Kafka connector where the meaning is the same. Spark hands them over in
lower case, so case never matters.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import TYPE_CHECKING, Final, Self

from roquet.base.errors import UsageError
from roquet.protocol import hosts, names, tags
from roquet.spark.offsets import EARLIEST, LATEST, Offsets, QueueKey, from_json, queues_from_json
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_SERVER_PORT: Final = 9876
PATTERN_LENGTH_MAX: Final = 1024
DEFAULT_GROUP: Final = "TOOLS_CONSUMER"
"""Brokers know this group from the start, so reading creates nothing there."""
PARTITIONERS: Final = ("none", "key", "queue")

_COMMON = ("nameServers", "timeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
_SOURCE = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeBody",
    "columns",
    "tags",
    "group",
)
_SINK = ("topic", "partitioner", "group")
_ENGINE = frozenset({"checkpointlocation", "path", "queryname"})
"""What Spark itself passes along."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How brokers are talked to. Times in seconds."""

    name_servers: tuple[str, ...]
    timeout_s: float = 10.0
    retries: int = 3
    retry_pause_s: float = 0.5

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """What is read; exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[QueueKey] = frozenset()


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
    partitions_min: int | None = None
    rows_per_partition: int | None = None
    fail_on_data_loss: bool = True
    tags: str = "*"
    group: str = DEFAULT_GROUP

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Self:
        """Read options. Raises UsageError naming the option, the value and the rule."""
        options = _Options(given, (*_COMMON, *_SOURCE))
        if streaming:
            for name in ("endingOffsets", "endingTimestamp"):
                if options.text(name) is not None:
                    raise UsageError(f"{name}: a stream has no end; read a batch instead")
        return cls(
            wire=options.wire(),
            topics=options.topics(),
            columns=options.columns(),
            starting=options.position("starting", None),
            ending=options.position("ending", LATEST) or Position(default=LATEST),
            rows_per_trigger=options.number("maxOffsetsPerTrigger", 1),
            partitions_min=options.number("minPartitions", 1),
            rows_per_partition=options.number("maxRecordsPerPartition", 1),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            tags=options.tags(),
            group=options.group(DEFAULT_GROUP),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything about writing."""

    wire: Wire
    topic: str | None = None
    """For rows without a column `topic`."""
    partitioner: str = "none"
    group: str = "roquet_spark"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Read options. Raises UsageError."""
        options = _Options(given, (*_COMMON, *_SINK))
        topic = options.text("topic")
        if topic is not None:
            wrong = names.check_topic(topic) or names.check_may_send(topic)
            if wrong is not None:
                raise UsageError(f"topic = {topic[:80]!r}: {wrong}")
        partitioner = (options.text("partitioner") or "none").lower()
        if partitioner not in PARTITIONERS:
            raise UsageError(
                f"partitioner = {partitioner[:80]!r}: must be one of {', '.join(PARTITIONERS)}"
            )
        return cls(
            wire=options.wire(),
            topic=topic,
            partitioner=partitioner,
            group=options.group("roquet_spark"),
        )


class _Options:
    """Given options, found by name in any case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        by_lower = {name.lower(): name for name in known}
        for name in self._given:
            if name not in by_lower and name not in _ENGINE:
                near = difflib.get_close_matches(name, by_lower, n=3)
                hint = ", ".join(by_lower[item] for item in near) if near else ", ".join(known)
                raise UsageError(f"unknown option {name[:80]!r}; did you mean: {hint}?")

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return None if value is None else value.strip()

    def number(self, name: str, low: int, high: int = 2**62) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and low <= int(value[:20]) <= high):
            raise UsageError(
                f"{name} = {value[:80]!r}: must be a whole number from {low} to {high}"
            )
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in {"true", "false"}:
            raise UsageError(f"{name} = {value[:80]!r}: must be true or false")
        return value.lower() == "true"

    def wire(self) -> Wire:
        text = self.text("nameServers")
        if not text:
            raise UsageError("nameServers is needed, as in rmq://127.0.0.1:9876")
        found: list[str] = []
        for part in re.split(r"[;,]", text.removeprefix("rmq://")):
            address = part.strip()
            if not address:
                continue
            if address.endswith("]") or ":" not in address:
                address = f"{address}:{NAME_SERVER_PORT}"
            try:
                hosts.split_address(address)
            except ValueError as error:
                raise UsageError(f"nameServers = {text[:80]!r}: {error}") from error
            found.append(address)
        if not found:
            raise UsageError(f"nameServers = {text[:80]!r} names no name server")
        timeout = self.number("timeoutMs", 1, 3_600_000)
        retries = self.number("fetchOffset.numRetries", 0, 1000)
        pause = self.number("fetchOffset.retryIntervalMs", 0, 60_000)
        return Wire(
            name_servers=tuple(dict.fromkeys(found)),
            timeout_s=10.0 if timeout is None else timeout / 1000,
            retries=3 if retries is None else retries,
            retry_pause_s=0.5 if pause is None else pause / 1000,
        )

    def topics(self) -> Topics:
        ways = ("subscribe", "subscribePattern", "assign")
        given = [name for name in ways if self.text(name)]
        if len(given) != 1:
            raise UsageError(f"give exactly one of {', '.join(ways)}; there are {len(given)}")
        value = self.text(given[0]) or ""
        if given[0] == "assign":
            return Topics(queues=frozenset(queues_from_json(value)))
        if given[0] == "subscribePattern":
            if len(value) > PATTERN_LENGTH_MAX:
                raise UsageError(f"subscribePattern is longer than {PATTERN_LENGTH_MAX}")
            try:
                re.compile(value)
            except re.error as error:
                raise UsageError(f"subscribePattern = {value[:80]!r}: {error}") from error
            return Topics(pattern=value)
        found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        for topic in found:
            wrong = names.check_topic(topic)
            if wrong is not None:
                raise UsageError(f"subscribe = {topic[:80]!r}: {wrong}")
        return Topics(names=found)

    def position(self, which: str, default: int | None) -> Position | None:
        """Read where to begin or end: a timestamp, else earliest, latest or offsets."""
        timestamp = self.number(f"{which}Timestamp", 0)
        text = self.text(f"{which}Offsets")
        if timestamp is not None and text is not None:
            raise UsageError(f"give one of {which}Timestamp and {which}Offsets")
        otherwise = EARLIEST if which == "starting" else LATEST
        if timestamp is not None:
            return Position(default=otherwise, timestamp_ms=timestamp)
        if text is None:
            return None if default is None else Position(default=default)
        if text.lower() in {"earliest", "latest"}:
            if which == "ending" and text.lower() == "earliest":
                raise UsageError("endingOffsets = 'earliest' would read nothing")
            return Position(default=EARLIEST if text.lower() == "earliest" else LATEST)
        offsets = from_json(text, symbols=True)
        if which == "ending" and EARLIEST in offsets.values():
            raise UsageError("endingOffsets: -2 (earliest) would read nothing")
        return Position(default=otherwise, offsets=offsets)

    def columns(self) -> tuple[str, ...]:
        text = self.text("columns")
        wanted = set(COLUMNS)
        if text is not None:
            by_lower = {name.lower(): name for name in COLUMNS}
            asked = [part.strip().lower() for part in text.split(",") if part.strip()]
            unknown = [name for name in asked if name not in by_lower]
            if unknown or not asked:
                raise UsageError(f"columns = {text[:80]!r}: there are {', '.join(COLUMNS)}")
            wanted = {by_lower[name] for name in asked}
        if not self.flag("includeBody", True):
            wanted.discard("body")
        if not self.flag("includeHeaders", True):
            wanted.discard("properties")
        if not wanted:
            raise UsageError("no column is left to read")
        return tuple(name for name in COLUMNS if name in wanted)

    def tags(self) -> str:
        text = self.text("tags") or "*"
        try:
            tags.subscribe("any", text)
        except tags.ExpressionError as error:
            raise UsageError(f"tags = {text[:80]!r}: {error}") from error
        return text

    def group(self, default: str) -> str:
        text = self.text("group") or default
        wrong = names.check_group(text)
        if wrong is not None:
            raise UsageError(f"group = {text[:80]!r}: {wrong}")
        return text
