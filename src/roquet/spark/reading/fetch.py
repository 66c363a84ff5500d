"""Reading a range of a queue: pull, decode natively, hand on as Arrow batches.

A row is either read or accounted for: without a tag expression every offset of the range has to
come back, or it is lost and treated as `failOnDataLoss` says.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from typing import TYPE_CHECKING, Any, Final

from roquet._native import records_to_arrow
from roquet.base.clock import pause
from roquet.base.errors import Corrupt, Refused, Unreachable
from roquet.protocol import tags
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import PullMessageRequest, PullMessageResponse
from roquet.protocol.messages import sys_flag
from roquet.spark.cluster import pool
from roquet.spark.cluster.addresses import addresses_of
from roquet.spark.cluster.patience import Patience
from roquet.spark.offsets import DataLoss, Range
from roquet.spark.reading import projection
from roquet.spark.reading.ahead import PULLS_MAX, Ahead, Pulled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from roquet._native import ArrowBatch
    from roquet.model.route import BrokerData
    from roquet.spark.cluster.connections import Connections
    from roquet.spark.options import SourceOptions

log = logging.getLogger(__name__)

ROWS_MAX: Final = 16_384
"""Rows of a batch."""
BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a batch."""
RAW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Stored bytes decoded at a time; bodies may grow when they are decompressed."""
PULL_ROWS: Final = 1024
"""Asked for in one pull; brokers give what they allow, ordinarily 32."""

_STATUSES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


_LATER = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


class _Outcome(enum.Enum):
    """What an answer to a pull means for a planned offset."""

    READ = "messages, or none that match, and where to go on"
    NOTHING = "not there now; asking again may help"
    GONE = "outside of what the queue has"


@dataclasses.dataclass(slots=True)
class _Collected:
    """Answers that wait to become a batch."""

    begin: int
    next: int
    size_max: int
    bodies: list[bytes] = dataclasses.field(default_factory=list[bytes])
    size: int = 0
    skipped: int = 0

    def add(self, body: bytes, following: int) -> None:
        self.next = following
        if body:
            self.bodies.append(body)
            self.size += len(body)

    @property
    def full(self) -> bool:
        # The next answer may bring PULL_ROWS more.
        return self.size >= self.size_max or self.next - self.begin > ROWS_MAX - PULL_ROWS


class QueueReader:
    """Reads one range. Give the addresses of its broker, the master first."""

    def __init__(
        self,
        options: SourceOptions,
        whole: Range,
        addresses: tuple[str, ...],
        *,
        connections: Connections | None = None,
        wait: Callable[[float], None] = pause,
        locate: Callable[[], BrokerData | None] | None = None,
    ) -> None:
        """Connect to nothing yet; without `connections` those of this process are used.

        `locate` says where the range's broker is now, None when no name server knows it.
        """
        subscription = tags.subscribe(whole.queue.topic, options.tags)
        self._options = options
        self._range = whole
        self._addresses = addresses
        self._leased = connections is None
        self._connections = connections or pool.OF_PROCESS.lease(options.wire)
        self._wait = wait
        self._locate = locate or self._find
        self._patience = Patience(options.wire.unreachable_s, wait)
        self._tags = sorted(subscription.tags) or None
        self._filtered = self._tags is not None or options.sql is not None
        self._header = _header(options, whole)
        self._projection = projection.of(options.columns, by_tags=self._tags is not None)
        self._projects = self._projection is not None
        """Whether brokers are asked for a projection: until one does not obey."""
        self._ahead = Ahead(
            self._connections,
            addresses,
            self._request,
            whole.end,
            rows_max=PULL_ROWS,
            bytes_max=options.bytes_per_batch,
            # With a filter only the answer knows where it ended.
            pulls_max=1 if self._filtered else PULLS_MAX,
        )
        self.lost = 0
        """Offsets that were to be read and are gone."""

    def batches(self) -> Iterator[Any]:
        """Yield `pyarrow.RecordBatch`es in offset order.

        Raises DataLoss, Corrupt, Refused, Unreachable.
        """
        size_max = min(RAW_BYTES_MAX, self._options.bytes_per_batch)
        collected = _Collected(self._range.begin, self._range.begin, size_max)
        try:
            while collected.next < self._range.end:
                self._pull(collected)
                if collected.full:
                    yield from self._decode(collected)
                    collected = _Collected(collected.next, collected.next, size_max)
            yield from self._decode(collected)
        finally:
            self._release()

    # --- inside ------------------------------------------------------------------------------

    def _release(self) -> None:
        if self._leased:
            pool.OF_PROCESS.give_back(self._options.wire, self._connections)
        else:
            self._connections.close()

    def _pull(self, collected: _Collected) -> None:
        """Add one answer, or skip what is gone; moves on by at least one offset."""
        wanted = collected.next
        if (pulled := self._ahead.take(wanted)) is not None:
            collected.add(pulled.body, pulled.following)
            return
        outcome, answer, body = self._ask(wanted)
        for _ in range(self._options.wire.retries):
            if outcome is not _Outcome.NOTHING:
                break
            self._wait(self._options.wire.retry_pause_s)
            # It may be a slave that has not got that far.
            self._connections.forgive()
            outcome, answer, body = self._ask(wanted)
        if outcome is not _Outcome.READ:
            outcome, answer, body = self._ask(wanted, master=True)
        if outcome is _Outcome.READ:
            collected.add(body, answer.next_begin_offset)
            self._ahead.go_on(Pulled(wanted, answer.next_begin_offset, body))
        elif outcome is _Outcome.GONE and wanted < answer.min_offset < answer.max_offset:
            self._skip(collected, answer.min_offset, answer)
        else:
            # Planned from the broker's own maximum, and yet not there in all tries.
            self._skip(collected, self._range.end, answer)

    def _skip(self, collected: _Collected, following: int, answer: PullMessageResponse) -> None:
        following = min(following, self._range.end)
        count = following - collected.next
        if count and self._options.fail_on_data_loss:
            raise DataLoss(
                f"{count} messages of {self._range} from offset {collected.next} on are lost: the"
                f" queue has [{answer.min_offset}, {answer.max_offset})"
            )
        self._note_lost(count)
        collected.skipped += count
        collected.next = following

    def _request(self, offset: int, rows: int) -> Command:
        header = {
            **self._header,
            "queueOffset": str(offset),
            "maxMsgNums": str(min(rows, self._range.end - offset)),
        }
        if self._projection is not None and self._projects:
            header["projection"] = self._projection
        return Command(RequestCode.PULL_MESSAGE, ext=header)

    def _ask(
        self, offset: int, *, master: bool = False
    ) -> tuple[_Outcome, PullMessageResponse, bytes]:
        """Ask the broker, or its master alone; wait for it while it is away.

        The master decides on what is lost. Raises Unreachable, Refused.
        """
        broker = self._range.queue.broker
        addresses = self._masters() if master else self._addresses
        while True:
            away = f"broker {broker} has no master now, and its slave lacks offset {offset}"
            if addresses:
                try:
                    answer = self._connections.call(addresses, self._request(offset, PULL_ROWS))
                    if answer.code not in _LATER:
                        self._patience.reset()
                        return self._read(answer, offset)
                    away = f"broker {broker}: {answer.remark or 'it is busy'}"
                except Unreachable as error:
                    away = f"broker {broker}: {error}"
            self._patience.wait(away)
            masters = self._masters()
            addresses = masters if master else self._addresses

    def _masters(self) -> tuple[str, ...]:
        """Look for the broker, which may be elsewhere after a restart; return its master's address.

        None when it has no master now, or is not found.
        """
        found = self._locate()
        if found is None or not found.addresses:
            return ()
        self._addresses = addresses_of(found)
        self._ahead.move(self._addresses)
        return () if found.master is None else (found.master,)

    def _find(self) -> BrokerData | None:
        # Most tasks never look for a broker, and what plans ask is slow to import.
        from roquet.spark.cluster.metadata import Metadata  # noqa: PLC0415

        queue = self._range.queue
        try:
            route = Metadata(self._options.wire, self._connections).route(queue.topic)
        except (Unreachable, Refused) as error:
            log.warning("no route of %s: %s", queue, error)
            return None
        return next((it for it in route.brokers if it.broker_name == queue.broker), None)

    def _read(self, answer: Command, offset: int) -> tuple[_Outcome, PullMessageResponse, bytes]:
        if answer.code not in _STATUSES:
            raise Refused(answer.code, answer.remark or "")
        try:
            found = PullMessageResponse.decode(answer.ext)
        except HeaderError as error:
            raise Unreachable(
                f"{self._addresses[0]} answers a pull without its fields: {error}"
            ) from error
        self._projects = self._projects and (not answer.body or found.projection is not None)
        if answer.code != ResponseCode.PULL_OFFSET_MOVED:
            moved_on = found.next_begin_offset > offset
            return (_Outcome.READ if moved_on else _Outcome.NOTHING), found, answer.body
        # Else an administrator's reset of the group, which is not ours to follow, or a slave that
        # has not got that far yet.
        gone = offset < found.min_offset
        return (_Outcome.GONE if gone else _Outcome.NOTHING), found, b""

    def _decode(self, collected: _Collected) -> Iterator[Any]:
        if not collected.bodies:
            self._account(collected, 0)
            return
        import pyarrow as pa  # noqa: PLC0415  (the driver plans without it)

        start, rows = (0, 0), 0
        while True:
            made = self._batch(collected.bodies, start)
            rows += made.num_rows
            if made.num_rows:
                batch = pa.record_batch(made)
                if batch.schema.names != list(self._options.columns):
                    # A schema of the user's may name them in another order.
                    batch = batch.select(list(self._options.columns))
                yield from slices(batch)
            if made.next is None:
                break
            start = made.next
        self._account(collected, rows)

    def _batch(self, bodies: list[bytes], start: tuple[int, int]) -> ArrowBatch:
        # Bodies may grow when they are decompressed: never all of them at once.
        try:
            return records_to_arrow(
                bodies,
                self._range.queue.broker,
                columns=self._options.columns,
                begin=self._range.begin,
                end=self._range.end,
                tags=self._tags,
                bytes_max=self._options.bytes_per_batch,
                start=start,
                projected=self._projection is not None,
            )
        except ValueError as error:
            raise Corrupt(f"messages of {self._range} cannot be decoded: {error}") from error

    def _account(self, collected: _Collected, rows: int) -> None:
        """Without a filter, each offset passed is a row, or it is lost."""
        passed = min(collected.next, self._range.end) - collected.begin
        missing = passed - rows - collected.skipped
        if self._filtered or missing <= 0:
            return
        if self._options.fail_on_data_loss:
            raise DataLoss(
                f"{missing} messages between offsets {collected.begin} and {collected.next} of"
                f" {self._range.queue} did not come back"
            )
        self._note_lost(missing)

    def _note_lost(self, count: int) -> None:
        if count:
            self.lost += count
            log.warning("%d messages of %s are lost", count, self._range)


def _header(options: SourceOptions, whole: Range) -> dict[str, str]:
    """Return the fields that all pulls of a range have, and the first offset."""
    kind, expression = ("TAG", options.tags) if options.sql is None else ("SQL92", options.sql)
    header = PullMessageRequest(
        consumer_group=options.group,
        topic=whole.queue.topic,
        queue_id=whole.queue.queue_id,
        queue_offset=whole.begin,
        max_msg_nums=PULL_ROWS,
        sys_flag=sys_flag.PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type=kind,
    )
    return header.encode()


def slices(batch: Any) -> Iterator[Any]:
    """Cut a batch into pieces within the limits; no bytes are copied."""
    rows = batch.num_rows
    count = max(1, -(-rows // ROWS_MAX), -(-batch.nbytes // BYTES_MAX))
    step = max(1, -(-rows // count))
    for begin in range(0, rows, step):
        yield batch.slice(begin, step)
