"""The broker's state as tools expect it: the keys of GET_BROKER_RUNTIME_INFO (spec: wire §19)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.protocol.bodies.stats import GROUP_LAGS
from roquet.protocol.versions import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.broker.metrics.stats import BrokerStats
    from roquet.broker.state import BrokerState
    from roquet.service.lanes import Lanes
    from roquet.store.store import MessageStore

_LANES = (
    ("sendThreadPoolQueue", "send"),
    ("pullThreadPoolQueue", "pull"),
    ("litePullThreadPoolQueue", "lite_pull"),
    ("queryThreadPoolQueue", "query"),
    ("ackThreadPoolQueue", "ack"),
)
_DISTRIBUTION = {
    "[<=0ms]": "puts_under_1_ms",
    "[0~10ms]": "puts_under_10_ms",
    "[10~50ms]": "puts_under_50_ms",
    "[50~100ms]": "puts_under_100_ms",
    "[100~200ms]": "puts_under_200_ms",
    "[200~500ms]": "puts_under_500_ms",
    "[500ms~1s]": "puts_under_1_s",
    "[1~2s]": "puts_under_2_s",
    "[2~3s]": "puts_under_3_s",
    "[3~4s]": "puts_under_4_s",
    "[4~5s]": "puts_under_5_s",
    "[5~10s]": "puts_under_10_s",
    "[10s~]": "puts_over_10_s",
}
"""Label that tools show -> counter of the store."""


class DelayProgress(Protocol):
    """How far one delay level is."""

    @property
    def level(self) -> int:
        """Its number."""
        ...

    @property
    def offset(self) -> int:
        """The queue offset delivered up to."""
        ...

    @property
    def max_offset(self) -> int:
        """The queue's end."""
        ...


class Delays(Protocol):
    """What is asked of the delivery of delayed messages."""

    def progress(self) -> Sequence[DelayProgress]:
        """Return each level's progress."""
        ...


NO_TIMERS = {
    "timerCongestNum": "0",
    "timerDequeueTps": "0.0",
    "timerEnqueueTps": "0.0",
    "timerOffsetBehind": "0",
    "timerReadBehind": "0",
}
"""What is shown without a timer wheel."""


class Wheel(Protocol):
    """What is asked of the timer wheel."""

    def runtime(self) -> dict[str, str]:
        """Return its lines."""
        ...


class Paths(NamedTuple):
    """Where the store lies."""

    commit_log: Path
    consume_queue: Path


