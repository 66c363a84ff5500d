"""Delay levels: messages that wait in the schedule topic until their time (spec: store §15).

A send with property DELAY = n is stored in queue n - 1 of the schedule topic; each queue is in
order of delivery, because all its messages wait equally long. A round every 100 ms takes from each
queue what is due and stores it once more, where it was meant for. A level with much to do gives way
to the others after every few messages. While nothing can be due, there is one round a second: what
waits says when it is due, and what comes is not due before the shortest delay has passed.

The offsets of `delayOffset.json` never run ahead of the log: what was delivered is flushed first.
So after a power loss a message can be delivered twice, but none is forgotten.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.base.errors import UsageError
from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.data_version import DataVersion
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.protocol.fastjson import JsonError
from roquet.service.background import give_way
from roquet.service.lifecycle import Timer
from roquet.store.results import Draft, PutStatus, StoreFault
from roquet.store.tables.key_values import Rows, TableCodec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.metrics.traffic import InnerTraffic
    from roquet.store.records import Record
    from roquet.store.results import PutResult
    from roquet.store.tables.key_values import TableForm

log = logging.getLogger(__name__)

LEVELS_MAX = 1_000
BATCH = 32
"""Messages that one level may deliver, with one append, before the next has its turn."""
BATCH_BYTES = 256 << 10
"""Nor more than these, and one message: senders need not wait long."""
ROUND_MS_MAX = 1_000
"""A round with more to do than fits ends here, so that a stop never waits long for it."""
RETRY_MS = 10_000
"""Pause of a level after a message that could not be stored."""
ROUND_S = 0.1
"""Least pause between two rounds."""
PAUSE_MS_MAX = 1_000
"""Longest one: a clock that was set is noticed by then."""
FIRST_S = 1.0

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""What tools call the delivery in VIEW_BROKER_STATS_DATA (315)."""

_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_INT = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_I32_MAX = 2**31 - 1
_HOPELESS = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class DelayLevels:
    """The pauses that a level number stands for; level 1 is the first."""

    def __init__(self, text: str = props.DELAY_LEVELS) -> None:
        """Read Java's form: numbers with s, m, h or d, separated by blanks. Raises UsageError."""
        self._ms: list[int] = []
        for word in text.split():
            match = _LEVEL.fullmatch(word)
            if match is None:
                raise UsageError(
                    f"messageDelayLevel: {word[:40]!r} is not a number with s, m, h or d"
                )
            self._ms.append(int(match[1]) * _UNITS[match[2]])
        if not 1 <= len(self._ms) <= LEVELS_MAX:
            raise UsageError(f"messageDelayLevel: 1 to {LEVELS_MAX} levels are needed")

    @property
    def highest(self) -> int:
        """The last level's number."""
        return len(self._ms)

    @property
    def shortest_ms(self) -> int:
        """How long messages of the quickest level wait."""
        return min(self._ms)

    def delay_ms(self, level: int) -> int:
        """Return how long messages of a level wait."""
        return self._ms[level - 1]

    def divert(self, draft: Draft) -> None:
        """Send a message with a delay level to the schedule topic.

        A level above the highest becomes the highest, one of 0 or less means no delay. Raises
        Refusal for a level that is no number.
        """
        text = draft.properties.get(props.DELAY)
        level = 0 if text is None else min(_level(text), self.highest)
        if level <= 0:
            return
        for name in (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS):
            draft.properties.pop(name, None)
        draft.properties[props.DELAY] = str(level)
        # Taken out first: Java writes the two behind all others, and so stores equal bytes.
        draft.properties.pop(props.REAL_TOPIC, None)
        draft.properties.pop(props.REAL_QUEUE_ID, None)
        draft.properties[props.REAL_TOPIC] = draft.topic
        draft.properties[props.REAL_QUEUE_ID] = str(draft.queue_id)
        draft.topic = names.SCHEDULE_TOPIC
        draft.queue_id = level - 1


