"""A broker's log, timer wheel and tables in memory, for the redelivery of popped messages.

Every write may be the last before a crash. What a crash takes is what it takes of a real broker:
all that is in memory, offsets that were not saved, and after a power loss what was not flushed.
"""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, NamedTuple

from roquet.broker.pop.drafts import ack_draft, checkpoint_draft
from roquet.broker.pop.revive import ReviveService
from roquet.broker.pop.revive_copies import Copies
from roquet.broker.pop.revive_rules import ReviveConfig, attempts, retry_draft
from roquet.broker.state import Identity
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.pop.records import CHECKPOINT_TAG, PopAck, PopCheckpoint
from roquet.protocol.pop.topics import REVIVE_GROUP, revive_topic
from roquet.store.records import Record
from roquet.store.results import Draft, PutResult, PutStatus, StoreFault
from roquet.store.tables.deletions import Deletions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.store.popped import Popped, Target

START_MS = 1_700_000_000_000
STEP_MS = 1000
TOPIC = "T"
GROUP = "g"
REVIVE = revive_topic("c")
SIZE = 100


class Crash(BaseException):
    """The process ends here."""


class Entry(NamedTuple):
    """A record of the log."""

    draft: Draft
    stored_ms: int
    timer: int | None = None
    """Of a record that the wheel fired: where the waiting one lies."""


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.on_set_back: Callable[[int, int], None] | None = None

    def now_ms(self) -> int:
        return self.ms

    def steady_ms(self) -> int:
        return self.ms

    def set_by(self, by_ms: int) -> None:
        """Set it, as somebody does who corrects it."""
        self.ms += by_ms
        if by_ms < 0 and self.on_set_back is not None:
            self.on_set_back(-by_ms, self.ms)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


class Log:
    """The message store with its timer wheel."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.clock = clock
        self.rng = rng
        self.entries: list[Entry] = []
        self.queues: dict[tuple[str, int], list[int]] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.waiting: list[int] = []
        self.flushed = 0
        self.own: set[int] = set()
        """Places of the acknowledgements that redelivery itself wrote."""
        self.writes_left: int | None = None
        self.faults: set[int] = set()
        self.record_ms = 0
        """What reading one record takes."""
        self.statuses: list[PutStatus] = []
        self.is_on = True
        self.behind = 0
        self.fires = True

    def put(self, draft: Draft, timer: int | None = None) -> PutResult:
        """Append; the process may end right before or right after it."""
        if self.writes_left is not None and timer is None:
            self.writes_left -= 1
            if self.writes_left < 0 and self.rng.random() < 0.5:
                raise Crash
        if timer is None and self.statuses:
            status = self.statuses.pop(0)
            if not status.is_stored:
                return PutResult(status, why="a test says so")
        place = len(self.entries)
        copy = dataclasses.replace(draft, properties=dict(draft.properties))
        self.entries.append(Entry(copy, self.clock.ms, timer))
        self._index(place)
        if self.writes_left is not None and self.writes_left < 0 and timer is None:
            raise Crash
        offset = len(self.queues[draft.topic, draft.queue_id]) - 1
        return PutResult(PutStatus.PUT_OK, place * SIZE, SIZE, offset, self.clock.ms)

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append as the broker does: what is due later waits in the wheel."""
        del wait
        due_ms = int(draft.properties.get(props.TIMER_DELIVER_MS, 0))
        if due_ms <= self.clock.ms:
            return self.put(draft)
        out_ms = due_ms - STEP_MS if due_ms % STEP_MS == 0 else due_ms - due_ms % STEP_MS
        more = {
            props.TIMER_OUT_MS: str(out_ms),
            props.REAL_TOPIC: draft.topic,
            props.REAL_QUEUE_ID: str(draft.queue_id),
        }
        # As the broker does it, in place.
        draft.properties |= more
        draft.topic, draft.queue_id = names.TIMER_TOPIC, 0
        return self.put(draft)

    async def append_as_is(self, drafts: Sequence[Draft]) -> list[PutResult]:
        return [self.put(draft) for draft in drafts]

    def beyond_core(self, topic: str) -> frozenset[str] | None:
        assert topic
        return frozenset()

    async def flush(self) -> None:
        self.flushed = len(self.entries)

    def _index(self, place: int) -> None:
        draft = self.entries[place].draft
        self.queues.setdefault((draft.topic, draft.queue_id), []).append(place)
        if draft.topic == names.TIMER_TOPIC:
            self.waiting.append(place)

    # --- the wheel ------------------------------------------------------------------------------

    def passed_ms(self) -> int | None:
        return self.clock.ms // STEP_MS * STEP_MS - 1 if self.is_on and self.fires else None

    def turn(self) -> None:
        """Fire what is due: slot by slot, each in the order of the log."""
        if not self.fires:
            return
        floor = self.clock.ms // STEP_MS * STEP_MS
        due = [place for place in self.waiting if self._out(place) < floor]
        for place in sorted(due, key=lambda it: (self._out(it), it)):
            self.waiting.remove(place)
            draft = self.entries[place].draft
            topic = draft.properties[props.REAL_TOPIC]
            queue_id = int(draft.properties[props.REAL_QUEUE_ID])
            fired = dataclasses.replace(draft, topic=topic, queue_id=queue_id)
            self.put(fired, timer=place)

    def _out(self, place: int) -> int:
        return int(self.entries[place].draft.properties[props.TIMER_OUT_MS])

    def recover(self, *, power_loss: bool) -> None:
        """Begin again with what is on disk; the wheel fires its last few slots once more."""
        if power_loss:
            del self.entries[self.rng.randint(self.flushed, len(self.entries)) :]
            self.own = {place for place in self.own if place < len(self.entries)}
        self.queues.clear()
        self.waiting.clear()
        for place in range(len(self.entries)):
            self._index(place)
        fired = {entry.timer for entry in self.entries if entry.timer is not None}
        saved_ms = self.clock.ms - self.rng.randrange(3000)
        again = {place for place in fired if self._out(place) >= saved_ms}
        self.waiting = [it for it in self.waiting if it not in fired or it in again]
        self.writes_left = None
        self.flushed = len(self.entries)

    # --- reading --------------------------------------------------------------------------------

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        if offset < self.min_offset(topic, queue_id):
            return []
        places = self.queues.get((topic, queue_id), [])[offset : offset + count]
        return [(place * SIZE, SIZE, 0) for place in places]

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        assert size in (None, SIZE)
        self.clock.ms += self.record_ms
        place = physical_offset // SIZE
        if place in self.faults:
            raise StoreFault("io", "a test says so")
        draft = self.entries[place].draft
        return Record(
            size=SIZE,
            body_crc=0,
            queue_id=draft.queue_id,
            flag=draft.flag,
            queue_offset=self.queues[draft.topic, draft.queue_id].index(place),
            physical_offset=physical_offset,
            sys_flag=draft.sys_flag,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            store_timestamp=self.entries[place].stored_ms,
            store_host=draft.store_host,
            reconsume_times=draft.reconsume_times,
            prepared_transaction_offset=0,
            body=draft.body,
            topic=draft.topic,
            properties=props.write(draft.properties).encode(),
            magic=0,
        )

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), []))

    def dispatch_behind(self) -> int:
        return self.behind

    def of(self, topic: str) -> list[Draft]:
        return [entry.draft for entry in self.entries if entry.draft.topic == topic]


