"""What the native ingest may answer: the handlers' rules, turned into rows (architecture §3a).

A row says that every check of the slow path would pass. Each rule is asked here, never repeated in
the compiled part; whatever changes one marks the row, and marked rows are written anew before the
next bytes are looked at, so that nothing is answered by a rule of yesterday.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.clients.expressions import Choice
from roquet.broker.fastpath.pop_rows import SETTLES
from roquet.broker.services.receive import SUSPEND_MS_MAX
from roquet.model.attributes import LIGHT_EXPIRATION, MESSAGE_TYPE
from roquet.model.subscription import ExpressionType
from roquet.model.topic import MESSAGE_TYPES, FilterType, can_read, can_write
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import VERSION
from roquet.protocol.light import light_queues
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.batch import messages_max
from roquet.service.lanes import OVERLOAD
from roquet.service.lifecycle import Timer
from roquet.store.results import PutStatus
from roquet.store.tables.groups import FORBIDDEN_SUBSCRIPTION

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from roquet.broker.clients.expressions import Expressions
    from roquet.broker.clients.registry import Registry
    from roquet.broker.fastpath.account_rows import WhoMay
    from roquet.broker.fastpath.inline_sync import InlineSyncPolicy
    from roquet.broker.fastpath.judges import JudgingThreads, OverloadState
    from roquet.broker.fastpath.pop_rows import PopRows
    from roquet.broker.messages.broker_properties import BrokerProperties
    from roquet.broker.metadata import Metadata
    from roquet.broker.metrics.answers import Answers
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.pull_rules import PullConfig
    from roquet.broker.services.transactions import HalfDoor
    from roquet.broker.state import BrokerState
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.subscription import SubscriptionData
    from roquet.model.topic import TopicConfig
    from roquet.remoting.connections.fast_ingest import FastPath, Rows
    from roquet.remoting.told import AnsweredHere, PulledHere, StoredHere
    from roquet.store.store import Durability, MessageStore
    from roquet.store.tables.filters import Filter

PARKED_MAX = 100_000
"""Answers that may wait for a flush or a slave at a time; sends beyond that are refused."""
ROWS_AT_ONCE = 1_000
"""Rows written between two looks at sockets: some five milliseconds."""

PLAIN_ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "message.type": MESSAGE_TYPES,
    "queue.type": frozenset({"SimpleCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
}
FREE_ATTRIBUTES = frozenset({"topic.reserve.time", LIGHT_EXPIRATION})
"""Topic attributes, of some values or of any, with which plain messages are stored as without."""

BARRIER = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
)
"""Nothing of its connection overtakes one of these, since it may depend on it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """The settings that rows depend on."""

    enabled: bool
    broker_properties: BrokerProperties
    pull: PullConfig
    durability: Durability
    holds_max: int
    delay_levels: int
    """The highest one."""
    special: frozenset[str] = frozenset()
    """Properties at which put hooks act that the core does not know."""
    encoding: int = 0


