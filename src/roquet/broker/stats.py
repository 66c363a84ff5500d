"""What went in and out: rates by topic and group, and the totals of the days.

A meter keeps sums in slots of ten seconds, ten minutes and an hour; adding touches one slot, and
nothing has to be sampled. The sets have the names that tools ask for (VIEW_BROKER_STATS_DATA 315).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.protocol import names
from roquet.store.results import BatchResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.base.clock import Clock
    from roquet.store.results import GetResult, PutResult

log = logging.getLogger(__name__)

SLOT_MS = 10_000
METERS_MAX = 200_000
"""Meters kept at once; beyond it new names are not measured one by one."""

_PER_MINUTE = 6
_SLOTS_OF_HOUR = 60
_SLOTS_OF_DAY = 360
_DAY_MS = 86_400_000


class Sums(NamedTuple):
    """Sum, sum per second, and sum per event of one span."""

    total: int
    per_second: float
    per_event: float


class Meter:
    """Sums and counts of one thing over the last minute, hour and day."""

    __slots__ = ("_day", "_hour", "_minute", "_slot", "count", "first_ms", "total")

    def __init__(self, now_ms: int) -> None:
        """Begin at zero now."""
        self.total = 0
        self.count = 0
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
        self.count += events
        pair = self._minute.get(slot)
        if pair is None:
            pair = self._minute[slot] = [0, 0]
        pair[0] += number
        pair[1] += events

    def rate(self, now_ms: int, slots: int = _PER_MINUTE) -> float:
        """Return the sum per second over the last whole slots of ten seconds."""
        self._turn(now_ms // SLOT_MS)
        first = self._slot - slots
        covered_ms = min(now_ms // SLOT_MS * SLOT_MS - self.first_ms, slots * SLOT_MS)
        if covered_ms <= 0:
            # Younger than one slot: what there is, over the time there was.
            return self.total * 1000 / max(now_ms - self.first_ms, 1000)
        seen = sum(p[0] for slot, p in self._minute.items() if first <= slot < self._slot)
        return seen * 1000 / covered_ms

    def minute(self, now_ms: int) -> Sums:
        """Return the sums of the last minute."""
        self._turn(now_ms // SLOT_MS)
        return self._sums([self._since(self._minute, self._slot - _PER_MINUTE)], now_ms, 60_000)

    def hour(self, now_ms: int) -> Sums:
        """Return the sums of the last hour."""
        self._turn(now_ms // SLOT_MS)
        parts = [
            self._since(self._minute, 0),
            self._since(self._hour, (self._slot - 360) // _SLOTS_OF_HOUR),
        ]
        return self._sums(parts, now_ms, 3_600_000)

    def day(self, now_ms: int) -> Sums:
        """Return the sums of the last day."""
        self._turn(now_ms // SLOT_MS)
        parts = [
            self._since(self._minute, 0),
            self._since(self._hour, 0),
            self._since(self._day, (self._slot - 8640) // _SLOTS_OF_DAY),
        ]
        return self._sums(parts, now_ms, _DAY_MS)

    def _sums(self, parts: list[tuple[int, int]], now_ms: int, span_ms: int) -> Sums:
        total = sum(part[0] for part in parts)
        count = sum(part[1] for part in parts)
        covered_ms = max(1000, min(span_ms, now_ms - self.first_ms))
        return Sums(total, total * 1000 / covered_ms, total / count if count else 0.0)

    @staticmethod
    def _since(slots: Mapping[int, list[int]], first: int) -> tuple[int, int]:
        numbers = [pair for slot, pair in slots.items() if slot > first]
        return sum(pair[0] for pair in numbers), sum(pair[1] for pair in numbers)

    def _turn(self, slot: int) -> None:
        """Move what has become old to the coarser slots, and forget what is older than a day."""
        if slot == self._slot:
            return
        self._slot = slot
        # A minute of rates and ten minutes of them need the fine slots for an hour's sixth.
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


class DayTotals:
    """A total's value now, at this morning's midnight and at yesterday's."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.now = 0
        self.this_morning = 0
        self.yesterday_morning = 0

    def roll(self) -> None:
        """Begin a new day."""
        self.yesterday_morning = self.this_morning
        self.this_morning = self.now


