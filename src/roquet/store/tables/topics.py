"""The broker's topics: `topics.json`, the built-in topics, and topics created by the first send.

Invariant: no message is acknowledged in a topic whose configuration is not durable, so that a
restart never forgets a topic with acknowledged messages (spec: store §8, wire §9.1 and §16.4).
Whoever changes the table awaits `persist` before it answers. When that fails the change is kept as
pending: `is_durable` says no, so that the fast path admits no send, and every send tries `persist`
again before anything is appended. A send that comes while the table is being written waits for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.base.durable import write_synced
from roquet.base.errors import DiskFull, TableFull
from roquet.base.overriding import override
from roquet.model.data_version import DataVersion
from roquet.model.topic import READ_WRITE, Perm, TopicConfig, can_inherit
from roquet.protocol import names
from roquet.protocol.bodies.topics import TopicTableBody
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.tables.key_values import Rows, TableCodec
from roquet.store.tables.named import NamedTable
from roquet.store.tables.room import Room, text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.store.tables.key_values import TableForm

log = logging.getLogger(__name__)

TOPICS_MAX = 60_000
"""Name servers take 65,536 in one registration."""
REGISTRATION_MAX = 15 * 1024 * 1024
"""Bytes that topics may come to in a registration: a frame has at most 16 MiB."""
_TOPIC_SIZE = 220
"""Bytes of a topic beside its names and attributes, and some more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicTableConfig:
    """What the table needs to know about its broker."""

    cluster: str = setting("brokerClusterName", "DefaultCluster", "Cluster of this broker.")
    broker_name: str = setting("brokerName", "", "Name of this broker; the host's when not given.")
    auto_create: bool = setting(
        "autoCreateTopicEnable", True, "Whether a send may create its topic.", live=True
    )
    auto_create_max: int = setting(
        "autoCreateTopicMax",
        10_000,
        "No client creates a topic beyond so many: no send, heartbeat, or message sent back.",
        low=0,
        high=TOPICS_MAX,
        live=True,
    )
    default_queues: int = setting(
        "defaultTopicQueueNums", 8, "Queues of the template of created topics.", low=1, high=1024
    )
    cluster_topic: bool = setting(
        "clusterTopicEnable", True, "Whether the topic named after the cluster is open."
    )
    broker_topic: bool = setting(
        "brokerTopicEnable", True, "Whether the topic named after the broker is open."
    )
    trace: bool = setting("traceTopicEnable", False, "Whether there is a trace topic.")
    trace_topic: str = setting("msgTraceTopicName", names.TRACE_TOPIC, "Name of the trace topic.")
    revive_queues: int = setting(
        "reviveQueueNum", 8, "Queues of the topic of pop check points.", low=1, high=1024
    )


