"""The transactions of a broker that is master: settled by their producers, or asked about.

A half message lies in the half queue until its producer says commit or rollback. Whoever says
nothing is asked, round after round; the message is first copied to the end of the half queue with
the number of checks, so that what is settled stays a stretch without large gaps.

A message is committed once. Within a process the book knows what is settled. What was open when the
broker started is looked up in the index before it is committed, because the broker may have died
between the commit and its op record; copies of it that were left side by side count as one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.broker.transactions import drafts
from roquet.broker.transactions.book import TransactionBook
from roquet.broker.transactions.copies import Copies
from roquet.broker.transactions.ops import OpWriter
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.service.background import Tasks, give_way
from roquet.service.lifecycle import Timer
from roquet.store.records import read_records
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.metrics.traffic import InnerTraffic
    from roquet.broker.state import Identity
    from roquet.broker.transactions.counts import TransactionCounts
    from roquet.broker.transactions.seams import Appends, TransactionStore
    from roquet.broker.transactions.verdict import TransactionConfig
    from roquet.store.records import Record
    from roquet.store.results import Draft, PutResult
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

LOAD_PAUSE_S = 0.02
LOAD_BATCH = 256
_EVER = 2**62


class Transactions:
    """Half messages and what became of them: a service for the broker that is master."""

    def __init__(
        self,
        store: TransactionStore,
        appends: Appends,
        offsets: OffsetTable,
        counts: TransactionCounts,
        *,
        identity: Identity,
        rules: TransactionConfig,
        clock: Clock,
        traffic: InnerTraffic,
    ) -> None:
        """`traffic` is told of what is stored and read in the topics of half messages."""
        self.traffic = traffic
        self._store = store
        self._appends = appends
        self._offsets = offsets
        self.counts = counts
        self._rules = rules
        self._clock = clock
        self.book = TransactionBook()
        self.ops = OpWriter(store, self.book, identity, rules, clock, traffic=self.traffic)
        self._tasks = Tasks()
        self._loaded = asyncio.Event()
        self._is_stopped = False
        self._inherited_below = 0
        self._inherited: set[int] = set()
        self._ending: dict[int, asyncio.Future[None]] = {}
        self.timers = (
            Timer(
                "save counts of half messages",
                counts.persist,
                lambda: self._rules.metrics_interval_ms / 1000,
                rules.metrics_interval_ms / 1000,
            ),
        )

    def follow(self, rules: TransactionConfig) -> None:
        """Go by other rules from now on."""
        self._rules = rules
        self.ops.follow(rules)

    async def start(self) -> None:
        """Begin to read what is open; it may go on until the dispatcher has caught up."""
        self._loaded.clear()
        self._is_stopped = False
        self.ops.begin()
        self._tasks.spawn(self._load(), "load transactions")

    async def stop(self) -> None:
        """Write down what is settled."""
        is_loaded, self._is_stopped = self._loaded.is_set(), True
        await self._tasks.stop()
        # Whoever waits is told; what producers have not settled is asked about by the next master.
        self._loaded.set()
        await self.ops.stop()
        if is_loaded:
            await self.commit_offsets()
        await self.counts.persist()

    # --- what producers do ----------------------------------------------------------------------

    def opened(self, topic: str, count: int = 1) -> None:
        """Note that half messages for a topic have been stored."""
        self.counts.opened(topic, count)

    async def settle(
        self, record: Record, draft: Draft | None, real_topic: str
    ) -> PutResult | None:
        """Commit (`draft` is what consumers see) or roll back (None) an open half message.

        `real_topic` is the one that the half message is counted under.
        Returns None when there was nothing to do any more, or it was a rollback; otherwise what
        became of the append. Only a stored message settles the half message.
        """
        await self.wait_loaded()
        while (living := self.book.living(record.queue_offset)) is not None:
            under_way = self._ending.get(living)
            if under_way is None:
                return await self._settle_at(living, record, draft, real_topic)
            await asyncio.wait([under_way])
        return None

    def is_ending(self, half_offset: int) -> bool:
        """Tell whether a half message is being committed right now."""
        return half_offset in self._ending

    async def _settle_at(
        self, living: int, record: Record, draft: Draft | None, real_topic: str
    ) -> PutResult | None:
        future = self._ending[living] = asyncio.get_running_loop().create_future()
        try:
            result = None
            if draft is not None and not self._was_committed(living, record, draft):
                result = await self._appends.append(draft)
                if not result.status.is_stored:
                    return result
            self.settled(living)
            open_ms = self._clock.now_ms() - record.born_timestamp
            self.counts.settled(real_topic, committed=draft is not None, open_ms=open_ms)
            return result
        finally:
            del self._ending[living]
            future.set_result(None)

    def settled(self, half_offset: int) -> None:
        """Note, and have written down, that a half message is settled."""
        self.book.settle(half_offset)
        self._inherited.discard(half_offset)
        self.ops.add(half_offset)

    def moved(self, old: int, new: int) -> None:
        """Note that a half message was copied behind itself."""
        if old < self._inherited_below or old in self._inherited:
            self._inherited.discard(old)
            self._inherited.add(new)
        self.book.move(old, new)
        if old >= self.book.half_offset:
            self.ops.add(old)

    def revived(self, topic: str, half_offset: int) -> None:
        """Note a half message that an administrator brought back, maybe more than once."""
        self._inherited.add(half_offset)
        self.counts.opened(topic)

    def _was_committed(self, living: int, record: Record, draft: Draft) -> bool:
        """Tell whether the message of a half message from before the start is there already."""
        if living >= self._inherited_below and living not in self._inherited:
            return False
        key = draft.properties.get(props.UNIQ_KEY)
        if not key:
            return False
        id_ = draft.properties.get(props.TRANSACTION_ID)
        for topic in dict.fromkeys((draft.topic, names.SCHEDULE_TOPIC)):
            for data in self._store.query(topic, key, 32, 0, _EVER).records:
                found = read_records(data, check_crc=False)[0]
                is_commit = sys_flag.transaction(found.sys_flag) == sys_flag.TRANSACTION_COMMIT
                # A producer may set the flag; where the half message was, only a broker writes.
                is_commit = is_commit and self._was_half(found.prepared_transaction_offset)
                if is_commit and props.read(found.properties).get(props.TRANSACTION_ID) == id_:
                    log.info(
                        "transaction %s was committed before the start, half offset %d",
                        id_,
                        record.queue_offset,
                    )
                    return True
        return False

    def _was_half(self, place: int) -> bool:
        """Tell whether a record may say that its half message was at a place in the log."""
        # Messages of producers say 0; only in a young log a half message may have been there.
        first = self._store.record(0) if place == 0 else None
        return place > 0 or (first is not None and first.topic == drafts.HALF_TOPIC)

    # --- offsets --------------------------------------------------------------------------------

    async def commit_offsets(self) -> None:
        """Move the two committed offsets; what they stand for is durable first."""
        if not self.book.advance():
            return
        half, op = self.book.half_offset, self.book.op_offset
        await self._store.flush()
        for topic, offset in ((drafts.HALF_TOPIC, half), (drafts.OP_TOPIC, op)):
            self._offsets.commit(drafts.GROUP, topic, drafts.QUEUE_ID, offset)

    # --- the start ------------------------------------------------------------------------------

    async def wait_loaded(self) -> None:
        """Wait until what is open is known. Raises StoreFault once transactions have stopped."""
        await self._loaded.wait()
        if self._is_stopped:
            raise StoreFault("closed", "transactions are not settled here any more")

    async def _load(self) -> None:
        while True:
            try:
                while self._store.dispatch_behind() > 0:
                    await self._clock.sleep(LOAD_PAUSE_S)
                await self._load_once()
            except StoreFault as fault:
                log.warning("the open transactions cannot be read: %s", fault)
                await self._clock.sleep(1.0)
            else:
                self._loaded.set()
                return

    async def _load_once(self) -> None:
        self.book.begin(self._start_of(drafts.HALF_TOPIC), self._start_of(drafts.OP_TOPIC))
        self._inherited.clear()
        named = await self._read_ops()
        await self._read_halves(named)

    def _start_of(self, topic: str) -> int:
        known = self._offsets.committed(drafts.GROUP, topic, drafts.QUEUE_ID) or 0
        first = self._store.min_offset(topic, drafts.QUEUE_ID)
        last = self._store.max_offset(topic, drafts.QUEUE_ID)
        return min(max(known, first), last)

    async def _read_ops(self) -> set[int]:
        """Settle what op records name; return all that they name."""
        topic, at = drafts.OP_TOPIC, self.book.op_offset
        named: set[int] = set()
        while units := self._store.units(topic, drafts.QUEUE_ID, at, LOAD_BATCH):
            for physical, size, _ in units:
                record = self._store.record(physical, size)
                self.traffic.looked_at(drafts.GROUP, topic, size)
                halves = [] if record is None else drafts.op_offsets(record.body)
                named.update(halves)
                for offset in halves:
                    self.book.settle(offset)
                self.book.note_op(at, max(halves, default=-1))
                at += 1
            await give_way()
        return named

    async def _read_halves(self, named: set[int]) -> None:
        self.counts.reset()
        end = self._store.max_offset(drafts.HALF_TOPIC, drafts.QUEUE_ID)
        self._inherited_below = end
        copies = Copies(self.book)
        at = self.book.next_open(self.book.half_offset)
        read = 0
        while at < end:
            record = self._half(at)
            if record is not None:
                self._note_open(at, record, named, copies)
            read += 1
            if read % LOAD_BATCH == 0:
                await give_way()
            at = self.book.next_open(at + 1)
        await self._settle_copies(named, copies)

    def _half(self, offset: int) -> Record | None:
        units = self._store.units(drafts.HALF_TOPIC, drafts.QUEUE_ID, offset, 1)
        return self._store.record(*units[0][:2]) if units else None

    def _note_open(self, offset: int, record: Record, named: set[int], copies: Copies) -> None:
        properties = props.read(record.properties)
        # Java brokers write copies of messages that ask for more time; their producers know of
        # the first one only, and so do the op records.
        text = properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET, "")
        if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) < offset:
            if int(text) in named:
                self.settled(offset)
                return
            self.book.move(int(text), offset)
        if not copies.note_open(offset, record, properties):
            self.counts.opened(properties.get(props.REAL_TOPIC, ""))

    async def _settle_copies(self, named: set[int], copies: Copies) -> None:
        """Settle what is open although a newer copy of it was settled."""
        oldest = copies.oldest_open
        if oldest is None:
            return
        for read, offset in enumerate(sorted(offset for offset in named if offset > oldest)):
            record = self._half(offset)
            older = None if record is None else copies.older_than(offset, record)
            if record is not None and older is not None:
                self.settled(older)
                self.counts.opened(props.read(record.properties).get(props.REAL_TOPIC, ""), -1)
            if read % LOAD_BATCH == 0:
                await give_way()
