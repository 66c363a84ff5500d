"""Files of a part, written by the tasks that read its rows: Arrow batches become Parquet at once.

    LAKE/_staged/PART/topic=…/day=…/NAME.parquet

A task makes a file of each topic and day that it reads, one after the other, under names that no
other try has; it reads each back, compares count and checksum with what came from the source, and
answers a line for each file and queue. A file that no line names is of a try that does not count.
"""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from roquet._native import sum_rows
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.sink.columns import lent, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DDL: Final = (
    "file string, topic string, day string, brokerName string, queueId int, fromOffset bigint,"
    " toOffset bigint, rows bigint, crc bigint"
)
GROUP_BYTES: Final = 64 * 1024 * 1024
"""Bytes of a row group before they are packed: a task holds that much, and a batch."""
CODECS: Final = ("snappy", "gzip", "zstd", "none", "uncompressed")
"""Of Spark's names of codecs those that Arrow knows as well."""
TIMES: Final = ("INT96", "TIMESTAMP_MICROS")
"""How a time is kept, of Spark's names those that are written here."""
_SUMMED: Final = ("brokerName", "queueId", "queueOffset", "uniqKey", "body")
_DIFFERENT: Final = ("queueOffset", "physicalOffset", "msgId", "uniqKey", "bodyCRC", "body")
"""Columns that repeat nothing: a dictionary would be built and thrown away."""
_SUMMARIZED: Final = ("queueId", "queueOffset", "physicalOffset", "keys", "tags", "storeTimestamp")
"""Columns by which readers leave pages out; a page's least body would help nobody."""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How a file is written: the codec, and how times are kept (of CODECS and TIMES)."""

    codec: str
    times: str


class Line(NamedTuple):
    """What a file holds of one queue, a row of DDL. `file` is empty when none was written."""

    file: str
    topic: str
    day: str
    broker: str
    queue: int
    from_offset: int
    to_offset: int
    rows: int
    crc: int


@dataclasses.dataclass(slots=True)
class _Sum:
    low: int
    high: int
    rows: int = 0
    crc: int = 0


class Sums:
    """Offsets, count and checksum by broker and queue."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.by_queue: dict[tuple[str, int], _Sum] = {}

    def add(self, batch: Any) -> None:
        """Add the rows of a record batch."""
        import pyarrow.compute as pc  # noqa: PLC0415  (only tasks need it)

        for broker, queue, rows in _split(batch, "brokerName", batch.column("queueId")):
            bounds = pc.min_max(rows.column("queueOffset")).as_py()
            known = self.by_queue.setdefault((broker, queue), _Sum(bounds["min"], bounds["max"]))
            known.low = min(known.low, bounds["min"])
            known.high = max(known.high, bounds["max"])
            known.rows += rows.num_rows
            known.crc += checksum(rows)

    def lines(self, file: str, topic: str, day: str) -> Iterator[Line]:
        """Yield what was added, as lines of one file."""
        for (broker, queue), it in sorted(self.by_queue.items()):
            yield Line(file, topic, day, broker, queue, it.low, it.high + 1, it.rows, it.crc)


def stage(folder: Path | None, batches: Iterable[Any], form: Form) -> Iterator[Line]:
    """Write record batches below `folder` and yield what is in the files; without one only look.

    Raises LakeError when a file holds something else than was written, OSError.
    """
    made: _File | None = None
    for batch in batches:
        import pyarrow as pa  # noqa: PLC0415  (only tasks need it)

        # A day of UTC, as the zone of the column says.
        days = batch.column("storeTimestamp").cast(pa.date32())
        for topic, day, rows in _split(batch, "topic", days):
            if made is not None and made.place != (topic, day.isoformat()):
                yield from made.close()
                made = None
            if made is None:
                made = _File(folder, topic, day.isoformat(), form)
            made.add(rows)
    if made is not None:
        yield from made.close()


def checksum(batch: Any) -> int:
    """Return the sum over rows of `lake_catalog.CRC`."""
    import pyarrow as pa  # noqa: PLC0415

    offsets = batch.column("queueOffset").cast(pa.int64())
    # The buffer has the rows of the batch that this one was cut from.
    first = 8 * offsets.offset
    numbers = lent(offsets.buffers()[1]) if len(offsets) else None
    return sum_rows(
        batch.num_rows,
        b"" if numbers is None else numbers[first:],
        texts(batch.column("uniqKey").cast(pa.string())),
        texts(batch.column("body").cast(pa.binary())),
    )


# --- inside --------------------------------------------------------------------------------------


class _File:
    """The file that a task is writing."""

    def __init__(self, folder: Path | None, topic: str, day: str, form: Form) -> None:
        self.place = (topic, day)
        self._sums = Sums()
        self._form = form
        self._name = ""
        self._path = Path()
        if folder is not None:
            self._name = f"topic={quote(topic, safe='')}/day={day}/{uuid.uuid4().hex}.parquet"
            self._path = folder / self._name
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._bytes = 0

    def add(self, rows: Any) -> None:
        self._sums.add(rows)
        if not self._name:
            return
        # The topic is the folder's.
        self._waiting.append(rows.drop_columns("topic"))
        self._bytes += rows.nbytes
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> Iterator[Line]:
        if self._name:
            self._flush()
            self._writer.close()
            self._compare()
        return self._sums.lines(self._name, *self.place)

    def _flush(self) -> None:
        if not self._waiting:
            return
        import pyarrow as pa  # noqa: PLC0415

        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._opened(table.schema)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting.clear()
        self._bytes = 0

    def _opened(self, schema: Any) -> Any:
        import pyarrow.parquet as pq  # noqa: PLC0415

        codec = "none" if self._form.codec == "uncompressed" else self._form.codec
        return pq.ParquetWriter(
            str(self._path),
            schema,
            compression=codec,
            use_dictionary=[name for name in schema.names if name not in _DIFFERENT],
            write_statistics=list(_SUMMARIZED),
            use_deprecated_int96_timestamps=self._form.times == "INT96",
            write_page_checksum=True,
        )

    def _compare(self) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415

        back = Sums()
        with pq.ParquetFile(self._path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(columns=list(_SUMMED), use_threads=False):
                back.add(batch)
        if back.by_queue != self._sums.by_queue:
            raise LakeError(
                f"{self._path}: {self._sums.by_queue} was written, {back.by_queue} can be read back"
            )


def _split(batch: Any, name: str, second: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the rows of a batch by a column and a second one; nearly always there is one pair."""
    import pyarrow.compute as pc  # noqa: PLC0415

    first = batch.column(name)
    pairs = itertools.product(first.unique(), second.unique())
    several = first.unique().__len__() * second.unique().__len__() > 1
    for one, other in pairs:
        rows = batch
        if several:
            rows = batch.filter(pc.and_(pc.equal(first, one), pc.equal(second, other)))
        if rows.num_rows:
            yield one.as_py(), other.as_py(), rows
