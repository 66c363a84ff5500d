"""Stores unacknowledged messages again: in the group's pop retry topic, or as dead letters."""

from __future__ import annotations

import dataclasses
import enum
import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import TableFull
from roquet.broker.pop import revive_rules
from roquet.broker.pop.drafts import put_status
from roquet.model.topic import READ_WRITE
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.pop import topics as pop_topics
from roquet.service.background import give_way
from roquet.service.counting import LabelCounts
from roquet.service.ratelog import RateLog
from roquet.store.popped import Popped, Target
from roquet.store.records import offset_in
from roquet.store.results import PutStatus, StoreFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.base.clock import Clock
    from roquet.broker.pop.revive_rules import ReviveConfig
    from roquet.broker.pop.seams import CoreCopies, Returned, ReviveAppends, ReviveStore
    from roquet.broker.state import Identity
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.protocol.pop.records import PopCheckpoint
    from roquet.store.records import Record
    from roquet.store.results import Draft, PutResult
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

DEAD_LETTER_QUEUES = 1
RETRY_QUEUES = 1
_HOPELESS = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""Another try may still succeed, when settings or names have changed; the others need not wait."""


class Outcome(enum.Enum):
    """What became of a message."""

    STORED = "stored"
    DEAD = "dead letter"
    GONE = "gone"
    """It was deleted with its part of the log, or its queue was cut or made again."""
    FAILED = "failed"
    """It could not be read or stored; others may have been."""
    WAIT = "wait"
    """The store takes nothing now."""


@dataclasses.dataclass(slots=True)
class CopyCounts:
    """What became of messages."""

    stored: int = 0
    dead: int = 0
    gone: int = 0
    failed: int = 0
    orphans: int = 0
    """Checkpoints of topics or groups that are gone, or were made again."""
    re_puts: int = 0
    given_up: int = 0
    no_room: int = 0
    """Dead letters before their time: their properties leave no room for those of a copy."""
    puts: LabelCounts = dataclasses.field(default_factory=LabelCounts, compare=False)
    """Attempts to store messages again, by (outcome, topic, group)."""


class _End(NamedTuple):
    """The end of a queue."""

    offset: int
    is_final: bool
    """Whether the queue has every message that is in the log."""


class Copies:
    """Stores messages for another try."""

    def __init__(
        self,
        store: ReviveStore,
        appends: ReviveAppends,
        tables: tuple[TopicTable, GroupTable, OffsetTable],
        *,
        identity: Identity,
        rules: ReviveConfig,
        returned: Returned,
        clock: Clock,
        deletions: Deletions,
        core: CoreCopies | None = None,
    ) -> None:
        """`core` stores what is plain; without it everything goes by the rules here."""
        self.rules = rules
        self.counts = CopyCounts()
        self._store = store
        self._appends = appends
        self._topics, self._groups, self._offsets = tables
        self._identity = identity
        self._returned = returned
        self._core = core
        self._deletions = deletions
        self._log = RateLog(log, clock)

    def look(self) -> None:
        """Notice a clock that was set back before anything is settled."""
        self._deletions.look()

    def is_orphan(self, checkpoint: PopCheckpoint) -> bool:
        """Tell whether nobody can want the messages: their topic or their group is gone.

        Other messages may be at these offsets since, or the new group has got them from the queue.
        """
        topic, group = _names(checkpoint)
        normal = pop_topics.normal_topic(topic, group) or topic
        # A table that was lost knows nothing: the messages are tried again later.
        is_gone = self._topics.get(normal) is None and self._topics.is_complete()
        is_former = self._deletions.covers(topic, group, checkpoint.pop_time_ms)
        if is_gone or is_former or self._groups.find(group) is None:
            self.counts.orphans += 1
            self._log.warning(
                (topic, group), f"popped messages of topic {topic} and group {group} have no owner"
            )
            return True
        return False

    async def store(self, checkpoint: PopCheckpoint, offsets: Sequence[int]) -> list[Outcome]:
        """Store the messages at these queue offsets again; return what became of each.

        Whatever goes wrong with one counts for those behind it alone: what is stored is not stored
        again, and the messages of others do not wait for it.
        """
        group = self._groups.find(checkpoint.group or "")
        assert group is not None, "is_orphan comes first"
        try:
            end = self._end(checkpoint)
        except StoreFault as fault:
            outcomes = [self._failed(checkpoint, offset, str(fault)) for offset in offsets]
            self._count(outcomes)
            return outcomes
        there = [offset for offset in offsets if offset < end.offset]
        stored = await self._copied(checkpoint, there, group)
        outcomes = [Outcome.STORED] * stored
        if stored < len(offsets):
            outcomes += await self._rest(checkpoint, offsets[stored:], end, group)
        self._count(outcomes)
        return outcomes

    async def _rest(
        self,
        checkpoint: PopCheckpoint,
        offsets: Sequence[int],
        end: _End,
        group: SubscriptionGroupConfig,
    ) -> list[Outcome]:
        """Store what the core has left by the rules here; return what became of each."""
        try:
            found = [self._message(checkpoint, offset, end) for offset in offsets]
            return await self._moved(checkpoint, found, group)
        except TableFull as error:
            self._log.warning("full", f"messages of {checkpoint.topic} have to wait: {error}")
        except Exception as error:  # noqa: BLE001  (one message must not stop all others)
            where = f"{checkpoint.topic} queue {checkpoint.queue_id} from offset {offsets[0]}"
            self._log.error("unstorable", f"messages of {where} are tried again later", error=error)
        return [Outcome.FAILED] * len(offsets)

    def _end(self, checkpoint: PopCheckpoint) -> _End:
        """Return where a checkpoint's queue ends before anything is stored. Raises StoreFault.

        A copy that is stored then may get the offset of a message that is lost.
        """
        # In this order: what was popped is in the log by now.
        is_final = self._store.dispatch_behind() == 0
        return _End(self._store.max_offset(checkpoint.topic or "", checkpoint.queue_id), is_final)

    async def _copied(
        self, checkpoint: PopCheckpoint, offsets: Sequence[int], group: SubscriptionGroupConfig
    ) -> int:
        """Have the core store the first messages again, up to one that it leaves; return how many.

        Topics are made, and messages judged, by the rules here alone.
        """
        topic, target = checkpoint.topic or "", self._target(checkpoint, group)
        if self._core is None or target is None:
            return 0
        is_retry = names.is_retry(topic)
        of = topic, checkpoint.queue_id, is_retry, checkpoint.group or "", checkpoint.pop_time_ms
        stored = 0
        while stored < len(offsets):
            try:
                sizes = self._core.copy(Popped(*of), target, offsets[stored:])
            except StoreFault:
                # It is met again there, and told.
                break
            if not sizes:
                break
            stored += len(sizes)
            self.counts.puts.add((PutStatus.PUT_OK.name, *_names(checkpoint)), len(sizes))
            self._returned.moved(target.topic, sum(sizes), len(sizes))
            if stored < len(offsets):
                await give_way()
        return stored

    def _target(self, checkpoint: PopCheckpoint, group: SubscriptionGroupConfig) -> Target | None:
        """Return where copies of plain messages go; None when the core cannot store them."""
        if not self._is_mine(checkpoint) or names.is_lmq(checkpoint.topic or ""):
            return None
        topic = revive_rules.retry_topic(checkpoint, self.rules)
        left, known = self._appends.beyond_core(topic), self._topics.get(topic)
        if left is None or known is None or known.write_queues < self._queues_wanted(checkpoint):
            return None
        queue_id = checkpoint.queue_id if self.rules.separate_queues else 0
        return Target(
            topic,
            min(queue_id, known.write_queues - 1),
            self._identity.store_host,
            revive_rules.more_attempts(checkpoint),
            revive_rules.attempts_max(group, self.rules),
            tuple(left),
        )

    async def _moved(
        self,
        checkpoint: PopCheckpoint,
        found: Sequence[Record | Outcome],
        group: SubscriptionGroupConfig,
    ) -> list[Outcome]:
        """Store the messages that were found again, by the rules; return what became of each."""
        outcomes: list[Outcome] = []
        drafts: list[tuple[int, Draft]] = []
        for each in found:
            if isinstance(each, Outcome):
                outcomes.append(each)
                continue
            drafts.append((len(outcomes), await self._draft(each, checkpoint, group)))
            outcomes.append(Outcome.STORED)
        results = await self._appends.append_as_is([draft for _, draft in drafts])
        for (place, draft), result in zip(drafts, results, strict=True):
            outcomes[place] = self._outcome(checkpoint, draft, result)
        return outcomes

    def _message(self, checkpoint: PopCheckpoint, offset: int, end: _End) -> Record | Outcome:
        """Return the message itself, never another one; a failed read is no proof that it is gone.

        A message that is gone for certain lay before the first of its queue, or behind the last.
        """
        if not self._is_mine(checkpoint):
            return self._failed(checkpoint, offset, f"it is of broker {checkpoint.broker_name}")
        topic, queue_id = checkpoint.topic or "", checkpoint.queue_id
        try:
            is_behind = offset >= end.offset
            units = [] if is_behind else self._store.units(topic, queue_id, offset, 1)
            record = self._store.record(*units[0][:2]) if units else None
            if record is not None and offset_in(record, topic) == offset:
                return record if _is_owned(record, checkpoint) else Outcome.GONE
            if offset < self._store.min_offset(topic, queue_id) or (is_behind and end.is_final):
                return Outcome.GONE
        except StoreFault as fault:
            return self._failed(checkpoint, offset, str(fault))
        return self._failed(checkpoint, offset, "it cannot be read")

    def _is_mine(self, checkpoint: PopCheckpoint) -> bool:
        return checkpoint.broker_name in (None, "", self._identity.name)

    def _failed(self, checkpoint: PopCheckpoint, offset: int, why: str) -> Outcome:
        where = f"{checkpoint.topic} queue {checkpoint.queue_id} offset {offset}"
        self._log.warning("failed", f"message of {where} is tried again later: {why}")
        return Outcome.FAILED

    async def _draft(
        self, record: Record, checkpoint: PopCheckpoint, group: SubscriptionGroupConfig
    ) -> Draft:
        host = self._identity.store_host
        if revive_rules.is_dead(record, checkpoint, group, self.rules):
            return await self._dead_letter(record, checkpoint)
        topic = revive_rules.retry_topic(checkpoint, self.rules)
        queues = await self._retry_queues(topic, checkpoint)
        queue_id = record.queue_id if self.rules.separate_queues else 0
        where = topic, min(queue_id, queues - 1)
        draft = revive_rules.retry_draft(record, checkpoint, *where, host)
        if draft is not None:
            return draft
        # Every try would fail alike, and nobody would ever see it.
        self.counts.no_room += 1
        log.warning(
            "message of %s queue %d offset %d goes to the dead letters of %s: its properties leave"
            " no room for those of another try",
            *(record.topic, record.queue_id, record.queue_offset, checkpoint.group),
        )
        return await self._dead_letter(record, checkpoint)

    async def _dead_letter(self, record: Record, checkpoint: PopCheckpoint) -> Draft:
        draft = revive_rules.dead_letter_draft(record, checkpoint, self._identity.store_host)
        if self._topics.get(draft.topic) is None:
            self._topics.ensure(draft.topic, DEAD_LETTER_QUEUES, READ_WRITE)
            await self._topics.persist()
        return draft

    async def _retry_queues(self, topic: str, checkpoint: PopCheckpoint) -> int:
        """Return how many queues the retry topic has; it is made, and grows with its topic."""
        wanted = self._queues_wanted(checkpoint)
        group = checkpoint.group or ""
        known = self._topics.get(topic)
        if known is not None and known.write_queues >= wanted:
            return known.write_queues
        before = 0 if known is None else known.write_queues
        if known is None:
            self._topics.ensure(topic, wanted, READ_WRITE)
        else:
            reads = max(wanted, known.read_queues)
            self._topics.put(dataclasses.replace(known, read_queues=reads, write_queues=wanted))
        await self._topics.persist()
        # The group begins where the messages do, whatever its pops ask for.
        for queue_id in range(before, wanted):
            if self._offsets.committed(group, topic, queue_id) is None:
                self._offsets.commit(group, topic, queue_id, 0)
        return wanted

    def _queues_wanted(self, checkpoint: PopCheckpoint) -> int:
        """Return how many queues the retry topic needs."""
        if not self.rules.separate_queues:
            return RETRY_QUEUES
        name, group = _names(checkpoint)
        normal = self._topics.get(pop_topics.normal_topic(name, group) or name)
        return max(RETRY_QUEUES, 0 if normal is None else normal.write_queues)

    def _outcome(self, checkpoint: PopCheckpoint, draft: Draft, result: PutResult) -> Outcome:
        self.counts.puts.add((put_status(result), *_names(checkpoint)))
        if result.status.is_stored:
            is_dead = names.is_dlq(draft.topic)
            name, group = _names(checkpoint)
            origin = pop_topics.normal_topic(name, group) or name
            if is_dead:
                self._returned.sent_back(group, origin, dead=True)
            self._returned.moved(draft.topic, result.size)
            return Outcome.DEAD if is_dead else Outcome.STORED
        text = f"{PutStatus(result.status).name} {result.why}"
        self._log.warning("put", f"messages for {draft.topic} are tried again later: {text}")
        return Outcome.FAILED if result.status in _HOPELESS else Outcome.WAIT

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        counts = self.counts
        counts.stored += outcomes.count(Outcome.STORED)
        counts.dead += outcomes.count(Outcome.DEAD)
        counts.gone += outcomes.count(Outcome.GONE)
        counts.failed += outcomes.count(Outcome.FAILED)


def _names(checkpoint: PopCheckpoint) -> tuple[str, str]:
    return checkpoint.topic or "", checkpoint.group or ""


def _is_owned(record: Record, checkpoint: PopCheckpoint) -> bool:
    """Tell whether a message is the group's; a handle may name one that the group never got."""
    # Other topics are everybody's: their properties need not be read for that.
    if not names.is_retry(record.topic):
        return True
    group = checkpoint.group or ""
    return pop_topics.is_for_group(record.topic, group, props.read(record.properties))
