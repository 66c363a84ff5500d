"""The data source `roquet-log`: messages out of commit-log files, without any broker.

Files are those of a disk, or of an object store or HDFS.

spark.read.format("roquet-log").load("/backup/broker-a/store")
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from roquet._native import LogReader
from roquet.base.errors import Corrupt
from roquet.base.overriding import override
from roquet.protocol import tags
from roquet.spark import table_schema
from roquet.spark.log_files import NO_TIME, GapPartition, LogPartition, plan
from roquet.spark.options import LogOptions
from roquet.spark.reading.partitions import NothingPartition
from roquet.spark.remote import files as remote
from roquet.spark.remote.files import RemoteFile
from roquet.spark.remote.systems import URI
from roquet.spark.schema import DAMAGE, DAMAGE_COLUMNS, TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

ROWS_MAX: Final = 16_384
"""Rows of a batch."""

Damage = tuple[int, int, str]
"""First log offset, the one behind the last, what is wrong."""


class RoquetLogDataSource(DataSource):
    """A table of records, and one of the ranges that hold none."""

    @classmethod
    @override
    def name(cls) -> str:
        return "roquet-log"

    @override
    def schema(self) -> StructType:
        options = LogOptions.parse(self.options)
        if options.table == "damage":
            return table_schema.of(DAMAGE, self.options)
        return table_schema.of({name: TYPES[name] for name in options.columns}, self.options)

    @override
    def reader(self, schema: StructType) -> LogFilesReader:
        options = LogOptions.parse(table_schema.options(self.options, schema))
        if options.table == "damage":
            table_schema.check(schema, DAMAGE)
            return LogFilesReader(options)
        columns = table_schema.projected(schema, TYPES)
        return LogFilesReader(dataclasses.replace(options, columns=columns))


class LogFilesReader(DataSourceReader):
    """Looks at folders on the driver, reads files in tasks; both see the same paths."""

    def __init__(self, options: LogOptions) -> None:
        """Keep the options; tasks get a copy of this object."""
        self._options = options

    @override
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        far = [path for path in options.paths if URI.match(path)]
        found = plan([it for it in options.paths if it not in far], options.partitions_min)
        found += [part for uri in far for part in remote.plan(uri, options.storage)]
        for part in found:
            if isinstance(part, GapPartition):
                self._judge(part.folder, 0, [_gap(part)])
        return found or [NothingPartition(None)]

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, GapPartition):
            if self._options.table == "damage":
                yield _rows(partition.folder, [_gap(partition)])
        elif isinstance(partition, LogPartition):
            yield from self._read(partition)

    # --- inside ------------------------------------------------------------------------------

    def _read(self, part: LogPartition) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            try:
                file = None
                if part.file.seen is not None:
                    file = stack.enter_context(RemoteFile(part.file, self._options.storage))
                reader = self._open(part, file)
            except FileNotFoundError:
                # The log's owner deletes what has expired.
                yield from self._pass(part, [(part.begin, part.end, "the file is gone")])
                return
            shown = _Shown(self._options)
            while (answer := reader.next()) is not None:
                made, damages = answer
                yield from self._pass(part, damages)
                if self._options.table == "messages" and made.num_rows:
                    yield from shown.batches(made)
            if file is not None:
                file.finish()

    def _open(self, part: LogPartition, file: RemoteFile | None) -> LogReader:
        options, damage = self._options, self._options.table == "damage"
        wanted = options.columns
        if options.topics.pattern is not None and "topic" not in wanted:
            wanted = ("topic", *wanted)
        return LogReader(
            part.file.path,
            part.file.base,
            part.file.end,
            part.begin,
            part.end,
            broker_name=options.broker_name,
            # A body that cannot be decompressed is damage too.
            columns=("body",) if damage else wanted,
            tags=None if damage else sorted(tags.subscribe("any", options.tags).tags) or None,
            topics=None if damage else options.topics.names or None,
            stored=options.stored,
            last=part.file.last,
            live=part.limit.stop_time_ms != NO_TIME,
            stop=part.limit.stop,
            stop_time=part.limit.stop_time_ms,
            rows_max=ROWS_MAX,
            bytes_max=options.bytes_per_batch,
            read=None if file is None else (file.read, file.size),
        )

    def _pass(self, part: LogPartition, damages: list[Damage]) -> Iterator[Any]:
        """Yield damage as rows where it is asked for. Raises Corrupt where it is an error."""
        if not damages:
            return
        self._judge(part.file.path, part.file.base, damages)
        if self._options.table == "damage":
            yield _rows(part.file.path, damages)

    def _judge(self, path: str, base: int, damages: Iterable[Damage]) -> None:
        if self._options.table == "damage":
            return
        for begin, end, why in damages:
            text = f"{path}: no record can be read at offset {begin} to {end} (byte {begin - base})"
            if not self._options.report:
                raise Corrupt(
                    f"{text}: {why}; onCorrupt=report reads on, and the table `damage` lists all"
                )
            log.warning("%s: %s", text, why)


class _Shown:
    """Decoded batches as they are asked for: topics by pattern, and the wanted columns."""

    def __init__(self, options: LogOptions) -> None:
        self._columns = list(options.columns)
        self._topics = options.topics

    def batches(self, made: Any) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415  (the driver plans without it)
        import pyarrow.compute as pc  # noqa: PLC0415

        batch = pa.record_batch(made)
        if self._topics.pattern is not None:
            topics = batch.column("topic")
            known = [it for it in pc.unique(topics).to_pylist() if self._topics.matches(it)]
            batch = batch.filter(pc.is_in(topics, pa.array(known, pa.string())))
        if batch.schema.names != self._columns:
            batch = batch.select(self._columns)
        if batch.num_rows:
            yield batch


def _gap(part: GapPartition) -> Damage:
    return part.begin, part.end, "no file holds these offsets"


def _rows(path: str, damages: Sequence[Damage]) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    columns = [
        pa.array([path] * len(damages), pa.string()),
        pa.array([begin for begin, _, _ in damages], pa.int64()),
        pa.array([end for _, end, _ in damages], pa.int64()),
        pa.array([end - begin for begin, end, _ in damages], pa.int64()),
        pa.array([why for _, _, why in damages], pa.string()),
    ]
    return pa.record_batch(columns, names=list(DAMAGE_COLUMNS))
