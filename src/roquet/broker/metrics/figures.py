"""What the broker has and how far its consumers are, under RocketMQ's metric names.

Read when somebody asks; what an answer may cost is bounded, because it is collected on the loop.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.model.subscription import ConsumeType
from roquet.protocol import names, versions
from roquet.protocol.light import light_topics
from roquet.protocol.pop import topics as pop_topics
from roquet.service.slices import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from roquet.base.clock import Clock
    from roquet.broker.clients.registry import Client, Registry
    from roquet.broker.metadata import Metadata
    from roquet.broker.state import BrokerState
    from roquet.model.topic import TopicConfig
    from roquet.service.lanes import Lanes
    from roquet.service.metrics import Metrics
    from roquet.store.store import MessageStore

    Row = tuple[tuple[str, ...], float]

QUEUES_MAX = 20_000
"""Queues of groups that one answer looks at; the rest is left out, and counted as left out."""
TIMES_MAX = 1_000
"""Messages that one answer reads from the log to tell how late a group is."""

SLICE = 100
"""Pairs of a group and a topic between which everybody else has a turn."""
SHOWN_MS = 10_000
"""For so long an answer may show it: a long answer is written in slices."""
RECENT_MS = 500
"""For so long a look at all groups is good for."""

_PROCESSORS = {
    "send": "send",
    "pull": "pull",
    "lite_pull": "lite_pull",
    "ack": "ack",
    "query": "query_message",
    "heartbeat": "heartbeat",
    "client_manage": "client_manager",
    "consumer_manage": "consumer_manager",
    "end_transaction": "transaction",
    "reply": "reply",
    "admin": "admin",
}
"""Lane -> the name of its processor in RocketMQ's metrics."""
_MODES = {ConsumeType.ACTIVELY: "pull", ConsumeType.PASSIVELY: "push", ConsumeType.POP: "pop"}
_OF_GROUP = ("consumer_group", "topic", "is_retry", "is_system")
_OF_STORE = ("storage_type", "storage_medium")
_LAG = "consumer_lag_messages"
_LOCAL = ("local", "disk")


class Progress(NamedTuple):
    """How far a group is in a topic; times in milliseconds, 0 when it has everything."""

    lag: int | None
    """Messages not committed yet."""
    in_flight: int | None
    """Messages pulled and not committed."""
    lag_ms: int | None
    """Age of the oldest message not committed."""
    queueing_ms: int | None
    """Age of the oldest message not pulled."""

    @property
    def ready(self) -> int | None:
        """Messages not pulled."""
        return None if self.lag is None else self.lag - (self.in_flight or 0)


class Shown(Protocol):
    """The settings that say what is shown of light topics: None in a `Progress` is not."""

    @property
    def lag_counts(self) -> bool:
        """Whether messages are counted."""
        ...

    @property
    def lag_times(self) -> bool:
        """Whether the oldest message counts."""
        ...