class Admission:
    """Keeps the rows true, and books what was answered."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        registry: Registry,
        state: BrokerState,
        gate: OverloadState,
        traffic: Traffic,
        rules: Rules,
        expressions: Expressions,
        halves: HalfDoor,
        pop: PopRows,
        accounts: WhoMay | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._expressions = expressions
        self._pop = pop
        self._accounts = accounts
        self._halves = halves
        self._answers = answers
        self._metadata = metadata
        self._registry = registry
        self._state = state
        self._gate = gate
        self._traffic = traffic
        self._rules = rules
        self._topics: set[str] = set()
        self._groups: set[str] = set()
        self._identity = rules.broker_properties.identity
        self._stale = True
        self._version = 0
        self._port = 0
        self._known: tuple[int, bool] | None = None
        self._failed = False
        self._sync_here = False
        self._filling = False
        self._leaves = False
        """The ports are about to close."""
        self._threads: JudgingThreads | None = None
        self._open_for_sends = self._takes_sends()
        metadata.deletions.listen(self.suspend)
        metadata.topics.listen(self._topics_changed)
        metadata.topics.listen_durable(self._topics_changed)
        metadata.groups.listen(self._groups_changed)
        metadata.offsets.listen(self._groups_changed)
        metadata.filters.listen(self._group_changed)
        registry.listen(self._group_changed)

    def follow(self, pull: PullConfig, durability: Durability) -> None:
        """Write the rows by other settings: all of them, since most depend on one."""
        self._rules = dataclasses.replace(self._rules, pull=pull, durability=durability)
        self._known = None
        self._pop.follow(durability)
        self.suspend()

    # --- the rows -------------------------------------------------------------------------------

    def before(self, rows: Rows, now_ms: int) -> None:
        """Write what has changed since the last bytes."""
        del now_ms
        if self._gate.judges_reads or not self._open_for_sends:
            self._look_at_gate()
        # First of all: without them the rows would be for everybody.
        if self._accounts is not None and self._accounts.is_stale:
            self._accounts.write(rows)
        is_stale = self._stale or self._state.version != self._version
        is_stale = is_stale or self._identity.port != self._port
        if is_stale:
            self._state_changed()
        if self._topics or self._groups:
            is_stale = self._write_some(rows) or is_stale
        if is_stale:
            # Behind the rows that depend on it: threads judge by them from here on.
            self._write_state(rows)
        if self._expressions.news:
            self._write_expressions(rows)

    def _write_some(self, rows: Rows) -> bool:
        """Write rows that have changed; while some have to wait, the handlers answer alone.

        The permission of the broker is part of every row, and there may be thousands. True when
        waiting has begun or ended, which the state has to say.
        """
        has_more = len(self._topics) + len(self._groups) > ROWS_AT_ONCE
        left = ROWS_AT_ONCE
        while left and self._topics:
            self._write_topic(rows, self._topics.pop())
            left -= 1
        while left and self._groups:
            self._write_group(rows, self._groups.pop())
            left -= 1
        has_turned, self._filling = self._filling != has_more, has_more
        if has_more and self._threads is not None:
            self._threads.refresh_soon()
        return has_turned

    def _write_expressions(self, rows: Rows) -> None:
        news, self._expressions.news = self._expressions.news, []
        for one in news:
            if one is None:
                rows.drop_expressions()
            else:
                kind, text, choice = one
                rows.set_expression(kind, text, choice.codes, choice.filter_by)

    def _state_changed(self) -> None:
        state = self._state
        self._stale = False
        self._version, self._port = state.version, self._identity.port
        if (state.permission, state.is_slave) != self._known:
            # Rows depend on it, and at the start there are none yet.
            self._known = (state.permission, state.is_slave)
            self._topics.update(self._metadata.topics.all())
            self._groups.update(self._metadata.groups.all())

    async def tick(self) -> None:
        """Look at what tells nobody when it changes: the action of a timer."""
        self._look_at_gate()
        if self._pop.is_stale:
            self.suspend()

    def sync_in_place(self, allowed: bool) -> None:
        """Have a lone sender's messages synced as they are read, or by the store's thread."""
        if allowed != self._sync_here:
            self._sync_here = allowed
            self._stale = True

    def store_failed(self) -> None:
        """Keep all sends out from now on: a flush failed."""
        self._failed = True
        self.suspend()

    def _look_at_gate(self) -> None:
        takes = self._takes_sends()
        if takes != self._open_for_sends:
            self._open_for_sends = takes
            self.suspend()

    def _takes_sends(self) -> bool:
        opens_ms = self._state.accept_sends_from_ms
        return self._rules.broker_properties.clock.now_ms() >= opens_ms and self._gate.takes_sends()

    # --- changes --------------------------------------------------------------------------------
    # Threads judge by the rows at any time: a row goes in the step that changes a rule, before
    # anything is done by the new one. What has no row is for the handlers.

    def shared_by(self, threads: JudgingThreads | None) -> None:
        """Take rows back as soon as they change: threads judge by them at any time.

        None: they have ended, and there are no rows any more, while tables are still saved.
        """
        self._threads = threads
        if threads is not None:
            self._state.listen(self.suspend)

    def admit(self, *, anything: bool) -> None:
        """Admit what the rows say from now on, or nothing: the ports are about to close."""
        self._leaves = not anything
        self.suspend()

    def suspend(self) -> None:
        """Admit nothing until the state is written."""
        self._stale = True
        if self._threads is not None:
            self._threads.rows.suspend()
            self._threads.refresh_soon()

    def _topics_changed(self, changed: Collection[str]) -> None:
        self._topics.update(changed)
        if self._pop.depends_on(changed):
            self.suspend()
        if self._threads is not None:
            for name in changed:
                self._threads.rows.set_topic(name, 0, 0, 0, 0)
            self._threads.refresh_soon()

    def _groups_changed(self, changed: Collection[str]) -> None:
        self._groups.update(changed)
        if self._threads is not None:
            for name in changed:
                self._threads.rows.drop_group(name)
            # Commits of before the change do not come after it.
            self._threads.settle()
            self._threads.refresh_soon()

    def _group_changed(self, name: str) -> None:
        self._groups_changed((name,))

    def _write_state(self, rows: Rows) -> None:
        broker_properties = self._rules.broker_properties
        on = self._rules.enabled and not self._state.is_slave
        on = on and not self._filling and not self._leaves
        ext = list(broker_properties.ext.items())
        pop = self._pop.write(allowed=on)
        rows.set_state(
            sends=on and self._open_for_sends and not self._failed,
            # Where slaves serve reads an answer says which broker to ask next.
            pulls=on and self._state.is_readable and not self._rules.pull.slave_read,
            sync_flush=self._rules.durability.sync_flush,
            sync_here=self._sync_here,
            flush_timeout_ms=self._rules.durability.sync_flush_timeout_ms,
            waits_for_slave=self._state.waits_for_slave,
            lacks_slave=self._state.lacks_slave,
            slave_timeout_ms=self._state.slave_timeout_ms,
            body_max=broker_properties.rules.message_size_max,
            batch_max=messages_max(len(broker_properties.identity.store_host)),
            store_host=broker_properties.identity.store_host,
            stamps=[*ext, (props.CLUSTER, broker_properties.identity.cluster)],
            special=sorted(self._rules.special),
            send_ext=ext,
            encoding=self._rules.encoding,
            version=VERSION,
            parked_max=PARKED_MAX,
            busy_remark=OVERLOAD,
            lite_pulls=self._rules.pull.lite_pull,
            holds_max=self._rules.holds_max,
            hold_ms=None if self._rules.pull.long_polling else self._rules.pull.short_polling_ms,
            hold_ms_max=SUSPEND_MS_MAX,
            delays=(names.SCHEDULE_TOPIC, self._rules.delay_levels),
            halves=self._halves.place,
            pop=pop,
            barrier=BARRIER if pop is None else (*BARRIER, *SETTLES),
        )

    def _write_topic(self, rows: Rows, name: str) -> None:
        config = self._metadata.topics.get(name)
        if config is None:
            rows.set_topic(name, 0, 0, 0, 0)
            return
        rows.set_topic(
            name,
            self._send_queues(config),
            self._pull_queues(config),
            sys_flag.MULTI_TAGS if config.filter_type is FilterType.MULTI_TAG else 0,
            config.sys_flag,
            config.read_queues,
            self._front_queues(config),
            config.attributes.get(MESSAGE_TYPE) or "NORMAL",
        )

    def _pull_queues(self, config: TopicConfig) -> int:
        """Return how many queues plain pulls may name; 0 when a pull needs a closer look."""
        is_judged = self._accounts is not None and light_queues.is_of_others(config.name)
        by_origin = self._rules.pull.filter_retries and names.is_retry(config.name)
        return config.read_queues if can_read(config.perm) and not (by_origin or is_judged) else 0

    def _send_queues(self, config: TopicConfig) -> int:
        """Return how many queues plain sends may name; 0 when a send needs a closer look."""
        is_closed = config.order and not self._state.is_writable
        if is_closed or not self._metadata.topics.is_durable(config.name):
            return 0
        refused = names.check_topic(config.name) or names.check_may_send(config.name)
        if refused or names.is_retry(config.name) or not _is_plain(config.attributes):
            return 0
        return max(config.read_queues, config.write_queues)

    def _front_queues(self, config: TopicConfig) -> int:
        """Return over how many queues other fronts spread plain sends; 0 leaves them to those."""
        if not can_write(config.perm) or names.is_system_topic(config.name):
            return 0
        return min(self._send_queues(config), config.write_queues)

    def _write_group(self, rows: Rows, name: str) -> None:
        config = self._metadata.groups.get(name)
        consuming = self._registry.consumer(name)
        refused = consuming is None and self._rules.pull.reject_pull_consumers
        if (
            config is None
            or not config.consume_enable
            or refused
            or self._metadata.offsets.has_reset(name)
        ):
            rows.drop_group(name)
            return
        rows.set_group(name, config.sys_flag, self._subscriptions(config))

    def _subscriptions(
        self, config: SubscriptionGroupConfig
    ) -> list[tuple[str, int, Sequence[int] | None, Filter | None]]:
        consuming = self._registry.consumer(config.name)
        if consuming is None or (consuming.is_broadcasting and not config.consume_broadcast_enable):
            return []
        rows: list[tuple[str, int, Sequence[int] | None, Filter | None]] = []
        for found in consuming.subscriptions.values():
            forbidden = self._metadata.groups.forbidden(config.name, found.topic)
            choice = self._choice(config.name, found)
            if choice is not None and not forbidden & FORBIDDEN_SUBSCRIPTION:
                rows.append((found.topic, found.version, choice.codes, choice.filter_by))
        return rows

    def _choice(self, group: str, found: SubscriptionData) -> Choice | None:
        """Return what a subscription wants; None when a pull needs a closer look."""
        if found.expression_type in ("", ExpressionType.TAG):
            return Choice(found.wanted_codes, None)
        if found.expression_type != ExpressionType.SQL92 or not self._rules.pull.property_filter:
            return None
        entry = self._metadata.filters.find(found.topic, group)
        if entry is None or entry.version < found.version:
            return None
        return Choice(found.wanted_codes, entry.filter)

    # --- what was answered ----------------------------------------------------------------------

    def pulled(self, pulls: PulledHere) -> None:
        """Do for pulls what their handler would have noted."""
        where = (pulls.group, pulls.topic, pulls.queue_id)
        offsets = self._metadata.offsets
        if pulls.offset is not None:
            offsets.note_pull(*where, pulls.offset)
        # What was answered just before a reset is booked just behind it, and does not undo it.
        if pulls.commit is not None and offsets.pending_reset(*where) is None:
            offsets.commit(*where, pulls.commit, commits=pulls.commits)
        if pulls.reads:
            self._traffic.found_many(
                *where,
                pulls.messages,
                pulls.size,
                behind=pulls.behind,
                reads=pulls.reads,
                took_ms=round(pulls.took_us / 1000),
            )
        if pulls.misses:
            self._traffic.missed_many(pulls.misses)

    def stored(self, messages: StoredHere) -> None:
        """Count messages as their handler would have."""
        if messages.messages:
            self._traffic.stored_many(
                messages.topic, messages.queue_id, messages.messages, messages.size
            )
        if messages.sends:
            took_ms = round(messages.took_us / 1000)
            self._traffic.sent_many(messages.topic, messages.queue_id, messages.sends, took_ms)

    def opened(self, topic: str, halves: int) -> None:
        """Count half messages as their handler would have."""
        self._halves.opened(topic, halves)

    def answered(self, answers: AnsweredHere, front: str) -> None:
        """Count how long answers of a front took, if anybody asks."""
        if self._answers is not None:
            self._answers.answered_many(answers, front)


def _is_plain(attributes: Mapping[str, str]) -> bool:
    """Tell whether no attribute of a topic changes how a plain message is stored."""
    return all(
        key in FREE_ATTRIBUTES or value in PLAIN_ATTRIBUTES.get(key, ())
        for key, value in attributes.items()
    )


class FastIngest:
    """The fast path as a part of the broker: open after the store, fed by its flushes."""

    def __init__(
        self,
        path: FastPath,
        admission: Admission,
        store: MessageStore,
        frame_size_max: int,
        disk: InlineSyncPolicy,
    ) -> None:
        self._path = path
        self._disk = disk
        self._admission = admission
        self._store = store
        self._frame_size_max = frame_size_max
        self.timers = (Timer("fast path", self.tick, path.pause_s, 0.05, path.rest),)
        store.on_flush(self._flushed, of_fast_path=True)

    async def start(self) -> None:
        """Begin with an empty table; the first bytes fill it."""
        self._path.open(self._store.native, self._frame_size_max)

    async def stop(self) -> None:
        """Book what was stored. The ports are closed already."""
        self._path.close()

    async def tick(self) -> None:
        """Give up what waited too long, book what was stored: the action of a timer."""
        await self._admission.tick()
        self._admission.sync_in_place(self._disk.look(*self._store.native.sync_times()))
        await self._path.tick()

    def _flushed(self, offset: int, failure: str | None) -> None:
        if failure is not None:
            self._admission.store_failed()
        name = PutStatus.UNKNOWN_ERROR.name
        self._path.flushed(offset, failure and f"UNKNOWN_ERROR {name} ({failure})")
