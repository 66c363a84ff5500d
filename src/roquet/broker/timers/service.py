"""The timer wheel as a part of the broker that is master.

The wheel turns in a thread of the core. It is opened after the store and closed before it; the
counts of waiting messages by topic are kept in Java's file `timermetrics`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Corrupt
from roquet.base.hours import hour_of
from roquet.model.data_version import DataVersion
from roquet.protocol import names
from roquet.protocol.bodies.timers import TimerMetricsBody, TopicTimers
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault
from roquet.store.timer_wheel import close_wheel, open_wheel, read_checkpoint, recount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock
    from roquet.broker.timers.rules import TimerConfig
    from roquet.store.store import MessageStore
    from roquet.store.tables.files import JsonFile
    from roquet.store.timer_wheel import TimerWheel

log = logging.getLogger(__name__)

SAVE_S = 10.0
RATES_S = 1.0
CHECK_S = 45 * 60.0
CHECK_PAUSE_MS = 70 * 60_000
"""Least time between two counts of all waiting messages, and from the start to the first."""
NAMED_MAX = 20
"""Topics with wrong counts that are named in the log."""
DELAYS_S = (60, 600, 3600, 43_200, 86_400, 259_200)
"""Upper bounds of the classes of delays, as the core counts them."""
BOUNDS_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""Bounds by which waiting messages are shown (`rocketmq_timer_message_snapshot`)."""
_NOTHING: dict[str, int] = {}


