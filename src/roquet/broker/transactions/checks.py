"""Rounds of checks: producers are asked what became of their open transactions (code 39).

A round walks the half queue from the first open message to the first that is too young. A message
whose producer group has nobody connected stays where it is, and no check is counted: it is put
aside only after as many checks as really went out, or when its file is about to be deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from roquet.broker.transactions import drafts
from roquet.broker.transactions.verdict import Verdict, checks_of, judge
from roquet.model.topic import READ_WRITE
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.service.background import give_way
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog
from roquet.store.results import PutStatus, StoreFault

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.clients.registry import Client
    from roquet.broker.transactions.members import ProducerMembers
    from roquet.broker.transactions.seams import Producers, TransactionStore
    from roquet.broker.transactions.service import Transactions
    from roquet.broker.transactions.verdict import TransactionConfig
    from roquet.store.records import Record
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

ROUND_MS_MAX = 60_000
"""A round with more to do goes on in the next."""
TURN = 32
"""Messages looked at before other work of the loop has its turn."""


class Questions(Protocol):
    """Puts questions to producers that are connected by frames."""

    def ask(self, producer: Client, half: Record, properties: dict[str, str]) -> None:
        """Ask a producer about a half message; its answer is an end like any other."""
        ...


@runtime_checkable
class AsksItself(Protocol):
    """A client of a front without frames, which puts the question in words of its own."""

    def ask_about(self, half: Record, properties: dict[str, str]) -> None:
        """Ask about a half message; its answer is an end like any other."""
        ...


class TransactionChecks:
    """Asks producers about transactions that they have not ended."""

    def __init__(
        self,
        transactions: Transactions,
        store: TransactionStore,
        producers: Producers,
        topics: TopicTable,
        *,
        members: ProducerMembers,
        questions: Questions,
        rules: TransactionConfig,
        keep_hours: int,
        clock: Clock,
    ) -> None:
        self._transactions = transactions
        self._book = transactions.book
        self._store = store
        self._producers = producers
        self._members = members
        self._topics = topics
        self._questions = questions
        self._rules = rules
        self._keep_ms = max(1, keep_hours) * 3_600_000
        self._clock = clock
        self._turn = 0
        self._aside = RateLog(log, clock)
        self.sent = 0
        self.timers = (
            Timer(
                "check transactions",
                self.round,
                lambda: self._rules.interval_ms / 1000,
                rules.interval_ms / 1000,
            ),
        )

    def follow(self, rules: TransactionConfig) -> None:
        """Judge by other rules from now on."""
        self._rules = rules

    async def round(self) -> None:
        """Ask about what is due, then move the committed offsets."""
        await self._transactions.wait_loaded()
        began_ms = self._clock.steady_ms()
        topic = drafts.HALF_TOPIC
        self._book.jump(self._store.min_offset(topic, drafts.QUEUE_ID))
        end = self._store.max_offset(topic, drafts.QUEUE_ID)
        at = self._book.next_open(self._book.half_offset)
        looked = 0
        while at < end and self._clock.steady_ms() - began_ms < ROUND_MS_MAX:
            if not await self._look(at):
                break
            looked += 1
            if looked % TURN == 0:
                await give_way()
            at = self._book.next_open(at + 1)
        await self._transactions.commit_offsets()

    async def _look(self, offset: int) -> bool:
        """Do what is due for an open half message; tell whether to go on with the next."""
        if self._transactions.is_ending(offset):
            return True
        try:
            record = self._record(offset)
        except StoreFault as fault:
            if fault.kind != "corrupt":
                raise
            record = None
        if record is None:
            log.error("the half message at offset %d cannot be read and is passed over", offset)
            self._transactions.settled(offset)
            return True
        self._transactions.traffic.looked_at(drafts.GROUP, drafts.HALF_TOPIC, record.size)
        properties = props.read(record.properties)
        age_ms = self._clock.now_ms() - self._first_stored_ms(record, properties)
        verdict = judge(properties, age_ms, self._rules, self._keep_ms)
        if verdict is Verdict.STOP:
            return False
        if verdict is Verdict.DISCARD:
            return await self._put_aside(record, properties)
        if verdict is Verdict.CHECK:
            return await self._check(record, properties)
        return True

    def _record(self, offset: int) -> Record | None:
        units = self._store.units(drafts.HALF_TOPIC, drafts.QUEUE_ID, offset, 1)
        return self._store.record(*units[0][:2]) if units else None

    def _first_stored_ms(self, record: Record, properties: dict[str, str]) -> int:
        """Return when the message came: the clocks of producers say little about that."""
        first = properties.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET, "")
        if first.isascii() and first.isdigit() and len(first) <= 18:
            stored_ms = self._store.store_time(drafts.HALF_TOPIC, drafts.QUEUE_ID, int(first))
            return stored_ms if stored_ms >= 0 else record.born_timestamp
        return record.store_timestamp

    async def _put_aside(self, record: Record, properties: dict[str, str]) -> bool:
        self._topics.ensure(names.TRANS_CHECK_MAX_TIME_TOPIC, 1, READ_WRITE)
        await self._topics.persist()
        result = await self._store.put(drafts.put_aside(record), wait=False)
        if not result.status.is_stored:
            log.warning("a half message was not put aside: %s", result.status.name)
            return False
        real_topic = properties.get(props.REAL_TOPIC, "")
        self._aside.warning(
            real_topic,
            f"the half message {properties.get(props.UNIQ_KEY)} for {real_topic} was asked"
            f" about {checks_of(properties)} times and is put aside in"
            f" {names.TRANS_CHECK_MAX_TIME_TOPIC}",
        )
        self._transactions.settled(record.queue_offset)
        self._transactions.counts.opened(real_topic, -1)
        return True

    async def _check(self, record: Record, properties: dict[str, str]) -> bool:
        real_topic = properties.get(props.REAL_TOPIC, "")
        producer = self._producer(properties.get(props.PRODUCER_GROUP, ""), real_topic)
        if producer is None:
            return True
        copy = drafts.checked_copy(record, checks_of(properties) + 1)
        result = await self._store.put(copy, wait=False)
        place = record
        if result.status.is_stored:
            self._transactions.moved(record.queue_offset, result.queue_offset)
            self._transactions.traffic.moved(drafts.HALF_TOPIC, result.size)
            place = record._replace(
                queue_offset=result.queue_offset,
                physical_offset=result.physical_offset,
                store_timestamp=result.store_time,
                properties=props.write(copy.properties).encode(),
            )
        elif result.status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
            # Its checks cannot be counted: it is asked about where it lies, until it is too old.
            self._aside.warning(
                f"copy of {real_topic}",
                f"the half message {properties.get(props.UNIQ_KEY)} for {real_topic} has no room"
                " for the count of its checks",
            )
        else:
            log.warning("a half message was not copied: %s", result.status.name)
            return False
        if isinstance(producer.peer, AsksItself):
            producer.peer.ask_about(place, properties)
        else:
            self._questions.ask(producer, place, properties)
        self.sent += 1
        return True

    def _producer(self, group: str, real_topic: str) -> Client | None:
        """Choose a connected member of the group that may see the message, each in its turn."""
        present = [
            member.client
            for member in self._producers.producers(group)
            if member.client.peer.is_open and self._members.may_be_asked(member.client, real_topic)
        ]
        self._turn += 1
        return present[self._turn % len(present)] if present else None