def _level(text: str) -> int:
    if _INT.fullmatch(text) and abs(number := int(text)) <= _I32_MAX:
        return number
    raise Refusal(Reason.FAILED, f"property DELAY: {text[:40]!r} is not an integer")


class ScheduleStore(Protocol):
    """What delivery needs of the message store."""

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` messages of a queue."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue's first offset."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the queue's last dispatched message."""
        ...

    def dispatch_behind(self) -> int:
        """Return the bytes of the log that are not in the queues yet."""
        ...

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return a message of the log, None when there is none at the offset."""
        ...

    def append(self, drafts: Sequence[Draft]) -> list[PutResult]:
        """Append messages together; each has an outcome of its own. Waits for nothing."""
        ...

    async def flush(self) -> None:
        """Make everything appended so far durable. Raises StoreFault."""
        ...


@dataclasses.dataclass(slots=True)
class _Level:
    number: int
    offset: int = 0
    not_before_ms: int = 0
    # Messages below this offset had been stored by the time that `seen_due_ms` is counted from.
    seen_offset: int = 0
    seen_due_ms: int = 0
    # What is settled of the messages behind one that could not be stored: less than a batch.
    settled: set[int] = dataclasses.field(default_factory=set[int])


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How far the delivery of one level is, in offsets of its queue."""

    level: int
    offset: int
    max_offset: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleConfig:
    """Settings of the delivery of delayed messages."""

    counts: bool = setting(
        "enableScheduleMessageStats",
        True,
        "Whether delayed messages are counted when they are delivered: for their topic, and as"
        " reads of the schedule topic by the group SCHEDULE_CONSUMER.",
        live=True,
    )


class DelaySchedule:
    """Delivers delayed messages: a service for the broker that is master."""

    def __init__(
        self,
        levels: DelayLevels,
        store: ScheduleStore,
        form: TableForm,
        clock: Clock,
        persist_every_s: float = 10.0,
        *,
        traffic: InnerTraffic,
    ) -> None:
        """Read nothing yet; `traffic` is told of each message that is delivered."""
        self._traffic = traffic
        self._counts = True
        self._delays = levels
        self._store = store
        self._table = form.table(_CODEC)
        self._clock = clock
        self._persist_every_s = persist_every_s
        self._levels: dict[int, _Level] = {}
        self._others: dict[int, int] = {}
        self._idle_ms = 0
        self._version = DataVersion(timestamp=clock.now_ms())

    def follow(self, rules: ScheduleConfig) -> None:
        """Count by other settings from now on."""
        self._counts = rules.counts

    async def start(self) -> None:
        """Take over the durable offsets. Raises Corrupt when they cannot be read."""
        self._table.load()
        offsets = dict(self._table.rows())
        self._version = self._table.version or self._version
        self._levels = {
            number: _Level(number, offsets.pop(number, 0))
            for number in range(1, self._delays.highest + 1)
        }
        # Levels that the configuration no longer has keep their place in the file.
        self._others = offsets

    async def stop(self) -> None:
        """Write the offsets down."""
        await self.persist()

    @property
    def timers(self) -> tuple[Timer, ...]:
        """The rounds of delivery, and of writing the offsets down."""
        every_s = self._persist_every_s
        return (
            Timer("deliver delayed", self.deliver, self.pause_s, FIRST_S),
            Timer("persist delay offsets", self.persist, every_s, every_s),
        )

    def export(self) -> DelayOffsetBody:
        """Return a copy of the offsets, as the file and slaves (45) have them."""
        return _body(self._offsets(), self._version)

    def progress(self) -> list[Progress]:
        """Return how far each level is, for the broker's runtime information."""
        return [
            Progress(n, level.offset, self._store.max_offset(names.SCHEDULE_TOPIC, n - 1))
            for n, level in self._levels.items()
        ]

    async def persist(self) -> None:
        """Make the offsets durable; returns at once when none has moved."""
        offsets, known = self._offsets(), self._table.rows()
        for level in known.keys() - offsets.keys():
            self._table.delete(level)
        for level, offset in offsets.items():
            if known.get(level) != offset:
                self._table.put(level, offset)
        if self._table.is_changed:
            await self._store.flush()
            self._version = self._version.next(self._clock.now_ms())
            await self._table.flush(self._version)

    async def deliver(self) -> None:
        """Deliver what is due, all levels in turn."""
        end_ms = self._clock.steady_ms() + ROUND_MS_MAX
        # What is not in the queues yet may be due soon.
        self._idle_ms = 0 if self._store.dispatch_behind() else self._delays.shortest_ms
        busy = list(self._levels.values())
        while busy and self._clock.steady_ms() < end_ms:
            more: list[_Level] = []
            for level in busy:
                if await self._guarded_turn(level):
                    more.append(level)
                    await give_way()
            busy = more
        if busy:
            self._idle_ms = 0

    def pause_s(self) -> float:
        """Return when the next round is due, by what the last one found.

        That is when something is due that waits, on the full second at the latest.
        """
        second_ms = PAUSE_MS_MAX - self._clock.steady_ms() % PAUSE_MS_MAX
        return max(ROUND_S, min(self._idle_ms, second_ms) / 1000)

    async def _guarded_turn(self, level: _Level) -> bool:
        try:
            return await self._turn(level)
        except StoreFault as fault:
            where = (level.number, level.offset)
            log.warning("delay level %d has to wait at offset %d: %s", *where, fault)
            level.not_before_ms = self._clock.steady_ms() + RETRY_MS
            return False

    async def _turn(self, level: _Level) -> bool:
        """Deliver the next few messages of a level; tell whether it may have more that are due."""
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        if steady_ms < level.not_before_ms:
            self._idle_ms = min(self._idle_ms, level.not_before_ms - steady_ms)
            return False
        units = self._next_units(level)
        due: list[tuple[int, int, int]] = []
        for unit in units:
            if not self._is_due(level, unit[2], now_ms):
                wait_ms = unit[2] - now_ms
                if wait_ms > self._delays.delay_ms(level.number):
                    wait_ms = level.seen_due_ms - now_ms
                self._idle_ms = min(self._idle_ms, wait_ms)
                break
            due.append(unit)
        end = level.offset + len(due)
        if due and not self._deliver_together(level, due):
            level.not_before_ms = steady_ms + RETRY_MS
            return False
        return level.offset < end or 0 < len(due) == len(units)

    def _is_due(self, level: _Level, deliver_ms: int, now_ms: int) -> bool:
        """Tell whether the level's next message may go; it never goes too early.

        A time further off than the level's delay was stamped before the clock was set back. Such a
        message waits the whole delay from when it was first seen, with all that were there then;
        Java lets it go at once, which is too early for one that has only just been sent.
        """
        if deliver_ms <= now_ms:
            return True
        latest_ms = now_ms + self._delays.delay_ms(level.number)
        if deliver_ms <= latest_ms:
            return False
        if level.offset >= level.seen_offset:
            queue_id = level.number - 1
            level.seen_offset = self._store.max_offset(names.SCHEDULE_TOPIC, queue_id)
            level.seen_due_ms = latest_ms
        level.seen_due_ms = min(level.seen_due_ms, latest_ms)
        return level.seen_due_ms <= now_ms

    def _next_units(self, level: _Level) -> list[tuple[int, int, int]]:
        topic, queue_id = names.SCHEDULE_TOPIC, level.number - 1
        first = self._store.min_offset(topic, queue_id)
        if level.offset < first:
            log.warning(
                "delay level %d goes on at %d, not at %d: the messages between were deleted",
                level.number,
                first,
                level.offset,
            )
            level.offset = first
            level.settled.clear()
        last = self._store.max_offset(topic, queue_id)
        if level.offset > last and self._store.dispatch_behind() == 0:
            log.warning(
                "delay level %d goes on at %d, not at %d: the queue ends there",
                level.number,
                last,
                level.offset,
            )
            level.offset = last
            level.settled.clear()
        if level.offset >= last:
            return []
        return self._store.units(topic, queue_id, level.offset, BATCH)

    def _deliver_together(self, level: _Level, due: list[tuple[int, int, int]]) -> bool:
        """Store the next due messages where they were meant for, with one append.

        Returns whether to go on. The level stays at the first that could not be stored; what is
        behind it and was stored is not stored again.
        """
        drafts, end = self._drafts(level, due)
        results = self._store.append([draft for _, _, draft in drafts]) if drafts else []
        stuck: int | None = None
        for (at, size, draft), result in zip(drafts, results, strict=True):
            if result.status.is_stored:
                if self._counts:
                    self._traffic.moved(draft.topic, result.size)
                    self._traffic.looked_at(SCHEDULE_GROUP, names.SCHEDULE_TOPIC, size)
            else:
                self._complain(level, at, f"was not stored: {result.status.name} {result.why}")
                # What can never be stored would hold up its level; it stays readable in the log.
                if result.status not in _HOPELESS:
                    stuck = at if stuck is None else stuck
                    continue
            level.settled.add(at)
        level.offset = end if stuck is None else stuck
        level.settled = {at for at in level.settled if at >= level.offset}
        return stuck is None

    def _drafts(
        self, level: _Level, due: list[tuple[int, int, int]]
    ) -> tuple[list[tuple[int, int, Draft]], int]:
        """Read messages to deliver: (offset, size, message), and the offset behind the last one."""
        drafts: list[tuple[int, int, Draft]] = []
        sum_bytes = 0
        for at, (physical_offset, size, _) in enumerate(due, level.offset):
            if sum_bytes >= BATCH_BYTES:
                return drafts, at
            if at in level.settled:
                continue
            try:
                draft = self._read(physical_offset, size)
            except StoreFault:
                if at == level.offset:
                    raise
                # Those before it go first.
                return drafts, at
            if draft is None:
                self._complain(level, at, f"(log {physical_offset}) cannot be delivered")
                level.settled.add(at)
            else:
                drafts.append((at, size, draft))
                sum_bytes += size
        return drafts, level.offset + len(due)

    def _complain(self, level: _Level, at: int, what: str) -> None:
        log.error("delay level %d: the message at offset %d %s", level.number, at, what)

    def _read(self, physical_offset: int, size: int) -> Draft | None:
        try:
            record = self._store.record(physical_offset, size)
        except StoreFault as fault:
            if fault.kind != "corrupt":
                raise
            return None
        return None if record is None else _delivery(record)

    def _offsets(self) -> dict[int, int]:
        return self._others | {n: level.offset for n, level in self._levels.items() if level.offset}


def _delivery(record: Record) -> Draft | None:
    """Make the message to deliver; None when the record does not say where to, or must not go.

    The properties are stored as they are, DELAY and REAL_* included, as Java stores them: nothing
    reads them there, and a copy of the log stays equal to Java's.
    """
    properties = props.read(record.properties)
    topic = properties.get(props.REAL_TOPIC)
    queue = properties.get(props.REAL_QUEUE_ID, "")
    if topic is None or topic == names.TRANS_HALF_TOPIC or not queue.isdecimal():
        return None
    if len(queue) > len(str(_I32_MAX)) or int(queue) > _I32_MAX:
        return None
    return Draft.again(record, topic, int(queue), properties)


def _body(offsets: Mapping[int, int], version: DataVersion) -> DelayOffsetBody:
    return DelayOffsetBody(offsets=dict(sorted(offsets.items())), version=version)


def _decode(data: bytes) -> Rows[int, int]:
    body = DelayOffsetBody.decode(data)
    if any(offset < 0 for offset in body.offsets.values()):
        raise JsonError("offsetTable: an offset is negative")
    return Rows(body.offsets, body.version)


def _encode(table: Rows[int, int]) -> bytes:
    return _body(table.rows, table.version or DataVersion()).encode_file()


_CODEC = TableCodec(_decode, _encode)