class TopicTable(NamedTable[TopicConfig]):
    """Topic name -> configuration, with its data version, kept in some form."""

    def __init__(
        self, form: TableForm, rules: TopicTableConfig, clock: Clock, *, light_queues: bool = False
    ) -> None:
        """Begin with the built-in topics; `load` adds those that were kept.

        With `light_queues` every such name is a topic with one queue, and never in the table.
        """
        room = Room("topics", TOPICS_MAX, REGISTRATION_MAX)
        super().__init__(form.table(_CODEC), room, clock)
        self._path = form.path
        self._light_queues = light_queues
        self._rules = rules
        built_in = built_in_topics(rules)
        self._rows.replace({topic.name: topic for topic in built_in})
        self._built_in = frozenset(topic.name for topic in built_in)
        self._count_all()
        self._durable_listeners: list[Callable[[Collection[str]], None]] = []
        self._writing = asyncio.Lock()
        self._pending: set[str] = set()
        """Names whose present state is not durable."""
        self._attempts = 0
        self._failed: tuple[int, Exception] | None = None
        """The last attempt to write that failed, by its number, and why."""
        self._was_lost = False

    def load(self) -> None:
        """Take over the durable topics. Raises Corrupt when no copy is whole."""
        built_in = self._rows.rows()
        is_there = self._rows.load()
        if self._rows.may_be_older or (not is_there and self.has_queues()):
            self._note_loss()
        loaded = self._rows.rows()
        topics = {**built_in, **loaded}
        for name in [name for name in topics if not is_path_safe(name)]:
            log.warning("topic %r of %s is left out: not a name", name, self._path)
            del topics[name]
        if topics != loaded:
            self._rows.replace(topics)
        self._count_all()
        self._version = self._rows.version or self._version

    @property
    def lost_mark(self) -> Path:
        """The file that says that the table was lost once, until an operator removes it."""
        return self._path.with_name(self._path.name + ".lost")

    def is_complete(self) -> bool:
        """Whether a topic that is not in the table is nobody's.

        It is not after a start without the file over a store with queues, or with its copy, which
        may be older: topics that were known before may be missing, and their messages be wanted.
        """
        return not self._was_lost and not self.lost_mark.exists()

    async def persist(self) -> None:
        """Make the table durable; returns at once when nothing changed since the last time.

        Raises DiskFull or OSError. Callers that wait together share one failed attempt, if it
        began after they asked.
        """
        asked = self._attempts
        async with self._writing:
            if not self._rows.is_changed:
                return
            if self._failed is not None and self._failed[0] > asked:
                raise type(self._failed[1])(*self._failed[1].args) from self._failed[1]
            self._attempts += 1
            attempt = self._attempts
            try:
                durable = await self._rows.flush(self._version)
            except (DiskFull, OSError) as error:
                self._failed = attempt, error
                raise
            if durable is not None:
                self._note_durable(durable.rows)

    def _note_durable(self, saved: Mapping[str, TopicConfig]) -> None:
        now = {name for name in self._pending if saved.get(name) == self._rows.get(name)}
        self._pending -= now
        for listener in self._durable_listeners:
            listener(now)

    def listen_durable(self, listener: Callable[[Collection[str]], None]) -> None:
        """Have `listener(names)` called when changes of these topics have become durable."""
        self._durable_listeners.append(listener)

    # --- looking ---------------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig | None:
        """Return a topic's configuration, None when there is no such topic."""
        if self._light_queues and names.is_lmq(name):
            return TopicConfig(name=name, read_queues=1, write_queues=1, perm=READ_WRITE)
        return self._rows.get(name)

    @property
    def has_light_queues(self) -> bool:
        """Whether the broker has light queues."""
        return self._light_queues

    @override
    def is_light(self, name: str) -> bool:
        """Whether a name is that of a light queue, which is no topic of its own."""
        return self._light_queues and names.is_lmq(name)

    def is_durable(self, name: str) -> bool:
        """Whether a restart would find the topic as it is now: only then may it take messages."""
        return name not in self._pending and self._rows.get(name) is not None

    def is_system(self, name: str) -> bool:
        """Whether the broker itself owns the topic, so that no administrator may change it."""
        return names.is_system_topic(name) or name in self._built_in

    # --- changing --------------------------------------------------------------------------

    def remove(self, name: str) -> TopicConfig | None:
        """Forget a topic and return what it was."""
        old = self._rows.delete(name)
        if old is not None:
            self._room.add(-1, -self._size((old,)))
            self._changed((name,))
        return old

    def replace(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Take over another broker's table as it is; only the built-in topics stay in any case."""
        old = self._rows.rows()
        built_in = {name: old[name] for name in self._built_in if name in old}
        safe = {name: config for name, config in topics.items() if is_path_safe(name)}
        new = {**built_in, **safe}
        self._rows.replace(new)
        self._count_all()
        self._version = version
        changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        self._pending |= changed
        for listener in self._listeners:
            listener(changed)

    def follow(self, rules: TopicTableConfig) -> None:
        """Let sends create topics by other rules from now on."""
        self._rules = rules

    def touch(self) -> None:
        """Move the data version, because the broker's permission changed what the topics mean."""
        self._rows.touch()
        self._changed(())

    def mark_ordered(self, names_: Collection[str]) -> None:
        """Mark the topics that the name servers' configuration calls ordered."""
        known = (self._rows.get(name) for name in names_)
        self.put(*(dataclasses.replace(it, order=True) for it in known if it and not it.order))

    def create_by_send(
        self, name: str, template_name: str, queues_wanted: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create a topic after `template_name`, or return None when that is not allowed.

        Raises TableFull when there are too many topics.
        """
        template = self._rows.get(template_name)
        if template is None or not can_inherit(template.perm):
            return None
        if template_name == names.AUTO_CREATE_TOPIC and not self._rules.auto_create:
            return None
        self._check_clients_share(name)
        queues = max(0, min(queues_wanted, template.write_queues))
        if queues == 0:
            return None
        config = TopicConfig(
            name=name,
            read_queues=queues,
            write_queues=queues,
            perm=template.perm & ~int(Perm.INHERIT),
            filter_type=template.filter_type,
            sys_flag=sys_flag,
        )
        self.put(config)
        log.info("topic %s was created by a send: %d queues", name, queues)
        return config

    def ensure(
        self,
        name: str,
        queues: int,
        perm: int = READ_WRITE,
        sys_flag: int = 0,
        *,
        order: bool = False,
    ) -> TopicConfig:
        """Return a topic, creating it when missing: retry, dead-letter topics and the like.

        Raises TableFull when there are too many topics, unless it is one of the broker's own.
        """
        config = self._rows.get(name)
        if config is None:
            if not self.is_system(name):
                self._check_clients_share(name)
            config = TopicConfig(
                name=name,
                read_queues=queues,
                write_queues=queues,
                perm=perm,
                sys_flag=sys_flag,
                order=order,
            )
            self.put(config)
        return config

    def _check_clients_share(self, name: str) -> None:
        most = self._rules.auto_create_max
        if len(self._rows) >= most:
            raise TableFull(
                f"topic {name} is not created: there are {len(self._rows)} topics, and clients"
                f" create none beyond {most} (autoCreateTopicMax)"
            )

    def _count_all(self) -> None:
        self._room.begin(len(self._rows), self._size(self._rows.rows().values()))

    def has_queues(self) -> bool:
        """Whether the store has queues that clients filled: then tables have been there."""
        folder = self._path.parent.parent / "consumequeue"
        return folder.is_dir() and any(not self.is_system(path.name) for path in folder.iterdir())

    def _note_loss(self) -> None:
        self._was_lost = True
        log.warning("%s was lost: topics may be missing that have messages", self._path)
        try:
            write_synced(self.lost_mark, b"topics.json was missing or broken at a start\n")
        except OSError as error:
            log.warning("%s cannot be written: %s", self.lost_mark, error)

    @staticmethod
    @override
    def _size(configs: Iterable[TopicConfig]) -> int:
        """Return how many bytes topics take in a registration, rounded up."""
        size = 0
        for config in configs:
            size += _TOPIC_SIZE + 2 * text_size(config.name)
            for key, value in config.attributes.items():
                size += text_size(key) + text_size(value) + 2
        return size

    @override
    def _changed(self, names: Collection[str]) -> None:
        self._pending.update(names)
        super()._changed(names)


def built_in_topics(rules: TopicTableConfig) -> list[TopicConfig]:
    """Return the topics of a fresh broker, in no order (spec: wire §16.4)."""
    inherit = int(Perm.INHERIT)
    everything = READ_WRITE | inherit
    rows: list[tuple[str, int, int]] = [
        (name, 1, READ_WRITE)
        for name in (
            names.SELF_TEST_TOPIC,
            names.OFFSET_MOVED_EVENT,
            names.reply_topic(rules.cluster),
            names.TRANS_HALF_TOPIC,
            names.TRANS_OP_HALF_TOPIC,
            names.ROCKSDB_TRANS_HALF_TOPIC,
            names.ROCKSDB_TRANS_OP_HALF_TOPIC,
        )
    ]
    rows += [
        (names.BENCHMARK_TOPIC, 1024, READ_WRITE),
        (rules.cluster, 16, everything if rules.cluster_topic else inherit),
        (rules.broker_name, 1, everything if rules.broker_topic else inherit),
        (names.SCHEDULE_TOPIC, 18, READ_WRITE),
        (names.TIMER_TOPIC, 1, READ_WRITE),
        (f"rmq_sys_REVIVE_LOG_{rules.cluster}", rules.revive_queues, READ_WRITE),
        (f"rmq_sys_SYNC_BROKER_MEMBER_{rules.broker_name}", 1, inherit),
    ]
    if rules.auto_create:
        rows.append((names.AUTO_CREATE_TOPIC, rules.default_queues, everything))
    if rules.trace:
        rows.append((rules.trace_topic, 1, READ_WRITE))
    return [
        TopicConfig(name=name, read_queues=queues, write_queues=queues, perm=perm)
        for name, queues, perm in rows
    ]


def _decode(data: bytes) -> Rows[str, TopicConfig]:
    body = TopicTableBody.decode(data, tolerant_size_max=FILE_SIZE_MAX)
    return Rows(body.topics, body.version)


def _encode(table: Rows[str, TopicConfig]) -> bytes:
    version = table.version or DataVersion()
    return TopicTableBody(topics=table.rows, version=version).encode_file()


_CODEC = TableCodec(_decode, _encode)


def is_path_safe(name: str) -> bool:
    """Tell whether a name can be a folder's: files may hold names that no client may use."""
    return (
        0 < len(name.encode()) <= 255 and name not in {".", ".."} and not set("/\\\0") & set(name)
    )