class OwnAppends:
    """What redelivery appends by: notes which acknowledgements are its own."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        first = len(self._log.entries)
        try:
            return await self._log.append(draft, wait=wait)
        finally:
            if draft.properties.get(props.TAGS) != CHECKPOINT_TAG:
                self._log.own.update(range(first, len(self._log.entries)))

    async def append_as_is(self, drafts: Sequence[Draft]) -> list[PutResult]:
        return await self._log.append_as_is(drafts)

    def beyond_core(self, topic: str) -> frozenset[str] | None:
        return self._log.beyond_core(topic)


class Tables:
    """Topics, groups and offsets: what the service asks of each."""

    def __init__(self) -> None:
        self.topics = {
            TOPIC: TopicConfig(name=TOPIC, read_queues=1, write_queues=1),
            REVIVE: TopicConfig(name=REVIVE, read_queues=2, write_queues=2),
        }
        self.groups = {GROUP: SubscriptionGroupConfig(name=GROUP, retry_max_times=3)}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.was_lost = False

    def is_complete(self) -> bool:
        return not self.was_lost

    def get(self, name: str) -> TopicConfig | None:
        return self.topics.get(name)

    def put(self, config: TopicConfig) -> None:
        self.topics[config.name] = config

    def ensure(self, name: str, queues: int, perm: int) -> TopicConfig:
        fresh = TopicConfig(name=name, read_queues=queues, write_queues=queues, perm=perm)
        return self.topics.setdefault(name, fresh)

    async def persist(self) -> None:
        """Be durable."""

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        return self.groups.get(name)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.offsets.get((group, topic, queue_id))

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.offsets[group, topic, queue_id] = offset


class Core:
    """Copies plain messages as the core does; it may end at any message."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def copy(self, popped: Popped, target: Target, offsets: Sequence[int]) -> list[int]:
        checkpoint = PopCheckpoint(
            topic=popped.topic,
            group=popped.group,
            queue_id=popped.queue_id,
            start_offset=offsets[0],
            pop_time_ms=popped.pop_time_ms,
            invisible_ms=0,
            suspended=not target.tries,
        )
        sizes: list[int] = []
        for offset in offsets[: self.log.rng.randint(0, len(offsets))]:
            units = self.log.units(popped.topic, popped.queue_id, offset, 1)
            record = self.log.record(*units[0][:2]) if units else None
            if record is None or attempts(record, checkpoint) > target.tries_max:
                break
            draft = retry_draft(record, checkpoint, target.topic, target.queue_id, target.host)
            if draft is None:
                break
            result = self.log.put(draft)
            if not result.status.is_stored:
                break
            sizes.append(result.size)
        return sizes


