"""The data source `roquet-meta`: what a cluster says of itself, as small tables.

spark.read.format("roquet-meta").option("nameServers", "127.0.0.1:9876").option("table", "groups")
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from roquet.base.clock import pause
from roquet.base.errors import Refused, Unreachable, UsageError
from roquet.base.overriding import override
from roquet.protocol.codes import ResponseCode
from roquet.spark import table_schema
from roquet.spark.cluster.addresses import addresses_of
from roquet.spark.cluster.patience import Patience
from roquet.spark.options import MetaOptions
from roquet.spark.schema import META

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from roquet.model.route import TopicRoute
    from roquet.protocol.bodies.stats import TopicOffset
    from roquet.spark.cluster.metadata import Metadata

Row = tuple[object, ...]

TIME_MAX_MS = 253_402_300_800_000
"""The year 10000, where the calendar of Python ends."""


class RoquetMetaDataSource(DataSource):
    """Brokers, topics, queues with their bounds, groups with their offsets and lag."""

    @classmethod
    @override
    def name(cls) -> str:
        return "roquet-meta"

    @override
    def schema(self) -> StructType:
        return table_schema.of(META[MetaOptions.parse(self.options).table], self.options)

    @override
    def reader(self, schema: StructType) -> MetaReader:
        options = MetaOptions.parse(table_schema.options(self.options, schema))
        return MetaReader(options, table_schema.projected(schema, META[options.table]))


class MetaReader(DataSourceReader):
    """One task asks for everything, each time the table is used."""

    def __init__(
        self,
        options: MetaOptions,
        columns: Sequence[str] | None = None,
        wait: Callable[[float], None] = pause,
    ) -> None:
        """Keep the options; without `columns` the table has all."""
        self._options = options
        self._wait = wait
        self._columns = columns

    @override
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  (the driver plans without it)

        kinds = {
            "string": pa.string(),
            "int": pa.int32(),
            "bigint": pa.int64(),
            "timestamp": pa.timestamp("us", tz="UTC"),
        }
        types = META[self._options.table]
        rows = self.rows()
        columns = list(zip(*rows, strict=True)) or [() for _ in types]
        arrays = [
            pa.array(column, kinds[kind])
            for column, kind in zip(columns, types.values(), strict=True)
        ]
        made = pa.record_batch(arrays, names=list(types))
        yield made if self._columns is None else made.select(list(self._columns))

    def rows(self) -> list[Row]:
        """Ask the cluster; wait for what is away. Raises UsageError, Refused, Unreachable."""
        # Spark imports this module to find the format, and this is slow.
        from roquet.spark.cluster.metadata import Metadata  # noqa: PLC0415

        wire = self._options.wire
        metadata, patience = Metadata(wire), Patience(wire.unreachable_s, self._wait)
        tables = {
            "brokers": _brokers,
            "topics": _topics,
            "queues": _queues,
            "groups": _groups,
            "members": _members,
        }
        try:
            while True:
                try:
                    return list(tables[self._options.table](metadata, self._options))
                except Unreachable as error:
                    patience.wait(str(error))
        finally:
            metadata.close()


def _brokers(metadata: Metadata, _: MetaOptions) -> Iterator[Row]:
    for name, broker in sorted(metadata.clusters().brokers.items()):
        for number in sorted(broker.addresses):
            yield broker.cluster, name, number, broker.addresses[number]


def _routes(metadata: Metadata, options: MetaOptions) -> Iterator[tuple[str, TopicRoute]]:
    for topic in metadata.topics(options.topics, system=True):
        try:
            yield topic, metadata.route(topic)
        except Refused as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            if options.topics.names:
                raise UsageError(f"topic {topic} does not exist: {error.remark}") from error


def _topics(metadata: Metadata, options: MetaOptions) -> Iterator[Row]:
    for topic, route in _routes(metadata, options):
        for it in sorted(route.queues, key=lambda queues: queues.broker_name):
            yield topic, it.broker_name, it.read_queues, it.write_queues, it.perm


def _queues(metadata: Metadata, options: MetaOptions) -> Iterator[Row]:
    for topic, route in _routes(metadata, options):
        for broker in sorted(route.brokers, key=lambda it: it.broker_name):
            stats = metadata.offsets(topic, addresses_of(broker))
            for queue in sorted(stats, key=lambda it: it.queue_id):
                it = stats[queue]
                yield (
                    topic,
                    broker.broker_name,
                    queue.queue_id,
                    it.min_offset,
                    it.max_offset,
                    _time(it.last_update),
                )


def _groups(metadata: Metadata, options: MetaOptions) -> Iterator[Row]:
    pattern = re.compile(".*" if options.topics.pattern is None else options.topics.pattern)
    for name, broker in sorted(metadata.clusters().brokers.items()):
        addresses = addresses_of(broker)
        found: dict[str, dict[int, TopicOffset]] = {}
        for key, offsets in sorted(metadata.group_offsets(addresses).items()):
            topic, _, group = key.partition("@")
            wanted = topic in options.topics.names or not options.topics.names
            if not wanted or (options.groups and group not in options.groups):
                continue
            if pattern.fullmatch(topic) is None:
                continue
            if topic not in found:
                found[topic] = _bounds(metadata, topic, addresses)
            for queue_id, offset in sorted(offsets.items()):
                it = found[topic].get(queue_id)
                if it is None:
                    yield group, topic, name, queue_id, offset, None, None, None, None
                    continue
                lag = max(0, it.max_offset - offset)
                place = (group, topic, name, queue_id, offset)
                yield *place, it.max_offset, lag, it.min_offset, _time(it.last_update)


def _bounds(metadata: Metadata, topic: str, addresses: tuple[str, ...]) -> dict[int, TopicOffset]:
    """Return the bounds of a topic's queues; none for one that is gone, whose offsets stay."""
    with contextlib.suppress(Refused):
        stats = metadata.offsets(topic, addresses)
        return {queue.queue_id: it for queue, it in stats.items()}
    return {}


