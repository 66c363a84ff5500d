"""What went in and out: rates by topic and group, and the totals of the days.

A meter keeps sums in slots of ten seconds, ten minutes and an hour; adding touches one slot, and
nothing has to be sampled. The sets have the names that tools ask for (VIEW_BROKER_STATS_DATA 315).
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.broker.metrics.daily_totals import DailyTotals
from roquet.protocol import names
from roquet.store.results import BatchResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from roquet.base.clock import Clock
    from roquet.service.metrics import Distribution, Metrics
    from roquet.store.results import GetResult, PutResult

log = logging.getLogger(__name__)

SLOT_MS = 10_000
SIZES = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
"""Upper bounds of the classes of message sizes, in bytes, as in RocketMQ 5."""
METERS_MAX = 200_000
"""Meters kept at once; beyond it new names are not measured one by one."""

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_SLOTS_OF_HOUR = 60
"""Fine slots in one of the slots that make up the last hour: ten minutes."""
_SLOTS_OF_DAY = 360
"""Fine slots in one of the slots that make up the last day: an hour."""
_WHOLE_BROKER = "*"
"""Key of the meters that count everything; tools ask for them by the cluster's name."""


class Sums(NamedTuple):
    """Sum, sum per second, and sum per event of one span."""

    total: int
    per_second: float
    per_event: float