class Counted:
    """Counts what is stored again."""

    def __init__(self) -> None:
        self.dead = 0

    def moved(self, topic: str, size: int, messages: int = 1) -> None:
        assert topic
        assert size == messages * SIZE

    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        assert (group, topic, dead) == (GROUP, TOPIC, True)
        self.dead += 1


IDENTITY = Identity(
    cluster="c", name="b", broker_id=0, ip="127.0.0.1", ha_ip="127.0.0.1", port=1, ha_port=2
)


class PopWorld:
    """A broker that pops, acknowledges and revives."""

    def __init__(
        self, rng: random.Random | None = None, *, by_core: bool = False, **rules: object
    ) -> None:
        """`by_core`: some messages are copied without being shown to the rules."""
        self.by_core = by_core
        self.rng = rng or random.Random(1)
        self.clock = Clock()
        self.log = Log(self.clock, self.rng)
        self.tables = Tables()
        self.counted = Counted()
        self.rules = dataclasses.replace(ReviveConfig(), **rules)  # type: ignore[arg-type]
        self.deletions = Deletions(None, self.clock)
        self.service = self._made()

    def _made(self) -> ReviveService:
        tables = self.tables
        copies = Copies(
            self.log,
            self.log,
            (tables, tables, tables),  # type: ignore[arg-type]
            identity=IDENTITY,
            rules=self.rules,
            returned=self.counted,
            clock=self.clock,
            deletions=self.deletions,
            core=Core(self.log) if self.by_core else None,
        )
        service = ReviveService(
            self.log,
            OwnAppends(self.log),
            copies,
            tables,  # type: ignore[arg-type]
            tables,  # type: ignore[arg-type]
            wheel=self.log,
            identity=IDENTITY,
            rules=self.rules,
            clock=self.clock,
        )
        self.clock.on_set_back = service.set_backs.was_set_back
        return service

    def send(self, body: bytes, topic: str = TOPIC, *, tries: int = 0, **more: str) -> int:
        """Store a message; return its queue offset."""
        draft = Draft(
            topic=topic,
            queue_id=0,
            body=body,
            properties=dict(more),
            born_timestamp=self.clock.ms,
            born_host=b"\x01\x02\x03\x04\0\0\0\x05",
            store_host=IDENTITY.store_host,
            reconsume_times=tries,
        )
        return self.log.put(draft).queue_offset

    async def pop(
        self, offsets: Sequence[int], invisible_ms: int, queue: int = 0, **more: object
    ) -> PopCheckpoint:
        """Store the checkpoint of a pop."""
        checkpoint = PopCheckpoint(
            topic=TOPIC,
            group=GROUP,
            queue_id=0,
            start_offset=offsets[0],
            pop_time_ms=self.clock.ms,
            invisible_ms=invisible_ms,
            broker_name="b",
            diffs=tuple(offset - offsets[0] for offset in offsets),
            count=len(offsets),
        )
        checkpoint = dataclasses.replace(checkpoint, **more)  # type: ignore[arg-type]
        host = IDENTITY.store_host
        result = await self.log.append(
            checkpoint_draft(checkpoint, REVIVE, queue, self.clock.ms, host)
        )
        assert result.status.is_stored
        return checkpoint

    async def ack(self, checkpoint: PopCheckpoint, *offsets: int, queue: int = 0) -> None:
        """Store an acknowledgement: a batch when there are several."""
        ack = PopAck(
            topic=checkpoint.topic,
            group=checkpoint.group,
            queue_id=checkpoint.queue_id,
            start_offset=checkpoint.start_offset,
            pop_time_ms=checkpoint.pop_time_ms,
            broker_name=checkpoint.broker_name,
            offset=offsets[0] if len(offsets) == 1 else -1,
            batch=None if len(offsets) == 1 else offsets,
        )
        of = checkpoint.pop_time_ms, checkpoint.revive_ms
        host, revive_ms = IDENTITY.store_host, self.service.set_backs.due_ms(*of)
        draft = ack_draft(ack, REVIVE, queue, self.clock.ms, host, revive_ms=revive_ms)
        assert (await self.log.append(draft)).status.is_stored

    async def run(self, seconds: float, step_ms: int = 250) -> None:
        """Let time pass with the wheel turning and rounds of redelivery."""
        end_ms = self.clock.ms + int(seconds * 1000)
        while self.clock.ms < end_ms:
            self.clock.ms += step_ms
            self.log.turn()
            if self.clock.ms % 1000 == 0:
                await self.service.tick()

    def restart(self) -> None:
        """Begin anew with what the log and the tables hold."""
        self.service = self._made()

    def again(self) -> list[Draft]:
        """Return the copies for another try."""
        return self.log.of(f"%RETRY%{GROUP}_{TOPIC}")

    def settled(self, queue: int = 0) -> int | None:
        """Return the committed offset of a revive queue."""
        return self.tables.committed(REVIVE_GROUP, REVIVE, queue)