class Figures:
    """Declares the gauges and collects them."""

    def __init__(
        self,
        metadata: Metadata,
        registry: Registry,
        store: MessageStore,
        lanes: Lanes,
        *,
        state: BrokerState,
        clock: Clock,
        light: Callable[[], Shown],
    ) -> None:
        """`light` returns the settings of the moment."""
        self._metadata = metadata
        self._registry = registry
        self._store = store
        self._lanes = lanes
        self._state = state
        self._clock = clock
        self._light = light
        self._left_out = 0
        self._looked_ms: int | None = None
        self._progress: list[tuple[tuple[str, ...], Progress]] = []
        """Label values, made once for all names, with a group's progress in a topic."""

    def watch(self, metrics: Metrics) -> None:
        """Show everything."""
        text = "Requests that wait, by the processor they wait for"
        metrics.standard("processor_watermark", text, ("processor",), self._watermarks)
        for name, text, read in (
            ("broker_permission", "2 write, 4 read, 6 both", lambda: self._state.permission),
            ("topic_number", "Topics", lambda: len(self._metadata.topics)),
            ("consumer_group_number", "Groups", lambda: len(self._metadata.groups)),
        ):
            metrics.standard(name, text, (), _one(read))
        labels = ("language", "version", "protocol_type")
        metrics.standard("producer_connections", "Producers here", labels, self._producers)
        consumer_labels = ("consumer_group", *labels, "consume_mode", "is_system")
        metrics.standard("consumer_connections", "Consumers here", consumer_labels, self._consumers)
        self._watch_progress(metrics)
        if metrics.shows(_LAG):
            metrics.before(self.refresh)
        self._watch_store(metrics)

    def type_of(self, topic: str) -> str:
        """Return what kind of messages a topic is for, as metrics name it."""
        config = self._metadata.topics.get(topic)
        if config is None:
            return "normal"
        return config.attributes.get("message.type", "NORMAL").lower()

    def _watch_progress(self, metrics: Metrics) -> None:
        figures: tuple[tuple[str, str, Callable[[Progress], int | None]], ...] = (
            (_LAG, "Messages not committed", lambda it: it.lag),
            ("consumer_inflight_messages", "Pulled, not committed", lambda it: it.in_flight),
            ("consumer_ready_messages", "Messages not pulled", lambda it: it.ready),
            (
                "consumer_lag_latency_milliseconds",
                "Age of the oldest not committed, ms",
                lambda it: it.lag_ms,
            ),
            (
                "consumer_queueing_latency_milliseconds",
                "Age of the oldest not pulled, ms",
                lambda it: it.queueing_ms,
            ),
        )
        for name, text, read in figures:
            metrics.standard(name, text, _OF_GROUP, self._of_groups(read))
        text = "Queues of groups beyond the bound, of which the last answer says nothing"
        metrics.watch("lag_queues_left_out", text, lambda: float(self._left_out))

    def _watch_store(self, metrics: Metrics) -> None:
        store = self._store

        def size() -> int:
            return store.native.max_physical_offset() - store.native.min_physical_offset()

        def behind_flush() -> int:
            return max(0, store.native.max_physical_offset() - store.native.flushed_offset())

        def kept_ms() -> int:
            first = store.native.earliest_store_time()
            return max(0, self._clock.now_ms() - first) if first > 0 else 0

        for name, text, read in (
            ("storage_size_bytes", "Bytes of the log that can be read", size),
            ("storage_flush_behind_bytes", "Bytes not flushed yet", behind_flush),
            ("storage_dispatch_behind_bytes", "Bytes not in queues yet", store.dispatch_behind),
            ("storage_message_reserve_time_milliseconds", "Age of the oldest message, ms", kept_ms),
        ):
            metrics.standard(name, text, _OF_STORE, _one(read, _LOCAL))

        def damage() -> dict[str, float]:
            found = store.damage()
            return {"damaged_reads": found.reads, "queue_conflicts": found.conflicts}

        text = "Messages passed over by reads, and records that no queue took, since the start"
        metrics.watch_many("store_damage", text, "kind", damage, counts=True)

    # --- clients and lanes -----------------------------------------------------------------------

    def _watermarks(self) -> Iterator[Row]:
        for lane in self._lanes.all():
            processor = _PROCESSORS.get(lane.config.name)
            if processor is not None:
                yield (processor,), float(lane.waiting)

    def _producers(self) -> Iterator[Row]:
        seen: dict[int, tuple[str, ...]] = {}
        for group in self._registry.producer_groups:
            for member in self._registry.producers(group):
                seen[member.client.peer.key] = _labels(member.client)
        yield from _counted(seen.values())

    def _consumers(self) -> Iterator[Row]:
        rows: list[tuple[str, ...]] = []
        for name in self._registry.consumer_groups:
            group = self._registry.consumer(name)
            if group is None:
                continue
            kind = group.consuming.consume_type
            mode = "unknown" if kind is None else _MODES[kind]
            tail = (mode, _word(names.is_system_group(name)))
            rows += [(name, *_labels(one.client), *tail) for one in group.members.values()]
        yield from _counted(rows)

    # --- progress --------------------------------------------------------------------------------

    def _of_groups(self, read: Callable[[Progress], int | None]) -> Callable[[], Iterator[Row]]:
        def rows() -> Iterator[Row]:
            for labels, progress in self._recent_progress():
                value = read(progress)
                if value is not None:
                    yield labels, float(value)

        return rows

    def _recent_progress(self) -> list[tuple[tuple[str, ...], Progress]]:
        """Return the progress: one look serves all the names of one answer."""
        if not self._is_recent(SHOWN_MS):
            for _ in self._look():
                pass
        return self._progress

    async def refresh(self) -> None:
        """Look at all groups, in slices."""
        if not self._is_recent(RECENT_MS):
            await in_turns(self._look())

    def _is_recent(self, age_ms: int) -> bool:
        looked_ms = self._looked_ms
        return looked_ms is not None and 0 <= self._clock.now_ms() - looked_ms < age_ms

    def _look(self) -> Generator[None, None, None]:
        """Note the progress of every group in every topic that it has offsets in.

        Light topics are shown together, under their parent's name, if settings say so.
        """
        found: list[tuple[tuple[str, ...], Progress]] = []
        light: dict[tuple[str, ...], tuple[int, int]] = {}
        shown = self._light()
        queues = times = left_out = 0
        topics = self._metadata.topics
        for at, (topic, group) in enumerate(self._metadata.offsets.each_pair(), 1):
            if not at % SLICE:
                yield
            config = topics.get(topic)
            if config is None:
                continue
            parent = light_topics.split(topic)
            if parent is not None and not (shown.lag_counts or shown.lag_times):
                continue
            queues += config.read_queues
            if queues > QUEUES_MAX:
                left_out += config.read_queues
                continue
            progress, looked = self._of_one(group, config, TIMES_MAX - times)
            times += looked
            if parent is None:
                found.append((_labels_of(group, topic), progress))
            elif progress.lag:
                labels = _labels_of(group, parent[0])
                lag, lag_ms = light.get(labels, (0, 0))
                light[labels] = lag + progress.lag, max(lag_ms, progress.lag_ms or 0)
        for labels, (lag, lag_ms) in light.items():
            counted, timed = lag if shown.lag_counts else None, lag_ms if shown.lag_times else None
            found.append((labels, Progress(counted, None, timed, None)))
        self._looked_ms, self._progress, self._left_out = self._clock.now_ms(), found, left_out

    def _of_one(self, group: str, config: TopicConfig, times: int) -> tuple[Progress, int]:
        """Return a group's progress in a topic, and how many messages were looked at for it."""
        lag = in_flight = lag_ms = queueing_ms = looked = 0
        offsets, now_ms = self._metadata.offsets, self._clock.now_ms()
        committed = offsets.queues(group, config.name)
        for queue_id in range(config.read_queues):
            if queue_id not in committed:
                continue
            done = max(0, committed[queue_id])
            end = self._store.max_offset(config.name, queue_id)
            if done >= end:
                continue
            pulled = min(end, max(done, offsets.pulled(group, config.name, queue_id) or 0))
            lag += end - done
            in_flight += pulled - done
            if looked + 2 <= times:
                looked += 2
                lag_ms = max(lag_ms, self._age(config.name, queue_id, done, now_ms))
                if pulled < end:
                    age = self._age(config.name, queue_id, pulled, now_ms)
                    queueing_ms = max(queueing_ms, age)
        return Progress(lag, in_flight, lag_ms, queueing_ms), looked

    def _age(self, topic: str, queue_id: int, offset: int, now_ms: int) -> int:
        stored_ms = self._store.store_time(topic, queue_id, offset)
        return max(0, now_ms - stored_ms) if stored_ms > 0 else 0


def _one(
    read: Callable[[], int], labels: tuple[str, ...] = ()
) -> Callable[[], Iterable[tuple[tuple[str, ...], float]]]:
    return lambda: [(labels, float(read()))]


def _labels_of(group: str, topic: str) -> tuple[str, ...]:
    system = names.is_system_group(group) or names.is_system_topic(topic)
    # As with Java, retries of pops are shown with the topic they came from.
    shown = pop_topics.normal_topic(topic, group) or topic
    return group, shown, _word(names.is_retry(topic)), _word(system)


def _labels(client: Client) -> tuple[str, str, str]:
    return client.language.lower(), versions.describe(client.version).lower(), "remoting"


def _counted(rows: Iterable[tuple[str, ...]]) -> Iterator[Row]:
    for labels, count in collections.Counter(rows).items():
        yield labels, float(count)


def _word(value: bool) -> str:
    return "true" if value else "false"