class BrokerStats:
    """Meters by set and key. It is told of traffic by the processors (`broker.traffic.Traffic`)."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        """Measure nothing yet; the sets of the whole broker have the cluster's name as key."""
        self._cluster = cluster
        self._clock = clock
        self._meters: dict[tuple[str, str], Meter] = {}
        self._full = False
        self.puts = DayTotals()
        self.gets = DayTotals()
        self.put_bytes = 0
        self.put_failures = 0
        self._day = clock.now_ms() // _DAY_MS
        self.started_ms = clock.now_ms()

    # --- traffic -------------------------------------------------------------------------------

    def stored(self, topic: str, queue_id: int, result: PutResult | BatchResult) -> None:
        """Note what a producer sent."""
        del queue_id
        count = len(result.physical_offsets) if isinstance(result, BatchResult) else 1
        if not result.status.is_stored:
            self.put_failures += max(count, 1)
            return
        now_ms = self._clock.now_ms()
        self._new_day(now_ms)
        self.puts.now += count
        self.put_bytes += result.size
        self._add("BROKER_PUT_NUMS", self._cluster, count, now_ms)
        self._add("TOPIC_PUT_NUMS", topic, count, now_ms)
        self._add("TOPIC_PUT_SIZE", topic, result.size, now_ms, count)
        if names.is_dlq(topic):
            self._add("DLQ_PUT_NUMS", topic, count, now_ms)
        if not names.is_system_topic(topic):
            self._add("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, count, now_ms)

    def pulled(self, group: str, topic: str, queue_id: int, result: GetResult) -> None:
        """Note what a read for a group was answered with."""
        now_ms = self._clock.now_ms()
        if result.status is not GetStatus.FOUND:
            self._add("BROKER_GET_MISSES", self._cluster, 1, now_ms)
            return
        self._new_day(now_ms)
        self.gets.now += result.messages
        key = f"{topic}@{group}"
        self._add("BROKER_GET_FOUND", self._cluster, 1, now_ms)
        self._add("BROKER_GET_NUMS", self._cluster, result.messages, now_ms)
        self._add("GROUP_GET_NUMS", key, result.messages, now_ms)
        self._add("GROUP_GET_SIZE", key, len(result.records), now_ms, result.messages)
        behind = result.max_offset - result.next_begin_offset
        self._add("GROUP_GET_FALL_SIZE", f"{queue_id}@{key}", max(0, behind), now_ms)
        if not names.is_system_topic(topic):
            self._add(
                "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, result.messages, now_ms
            )

    def sent_back(self, group: str, topic: str, count: int = 1) -> None:
        """Note messages that a group sent back."""
        self._add("SNDBCK_PUT_NUMS", f"{topic}@{group}", count, self._clock.now_ms())

    # --- looking -------------------------------------------------------------------------------

    def meter(self, kind: str, key: str) -> Meter | None:
        """Return a meter, None when nothing was measured under that name."""
        return self._meters.get((kind, key))

    def put_rate(self, topic: str) -> float:
        """Return messages a second sent to a topic."""
        return self._rate("TOPIC_PUT_NUMS", topic)

    def get_rate(self, group: str, topic: str) -> float:
        """Return messages a second that a group got of a topic."""
        return self._rate("GROUP_GET_NUMS", f"{topic}@{group}")

    def rates(self, kind: str) -> str:
        """Return a whole-broker set's rates over 10 s, a minute and ten minutes, as text."""
        meter = self.meter(kind, self._cluster)
        now_ms = self._clock.now_ms()
        if meter is None:
            return "0.0 0.0 0.0"
        return " ".join(str(round(meter.rate(now_ms, slots), 4)) for slots in (1, 6, 60))

    def total(self, kind: str) -> int:
        """Return a whole-broker set's sum since the start."""
        meter = self.meter(kind, self._cluster)
        return 0 if meter is None else meter.total

    # --- upkeep --------------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        """Drop the meters of a deleted topic."""
        self._forget(lambda parts: topic in parts)

    def forget_group(self, group: str) -> None:
        """Drop the meters of a deleted group."""
        self._forget(lambda parts: len(parts) > 1 and parts[-1] == group)

    def _forget(self, match: Callable[[list[str]], bool]) -> None:
        for name in [name for name in self._meters if match(name[1].split("@"))]:
            del self._meters[name]
        self._full = len(self._meters) >= METERS_MAX

    def _rate(self, kind: str, key: str) -> float:
        meter = self.meter(kind, key)
        return 0.0 if meter is None else meter.rate(self._clock.now_ms())

    def _add(self, kind: str, key: str, number: int, now_ms: int, events: int = 1) -> None:
        meter = self._meters.get((kind, key))
        if meter is None:
            if len(self._meters) >= METERS_MAX:
                if not self._full:
                    log.warning("%d meters: no more names are measured", METERS_MAX)
                    self._full = True
                return
            meter = self._meters[kind, key] = Meter(now_ms)
        meter.add(number, now_ms, events)

    def _new_day(self, now_ms: int) -> None:
        day = now_ms // _DAY_MS
        if day != self._day:
            self._day = day
            self.puts.roll()
            self.gets.roll()