class TimerService:
    """Opens, watches and closes the wheel."""

    def __init__(
        self, store: MessageStore, rules: TimerConfig, file: JsonFile, clock: Clock
    ) -> None:
        """`file` is `timermetrics`."""
        self._store = store
        self._rules = rules
        self._file = file
        self._clock = clock
        self._wheel: TimerWheel | None = None
        self._version = DataVersion(timestamp=clock.now_ms())
        self._saved: tuple[TopicTimers, ...] = ()
        self._rates = (0.0, 0.0)
        self._before = (0, 0, clock.now_ms())
        self._trouble: str | None = None
        self._waits = 0
        self._clock_seen = (0, 0)
        self._checked_ms = clock.now_ms()
        self._corrected = 0
        self._rated = RateLog(log, clock, every_s=60.0)

    @property
    def timers(self) -> tuple[Timer, ...]:
        """Saving the counts, checking them, and measuring rates."""
        return (
            Timer("check timer metrics", self.check, CHECK_S, CHECK_S),
            Timer("save timer metrics", self.persist, SAVE_S, SAVE_S),
            Timer("watch timers", self.look, RATES_S, RATES_S),
        )

    async def start(self) -> None:
        """Open the wheel and let it turn, unless it is switched off. Raises StoreFault."""
        if not self._rules.enabled:
            return
        try:
            body = self._file.load(TimerMetricsBody.decode)
        except Corrupt as error:
            log.warning("the counts of waiting timer messages begin at 0: %s", error)
            body = None
        rules = self._rules
        wheel = await open_wheel(
            self._store,
            log_file_size=rules.log_file_bytes,
            precision_ms=rules.precision_ms,
            window=rules.window_slots,
            flush_ms=rules.flush_ms,
            key_has_topic=rules.key_has_topic,
        )
        if body is not None:
            self._version, self._saved = body.version, body.topics
        wheel.set_metrics([(row.topic, row.waiting, row.timestamp) for row in self._saved])
        stats = wheel.stats()
        if stats["rebuilt_units"] > 0 or stats["cut_bytes"] or stats["replayed"]:
            log.warning(
                "the timer wheel was made anew: %d messages of its log, %d bytes cut off, %d"
                " messages read again from the timer topic",
                max(0, stats["rebuilt_units"]),
                stats["cut_bytes"],
                stats["replayed"],
            )
        self._wheel = wheel
        self.follow(self._rules)
        wheel.start()

    async def stop(self) -> None:
        """Stop the wheel and make it durable."""
        wheel = self._wheel
        if wheel is None:
            return
        await self.persist()
        self._wheel = None
        try:
            await close_wheel(wheel)
        except StoreFault as fault:
            log.warning("the timer wheel was not saved, the next start makes it anew: %s", fault)

    def follow(self, rules: TimerConfig) -> None:
        """Take over what was changed while running."""
        self._rules = rules
        if self._wheel is not None:
            self._wheel.allow(not rules.stop_enqueue, not rules.stop_dequeue)
            self._wheel.set_snapshots(rules.snapshot_ms if rules.snapshot else 0)

    # --- what others ask ------------------------------------------------------------------------

    @property
    def is_turning(self) -> bool:
        """Whether there is a wheel at work."""
        return self._wheel is not None

    def waiting_at(self, time_ms: int) -> int | None:
        """Return how many messages wait for a step of time; None when the wheel does not turn."""
        return None if self._wheel is None else self._wheel.waiting_at(time_ms)

    @property
    def is_on(self) -> bool:
        """Whether timer messages are taken."""
        return self._rules.enabled

    def passed_ms(self) -> int | None:
        """Return the time up to which every due message is in the log, Unix milliseconds.

        None while messages wait to enter the wheel, and when it does not turn.
        """
        stats = self._stats()
        return None if stats.get("behind", 1) else stats["read_ms"] - 1

    async def checkpoint(self) -> bytes | None:
        """Return the 56 bytes that slaves copy; None when there is no wheel.

        While the wheel stands they are those of the file: whoever takes over from a master that has
        become a slave asks for what fired there until then, and must not fire it again.
        """
        if self._wheel is not None:
            return self._wheel.checkpoint()
        if not self._rules.enabled:
            return None
        return await asyncio.to_thread(read_checkpoint, self._file.path.parent)

    async def export(self) -> TimerMetricsBody | None:
        """Return the waiting messages by topic, of the file while the wheel stands, or None."""
        if self._wheel is not None:
            return TimerMetricsBody(topics=self._topics(self._wheel), version=self._version)
        if not self._rules.enabled:
            return None
        try:
            return await asyncio.to_thread(self._file.load, TimerMetricsBody.decode)
        except Corrupt:
            return None

    def runtime(self) -> dict[str, str]:
        """Return the lines of the broker's runtime information."""
        stats = self._stats()
        late_s = max(0, (stats.get("write_ms", 0) - stats.get("read_ms", 0)) // 1000)
        congested = self.waiting_at(self._clock.now_ms()) or 0
        return {
            "timerCongestNum": str(congested),
            "timerDequeueTps": str(self._rates[1]),
            "timerEnqueueTps": str(self._rates[0]),
            "timerOffsetBehind": str(stats.get("behind", 0)),
            "timerReadBehind": str(late_s),
            "timerWaits": str(stats.get("waits", 0)),
        }

    def waiting(self) -> dict[str, float]:
        """Return how many messages wait, by topic."""
        if self._wheel is None:
            return {}
        return {row.topic: float(row.waiting) for row in self._topics(self._wheel)}

    def within(self) -> dict[int, float]:
        """Return how many messages wait by the bound, seconds, that they are due before."""
        if self._wheel is None:
            return {}
        counts = self._wheel.distribution([bound * 1000 for bound in BOUNDS_S])
        return {bound: float(n) for bound, n in zip(BOUNDS_S, counts, strict=True)}

    def traffic(self) -> list[tuple[str, int, int, list[int], int]]:
        """Return what entered and left since the start.

        Rows of (topic, entered, stored in the topic, entered by class of delay, sum of the delays
        in seconds); the classes end at `DELAYS_S`.
        """
        return [] if self._wheel is None else self._wheel.traffic()

    def enqueue_late_ms(self) -> int:
        """Return how old the first message is that has not entered the wheel; 0 without one."""
        behind = self.stat("behind")
        if behind <= 0:
            return 0
        first = self._store.max_offset(names.TIMER_TOPIC, 0) - behind
        stored_ms = self._store.store_time(names.TIMER_TOPIC, 0, int(first))
        return max(0, self._clock.now_ms() - stored_ms) if stored_ms > 0 else 0

    def dequeue_late_ms(self) -> int:
        """Return for how long the slot that fires next has been due; 0 when the wheel stands."""
        read_ms = self.stat("read_ms")
        return max(0, self._clock.now_ms() - int(read_ms)) if read_ms > 0 else 0

    @property
    def corrected(self) -> int:
        """Counts that the daily check found wrong."""
        return self._corrected

    def stat(self, name: str) -> float:
        """Return one of the wheel's counters or positions; 0 while it stands."""
        return float(self._stats().get(name, 0))

    def _stats(self) -> dict[str, int]:
        return _NOTHING if self._wheel is None else self._wheel.stats()

    @staticmethod
    def _topics(wheel: TimerWheel) -> tuple[TopicTimers, ...]:
        return tuple(sorted(TopicTimers(*row) for row in wheel.metrics()))

    # --- timers ---------------------------------------------------------------------------------

    async def look(self) -> None:
        """Measure rates and say when the wheel cannot go on."""
        stats = self._stats()
        enqueued, fired, at_ms = self._before
        now_ms = self._clock.now_ms()
        self._before = (stats.get("enqueued", 0), stats.get("fired", 0), now_ms)
        seconds = max(1, now_ms - at_ms) / 1000
        self._rates = (
            round(max(0, self._before[0] - enqueued) / seconds, 1),
            round(max(0, self._before[1] - fired) / seconds, 1),
        )
        waits = stats.get("waits", 0)
        if waits > self._waits:
            self._rated.error(
                "waits",
                "due timer messages wait: the store takes no messages (is the disk full?);"
                " roquet_timer_waits counts the attempts",
            )
        self._waits = waits
        self._watch_clock(stats)
        trouble = None if self._wheel is None else self._wheel.trouble()
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble is None:
                log.warning("the timer wheel goes on")
            else:
                log.error("the timer wheel has to wait: %s", trouble)

    def _watch_clock(self, stats: Mapping[str, int]) -> None:
        """Say when the clock was set so that timers go by another time."""
        lead_ms, set_backs = stats.get("clock_lead_ms", 0), stats.get("set_backs", 0)
        before_ms, before = self._clock_seen
        self._clock_seen = lead_ms, set_backs
        if set_backs > before:
            log.warning("the clock was set back: timer messages wait for their time by it")
        if lead_ms and not before_ms:
            log.warning(
                "the clock is %d s ahead of the time that has passed: timer messages do not go by"
                " it before it has stayed there for a minute",
                lead_ms // 1000,
            )

    async def check(self) -> None:
        """Count all waiting messages anew and correct the counts, in the hours that are set.

        As with RocketMQ, not while no messages enter the wheel, and not soon after a start.
        """
        wheel, rules, now_ms = self._wheel, self._rules, self._clock.now_ms()
        if wheel is None or not rules.check_counts or rules.stop_enqueue:
            return
        if hour_of(now_ms) not in rules.check_hours or now_ms - self._checked_ms <= CHECK_PAUSE_MS:
            return
        self._checked_ms = now_ms
        wrong = await recount(wheel, rules.check_below)
        if wrong is None:
            log.warning("the counts of waiting timer messages were not checked: the wheel was busy")
            return
        self._corrected += len(wrong)
        for topic, before, waiting in wrong[:NAMED_MAX]:
            log.warning("%d timer messages wait for %s, not %d", waiting, topic, before)
        if len(wrong) > NAMED_MAX:
            log.warning("%d more counts of timer messages were wrong", len(wrong) - NAMED_MAX)

    async def persist(self) -> None:
        """Write the counts down; returns at once when none has changed."""
        if self._wheel is None:
            return
        topics = self._topics(self._wheel)
        if topics == self._saved:
            return
        self._version = self._version.next(self._clock.now_ms())
        body = TimerMetricsBody(topics=topics, version=self._version)
        async with self._file.writing:
            await self._file.save(body.encode)
        self._saved = topics