class Meter:
    """Sums and counts of one thing over the last minute, hour and day."""

    __slots__ = ("_day", "_hour", "_minute", "_slot", "events", "first_ms", "total")

    def __init__(self, now_ms: int) -> None:
        """Begin at zero now."""
        self.total = 0
        self.events = 0
        self.first_ms = now_ms
        self._slot = now_ms // SLOT_MS
        self._minute: dict[int, list[int]] = {}
        self._hour: dict[int, list[int]] = {}
        self._day: dict[int, list[int]] = {}

    def add(self, number: int, now_ms: int, events: int = 1) -> None:
        """Count `events` of together `number`."""
        slot = now_ms // SLOT_MS
        if slot != self._slot:
            self._turn(slot)
        self.total += number
        self.events += events
        pair = self._minute.get(slot)
        if pair is None:
            pair = self._minute[slot] = [0, 0]
        pair[0] += number
        pair[1] += events

    def last(self, now_ms: int, slots: int) -> tuple[int, int, int]:
        """Return (sum, events, milliseconds covered) of the last whole slots of ten seconds.

        What is younger than a slot counts over the time there was.
        """
        self._turn(now_ms // SLOT_MS)
        covered_ms = min(self._slot * SLOT_MS - self.first_ms, slots * SLOT_MS)
        if covered_ms <= 0:
            return self.total, self.events, max(now_ms - self.first_ms, 1000)
        first, end = self._slot - slots, self._slot
        seen = [pair for slot, pair in self._minute.items() if first <= slot < end]
        return sum(pair[0] for pair in seen), sum(pair[1] for pair in seen), covered_ms

    def since(self, now_ms: int, span_ms: int) -> tuple[int, int, int]:
        """Return (sum, events, milliseconds covered) of a minute, an hour or a day up to now."""
        self._turn(now_ms // SLOT_MS)
        first = self._slot - span_ms // SLOT_MS
        pairs = [pair for slot, pair in self._minute.items() if slot > first]
        pairs += [p for slot, p in self._hour.items() if (slot + 1) * _SLOTS_OF_HOUR > first]
        pairs += [p for slot, p in self._day.items() if (slot + 1) * _SLOTS_OF_DAY > first]
        covered_ms = max(1000, min(span_ms, now_ms - self.first_ms))
        return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs), covered_ms

    def _turn(self, slot: int) -> None:
        """Move what has become old to the coarser slots, and forget what is older than a day."""
        if slot == self._slot:
            return
        self._slot = slot
        # Rates over ten minutes need as many fine slots.
        _fold(self._minute, self._hour, slot - _SLOTS_OF_HOUR - 1, _SLOTS_OF_HOUR)
        hour = slot // _SLOTS_OF_HOUR
        _fold(self._hour, self._day, hour - 7, _SLOTS_OF_DAY // _SLOTS_OF_HOUR)
        day = slot // _SLOTS_OF_DAY
        for old in [key for key in self._day if key < day - 25]:
            del self._day[old]


def _fold(fine: dict[int, list[int]], coarse: dict[int, list[int]], before: int, by: int) -> None:
    for key in [key for key in fine if key < before]:
        number, events = fine.pop(key)
        pair = coarse.setdefault(key // by, [0, 0])
        pair[0] += number
        pair[1] += events


class View:
    """One named figure: the sum of one or several meters, of their numbers or of their events."""

    def __init__(self, meters: Sequence[Meter], *, events: bool) -> None:
        """Look at `meters`; `events` counts events instead of adding numbers up."""
        self._meters = meters
        self._index = 1 if events else 0

    @property
    def total(self) -> int:
        """The sum since the start."""
        return sum(meter.events if self._index else meter.total for meter in self._meters)

    def rate(self, now_ms: int, slots: int = 6) -> float:
        """Return the sum per second over the last whole slots of ten seconds."""
        return sum(
            found[self._index] * 1000 / found[2]
            for found in (meter.last(now_ms, slots) for meter in self._meters)
        )

    def minute(self, now_ms: int) -> Sums:
        """Return the sums of the last minute."""
        return self._sums(now_ms, _MINUTE_MS)

    def hour(self, now_ms: int) -> Sums:
        """Return the sums of the last hour."""
        return self._sums(now_ms, _HOUR_MS)

    def day(self, now_ms: int) -> Sums:
        """Return the sums of the last day."""
        return self._sums(now_ms, _DAY_MS)

    def _sums(self, now_ms: int, span_ms: int) -> Sums:
        found = [meter.since(now_ms, span_ms) for meter in self._meters]
        total = sum(it[self._index] for it in found)
        events = sum(it[1] for it in found)
        covered_ms = max((it[2] for it in found), default=1000)
        return Sums(total, total * 1000 / covered_ms, total / events if events else 0.0)


_SETS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "TOPIC_PUT_NUMS": (("TOPIC_PUT",), True),
    "TOPIC_PUT_SIZE": (("TOPIC_PUT",), False),
    "GROUP_GET_NUMS": (("GROUP_GET",), True),
    "GROUP_GET_SIZE": (("GROUP_GET",), False),
    "SNDBCK_PUT_NUMS": (("SNDBCK_PUT",), True),
    "SNDBCK2DLQ_TIMES": (("SNDBCK2DLQ",), True),
    "TOPIC_PUT_LATENCY": (("TOPIC_PUT_LATENCY",), False),
    "GROUP_GET_LATENCY": (("GROUP_GET_LATENCY",), False),
    "GROUP_GET_FALL_SIZE": (("GROUP_GET_FALL",), False),
    "DLQ_PUT_NUMS": (("DLQ_PUT",), True),
    "BROKER_PUT_NUMS": (("BROKER_PUT", "SYSTEM_PUT"), True),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (("BROKER_PUT",), True),
    "BROKER_GET_NUMS": (("BROKER_GET", "SYSTEM_GET"), True),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (("BROKER_GET",), True),
    "BROKER_GET_FOUND": (("FOUND",), True),
    "BROKER_GET_MISSES": (("MISS",), True),
}
"""Name that tools know -> (kinds of meters, whether events are counted)."""

_OF_TOPICS = frozenset({"TOPIC_PUT", "TOPIC_PUT_LATENCY", "DLQ_PUT"})
"""Kinds whose key ends with a topic; that of all others with a group, or names everything."""


class _Puts(NamedTuple):
    """What the messages stored in a topic count for, looked up once for all of them."""

    is_system: bool
    topic: Meter
    broker: Meter
    dead: Meter | None
    """None: they are no dead letters."""


class _Gets(NamedTuple):
    """The same for reads of a queue by a group that find messages."""

    is_system: bool
    found: Meter
    group: Meter
    broker: Meter
    behind: Meter
    latency: Meter


class BrokerStats:
    """Meters by kind and key, told of traffic by the services (`metrics/traffic.py`)."""

    def __init__(self, cluster: str, clock: Clock, daily_totals: DailyTotals | None = None) -> None:
        """Measure nothing yet; the sets of the whole broker have the cluster's name as key."""
        self._cluster = cluster
        self._clock = clock
        self._meters: dict[tuple[str, str], Meter] = {}
        self._full = False
        self._unmeasured = Meter(clock.now_ms())
        """Counts for what has no meter of its own; nobody reads it."""
        self._puts: dict[str, _Puts] = {}
        self._gets: dict[tuple[str, str, int], _Gets] = {}
        """By group, topic and queue."""
        self.daily_totals = daily_totals or DailyTotals(clock)
        self.put_bytes = 0
        self.put_count = 0
        self.put_failures = 0
        self.started_ms = clock.now_ms()
        self._adds_up_light = False
        self._sizes: Distribution | None = None

    def add_up_light(self, *, yes: bool) -> None:
        """Say whether all light queues and groups are measured as one, by their prefix."""
        self._adds_up_light = yes
        self._gets.clear()

    # --- traffic -------------------------------------------------------------------------------

    def stored(self, topic: str, queue_id: int, result: PutResult | BatchResult) -> None:
        """Note what a producer sent."""
        count = len(result.physical_offsets) if isinstance(result, BatchResult) else 1
        if result.status.is_stored:
            self.stored_many(topic, queue_id, count, result.size)
        else:
            self.put_failures += max(count, 1)

    def stored_many(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        """Note messages that producers sent and that are stored; `size` is bytes of records."""
        del queue_id
        now_ms = self._clock.now_ms()
        puts = self._puts.get(topic) or self._puts_of(topic, now_ms)
        if not puts.is_system:
            self.daily_totals.put(messages, now_ms)
        self.put_bytes += size
        self.put_count += messages
        puts.topic.add(size, now_ms, messages)
        if self._sizes is not None and messages:
            self._sizes.observe((topic,), size / messages, messages)
        puts.broker.add(size, now_ms, messages)
        if puts.dead is not None:
            puts.dead.add(size, now_ms, messages)

    def moved(self, topic: str, size: int, messages: int = 1) -> None:
        """Note messages that the broker itself stored in a topic, for a producer or for itself.

        Those are delayed messages that are delivered, popped ones that come again, and what
        transactions write. `size` is the bytes of all their records.
        """
        now_ms = self._clock.now_ms()
        if not names.is_system_topic(topic):
            self.daily_totals.put(messages, now_ms)
        self._add("TOPIC_PUT", topic, size, now_ms, messages)
        kind = "SYSTEM_PUT" if names.is_system_topic(topic) else "BROKER_PUT"
        self._add(kind, _WHOLE_BROKER, size, now_ms, messages)

    def looked_at(self, group: str, topic: str, size: int) -> None:
        """Note a message that the broker itself read, under a group of its own."""
        self._add("GROUP_GET", self._reader(topic, group), size, self._clock.now_ms())

    def sent_many(self, topic: str, queue_id: int, sends: int, took_ms: int) -> None:
        """Note sends that were stored and took so long together, from their arrival on."""
        now_ms = self._clock.now_ms()
        self._add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", took_ms, now_ms, sends)

    def pulled(
        self, group: str, topic: str, queue_id: int, result: GetResult, took_ms: int = 0
    ) -> None:
        """Note what a read for a group was answered with, and how long reading took."""
        if result.status is not GetStatus.FOUND:
            self.missed_many(1)
            return
        behind = max(0, result.max_offset - result.next_begin_offset)
        count, size = result.messages, len(result.records)
        self.found_many(group, topic, queue_id, count, size, behind=behind, took_ms=took_ms)

    def found_many(
        self,
        group: str,
        topic: str,
        queue_id: int,
        messages: int,
        size: int,
        *,
        behind: int,
        reads: int = 1,
        took_ms: int = 0,
    ) -> None:
        """Note reads for a group that found messages and left `behind` unread, all together."""
        now_ms = self._clock.now_ms()
        where = group, topic, queue_id
        gets = self._gets.get(where) or self._gets_of(where, now_ms)
        if not gets.is_system:
            self.daily_totals.get(messages, now_ms)
        gets.found.add(0, now_ms, reads)
        gets.group.add(size, now_ms, messages)
        gets.broker.add(size, now_ms, messages)
        gets.behind.add(behind, now_ms, reads)
        gets.latency.add(took_ms, now_ms, reads)

    def missed_many(self, reads: int) -> None:
        """Note reads that found nothing."""
        self._add("MISS", _WHOLE_BROKER, 0, self._clock.now_ms(), reads)

    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        """Note a message of a topic that a group sent back; `dead`: for good."""
        key, now_ms = self._reader(topic, group), self._clock.now_ms()
        self._add("SNDBCK_PUT", key, 0, now_ms)
        if dead:
            self._add("DLQ_PUT", names.dlq_topic(group), 0, now_ms)
            self._add("SNDBCK2DLQ", key, 0, now_ms)

    # --- looking -------------------------------------------------------------------------------

    def find(self, name: str, key: str) -> View | None:
        """Return a figure by the name and key that tools use, None when nothing was measured."""
        kinds, events = _SETS.get(name, ((), True))
        if name.startswith("BROKER_"):
            key = _WHOLE_BROKER if key == self._cluster else ""
        meters = [self._meters[kind, key] for kind in kinds if (kind, key) in self._meters]
        return View(meters, events=events) if meters else None

    def put_rate(self, topic: str) -> float:
        """Return messages a second sent to a topic."""
        return self._rate("TOPIC_PUT_NUMS", topic)

    def get_rate(self, group: str, topic: str) -> float:
        """Return messages a second that a group got of a topic."""
        return self._rate("GROUP_GET_NUMS", self._reader(topic, group))

    def rates(self, name: str) -> str:
        """Return a whole-broker figure's rates over 10 s, a minute and ten minutes, as text."""
        view = self.find(name, self._cluster)
        if view is None:
            return "0.0 0.0 0.0"
        now_ms = self._clock.now_ms()
        return " ".join(str(round(view.rate(now_ms, slots), 4)) for slots in (1, 6, 60))

    def watch(self, metrics: Metrics, type_of: Callable[[str], str]) -> None:
        """Show traffic by topic and group under RocketMQ's names.

        `type_of` says what kind of messages a topic is for (Java: message.type).
        """

        def into(*, events: bool) -> Iterator[tuple[tuple[str, ...], float]]:
            for topic, number in self._totals("TOPIC_PUT", events=events).items():
                yield (topic, type_of(topic), _word(names.is_system_topic(topic))), number

        def out(*, events: bool) -> Iterator[tuple[tuple[str, ...], float]]:
            for key, number in self._totals("GROUP_GET", events=events).items():
                topic, _, group = key.partition("@")
                system = names.is_system_topic(topic) or names.is_system_group(group)
                yield (topic, group, _word(system), _word(names.is_retry(topic))), number

        def dead() -> Iterator[tuple[tuple[str, ...], float]]:
            for key, number in self._totals("SNDBCK2DLQ", events=True).items():
                topic, _, group = key.partition("@")
                system = names.is_system_topic(topic) or names.is_system_group(group)
                yield (group, topic, _word(system)), number

        labels = ("topic", "message_type", "is_system")
        for name, text, events in (
            ("messages_in", "Messages stored for producers", True),
            ("throughput_in", "Bytes of records stored for producers", False),
        ):
            read = functools.partial(into, events=events)
            metrics.standard(name, text, labels, read, counts=True)

        def of_topic(key: tuple[str, ...]) -> tuple[str, str, str]:
            return key[0], type_of(key[0]), _word(names.is_system_topic(key[0]))

        text = "Bytes of the records of messages stored for producers"
        self._sizes = metrics.distribution("message_size", text, labels, SIZES, of_topic)
        out_labels = ("topic", "consumer_group", "is_system", "is_retry")
        for name, text, events in (
            ("messages_out", "Messages read by consumers", True),
            ("throughput_out", "Bytes of records read by consumers", False),
        ):
            read = functools.partial(out, events=events)
            metrics.standard(name, text, out_labels, read, counts=True)
        labels = ("consumer_group", "topic", "is_system")
        text = "Messages given up and put aside"
        metrics.standard("send_to_dlq_messages", text, labels, dead, counts=True)

    # --- upkeep --------------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        """Drop the meters of a deleted topic."""
        self._forget(lambda _, parts: topic in parts)
        if self._sizes is not None:
            self._sizes.forget((topic,))

    def forget_group(self, group: str) -> None:
        """Drop the meters of a deleted group."""
        self._forget(lambda kind, parts: kind not in _OF_TOPICS and parts[-1] == group)

    def _forget(self, match: Callable[[str, list[str]], bool]) -> None:
        for name in [name for name in self._meters if match(name[0], name[1].split("@"))]:
            del self._meters[name]
        self._full = len(self._meters) >= METERS_MAX
        self._puts.clear()
        self._gets.clear()

    def _totals(self, kind: str, *, events: bool) -> dict[str, float]:
        return {
            key: float(meter.events if events else meter.total)
            for (of, key), meter in self._meters.items()
            if of == kind
        }

    def _rate(self, name: str, key: str) -> float:
        view = self.find(name, key)
        return 0.0 if view is None else view.rate(self._clock.now_ms())

    def _reader(self, topic: str, group: str) -> str:
        """Return the key under which a group's reads of a topic are measured."""
        if self._adds_up_light:
            topic = names.LMQ_PREFIX if names.is_lmq(topic) else topic
            group = names.LMQ_PREFIX if names.is_lmq(group) else group
        return f"{topic}@{group}"

    def _add(self, kind: str, key: str, number: int, now_ms: int, events: int = 1) -> None:
        self._meter(kind, key, now_ms).add(number, now_ms, events)

    def _meter(self, kind: str, key: str, now_ms: int) -> Meter:
        meter = self._meters.get((kind, key))
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                if not self._full:
                    log.warning("%d meters: no more names are measured", METERS_MAX)
                    self._full = True
                return self._unmeasured
            meter = self._meters[kind, key] = Meter(now_ms)
        return meter

    def _puts_of(self, topic: str, now_ms: int) -> _Puts:
        is_system = names.is_system_topic(topic)
        of_topic = self._meter("TOPIC_PUT", topic, now_ms)
        broker = self._meter("SYSTEM_PUT" if is_system else "BROKER_PUT", _WHOLE_BROKER, now_ms)
        dead = self._meter("DLQ_PUT", topic, now_ms) if names.is_dlq(topic) else None
        puts = _Puts(is_system, of_topic, broker, dead)
        if self._unmeasured not in puts:
            self._puts[topic] = puts
        return puts

    def _gets_of(self, where: tuple[str, str, int], now_ms: int) -> _Gets:
        group, topic, queue_id = where
        key = self._reader(topic, group)
        is_system = names.is_system_topic(topic)
        gets = _Gets(
            is_system,
            found=self._meter("FOUND", _WHOLE_BROKER, now_ms),
            group=self._meter("GROUP_GET", key, now_ms),
            broker=self._meter("SYSTEM_GET" if is_system else "BROKER_GET", _WHOLE_BROKER, now_ms),
            behind=self._meter("GROUP_GET_FALL", f"{queue_id}@{key}", now_ms),
            latency=self._meter("GROUP_GET_LATENCY", f"{queue_id}@{key}", now_ms),
        )
        # Light queues that are measured as one have few meters and many names.
        if self._unmeasured not in gets and len(self._gets) < METERS_MAX:
            self._gets[where] = gets
        return gets


def _word(value: bool) -> str:
    return "true" if value else "false"