def _members(metadata: Metadata, options: MetaOptions) -> Iterator[Row]:
    """Ask the groups that are named or have offsets; members say themselves what they hold."""
    pattern = re.compile(".*" if options.topics.pattern is None else options.topics.pattern)

    def wanted(topic: str) -> bool:
        is_named = topic in options.topics.names or not options.topics.names
        return is_named and pattern.fullmatch(topic) is not None

    asked: set[tuple[str, str]] = set()
    for _, broker in sorted(metadata.clusters().brokers.items()):
        addresses = addresses_of(broker)
        known = {key.partition("@")[2] for key in metadata.group_offsets(addresses)}
        for group in sorted(set(options.groups) or known):
            for it in metadata.connections(group, addresses):
                if (group, it.client_id) in asked:
                    continue
                asked.add((group, it.client_id))
                said = metadata.running(group, it.client_id, addresses)
                held = [(queue, state) for queue, state in said.items() if wanted(queue.topic)]
                who = (group, it.client_id, it.client_address, it.language)
                if not held:
                    yield *who, None, None, None, None, None, None
                for queue, state in sorted(held, key=lambda pair: pair[0]):
                    yield (
                        *who,
                        queue.topic,
                        queue.broker_name,
                        queue.queue_id,
                        _time(state.get("lastPullTimestamp")),
                        _time(state.get("lastConsumeTimestamp")),
                        _count(state.get("cachedMsgCount")),
                    )


def _time(given: object) -> dt.datetime | None:
    """Return a time of somebody's clock; None for none, or for one that no clock shows."""
    milliseconds = _count(given)
    if milliseconds is None or not 0 < milliseconds < TIME_MAX_MS:
        return None
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def _count(given: object) -> int | None:
    if not isinstance(given, int) or isinstance(given, bool):
        return None
    return given if abs(given) < 2**63 else None