class RuntimeInfo:
    """Collects the table."""

    def __init__(
        self,
        store: MessageStore,
        stats: BrokerStats,
        lanes: Lanes,
        *,
        paths: Paths,
        state: BrokerState,
        clock: Clock,
        version: int,
        delays: Delays | None = None,
        timers: Wheel | None = None,
    ) -> None:
        """`version` is the one told to peers."""
        self._store = store
        self._stats = stats
        self._lanes = {lane.config.name: lane for lane in lanes.all()}
        self._paths = paths
        self._state = state
        self._clock = clock
        self._version = version
        self._delays = delays
        self._wheel = timers

    def table(self) -> dict[str, str]:
        """Return everything, by key."""
        table = {
            **self._general(),
            **self._traffic(),
            **self._disk(),
            **self._queues(),
            **self._timers(),
        }
        return dict(sorted(table.items()))

    def _general(self) -> dict[str, str]:
        native = self._store.native
        now_ms = self._clock.now_ms()
        return {
            "bootTimestamp": str(self._stats.started_ms),
            "brokerActive": _word(self._store.writable()[0]),
            "brokerVersion": str(self._version),
            "brokerVersionDesc": describe(self._version),
            "commitLogMaxOffset": str(native.max_physical_offset()),
            "commitLogMinOffset": str(native.min_physical_offset()),
            GROUP_LAGS: "true",
            "dispatchBehindBytes": str(native.dispatch_behind()),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(native.earliest_store_time()),
            "pageCacheLockTimeMills": str(native.append_busy_ms()),
            "remainHowManyDataToCommit": "0",
            "remainHowManyDataToFlush": _size(
                max(0, native.max_physical_offset() - native.flushed_offset())
            ),
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "runtime": _span(now_ms - self._stats.started_ms),
            "startAcceptSendRequestTimeStamp": str(self._state.accept_sends_from_ms),
        }

    def _traffic(self) -> dict[str, str]:
        stats = self._stats
        found, missed = stats.rates("BROKER_GET_FOUND"), stats.rates("BROKER_GET_MISSES")
        total = " ".join(
            str(round(float(a) + float(b), 4))
            for a, b in zip(found.split(), missed.split(), strict=True)
        )
        size, times = stats.put_bytes, stats.put_count
        native = self._store.native.stats()
        return {
            "damagedReads": str(native["damaged_reads"]),
            "getFoundTps": found,
            "getMessageEntireTimeMax": str(native["get_us_longest"] // 1000),
            "getMissTps": missed,
            "getTotalTps": total,
            "getTransferedTps": stats.rates("BROKER_GET_NUMS"),
            "getTransferredTps": stats.rates("BROKER_GET_NUMS"),
            "msgGetTotalTodayMorning": str(stats.daily_totals.gets.this_morning),
            "msgGetTotalTodayNow": str(stats.daily_totals.gets.now),
            "msgGetTotalYesterdayMorning": str(stats.daily_totals.gets.yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.daily_totals.puts.this_morning),
            "msgPutTotalTodayNow": str(stats.daily_totals.puts.now),
            "msgPutTotalYesterdayMorning": str(stats.daily_totals.puts.yesterday_morning),
            "putLatency99": f"{native['put_us_p99'] / 1000:.2f}",
            "putLatency999": f"{native['put_us_p999'] / 1000:.2f}",
            "putMessageAverageSize": str(round(size / times, 4) if times else 0.0),
            "putMessageDistributeTime": " ".join(
                f"{label}:{native[counter]}" for label, counter in _DISTRIBUTION.items()
            ),
            "putMessageEntireTimeMax": str(native["put_us_longest"] // 1000),
            "putMessageFailedTimes": str(stats.put_failures),
            "putMessageSizeTotal": str(size),
            "putMessageTimesTotal": str(times),
            "putTps": stats.rates("BROKER_PUT_NUMS"),
            "queueConflicts": str(native["queue_conflicts"]),
        }

    def _disk(self) -> dict[str, str]:
        log_use = _usage(self._paths.commit_log)
        queue_use = _usage(self._paths.consume_queue)
        return {
            "commitLogDirCapacity": (
                f"Total : {_size(log_use.total)}, Free : {_size(log_use.free)}."
            ),
            "commitLogDiskRatio": str(_ratio(log_use)),
            f"commitLogDiskRatio_{self._paths.commit_log}": str(_ratio(log_use)),
            "consumeQueueDiskRatio": str(_ratio(queue_use)),
        }

    def _queues(self) -> dict[str, str]:
        table: dict[str, str] = {}
        for prefix, name in _LANES:
            lane = self._lanes.get(name)
            table[f"{prefix}Size"] = str(lane.waiting if lane else 0)
            table[f"{prefix}Capacity"] = str(lane.config.queue_max if lane else 0)
            table[f"{prefix}HeadWaitTimeMills"] = str(lane.head_age_ms() if lane else 0)
        ending = self._lanes.get("end_transaction")
        table["EndTransactionQueueSize"] = str(ending.waiting if ending else 0)
        table["EndTransactionThreadPoolQueueCapacity"] = str(
            ending.config.queue_max if ending else 0
        )
        return table

    def _timers(self) -> dict[str, str]:
        table = dict(NO_TIMERS) if self._wheel is None else self._wheel.runtime()
        for level in self._delays.progress() if self._delays is not None else ():
            table[f"scheduleMessageOffset_{level.level}"] = f"{level.offset},{level.max_offset}"
        return table


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def _usage(path: Path) -> _Usage:
    """Return the use of the file system that holds `path`, or would hold it."""
    for place in (path, *path.parents):
        try:
            return _Usage(*shutil.disk_usage(place))
        except FileNotFoundError:
            continue
    return _Usage(1, 0, 1)


def _ratio(usage: _Usage) -> float:
    # What only root may use counts as taken, as `df` and the Java broker see it.
    return round(usage.used / max(1, usage.used + usage.free), 4)


def _size(number: int) -> str:
    """Return bytes as people read them: `1.50 MiB`."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{int(size)} B" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1024
    raise AssertionError


def _span(ms: int) -> str:
    """Return how long the broker has run, in the words that tools print."""
    seconds, rest = divmod(max(0, ms), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    del rest
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _word(value: bool) -> str:
    return "true" if value else "false"
