"""Half messages, their ends, and the rounds of checks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.acl.rights import EVERYBODY
from roquet.base.clock import HeldClock
from roquet.broker.remoting.transactions import ProducerQuestions
from roquet.broker.services.transactions import HalfDoor, TransactionEnds
from roquet.broker.transactions.checks import TransactionChecks
from roquet.broker.transactions.counts import TransactionCounts
from roquet.broker.transactions.members import ProducerMembers
from roquet.broker.transactions.service import Transactions
from roquet.broker.wiring.base import make_checks
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part
from roquet.store.tables.files import JsonFile

if TYPE_CHECKING:
    from roquet.broker.messages.appender import Appender
    from roquet.broker.transactions.verdict import TransactionConfig
    from roquet.broker.wiring.base import Base


@dataclasses.dataclass(slots=True)
class LiveTransactionConfig:
    """The settings of the moment."""

    now: TransactionConfig

    def __call__(self) -> TransactionConfig:
        """Return them."""
        return self.now


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionParts:
    """What transactions are made of."""

    service: Transactions
    checks: TransactionChecks
    ends: TransactionEnds
    door: HalfDoor
    rules: LiveTransactionConfig

    def part(self) -> Part:
        """Return the row of the life-cycle table."""
        timers = (*self.service.timers, *self.checks.timers)
        return Part("transactions", self.service, ("store",), Duty.CHECKS, timers)

    def follow(self, rules: TransactionConfig) -> None:
        """Go by other settings from now on."""
        self.rules.now = rules
        self.checks.follow(rules)
        self.service.follow(rules)


def make_transactions(base: Base, appender: Appender) -> TransactionParts:
    """Wire what transactions are made of."""
    rules, offsets = base.config.transactions, base.metadata.offsets
    counts = TransactionCounts(
        JsonFile(base.config.store.config_folder / "transactionMetrics"), base.clock
    )
    counts.watch(base.metrics)
    service = Transactions(
        base.store,
        appender,
        offsets,
        counts,
        identity=base.identity,
        rules=rules,
        clock=base.clock,
        traffic=base.stats,
    )
    members = ProducerMembers(base.registry, base.guard or EVERYBODY)
    checks = TransactionChecks(
        service,
        base.store,
        base.registry,
        base.metadata.topics,
        members=members,
        questions=ProducerQuestions(base.identity.name),
        rules=rules,
        keep_hours=base.config.store.reserved_hours,
        clock=HeldClock(base.clock),
    )
    live = LiveTransactionConfig(rules)
    ends = TransactionEnds(
        service,
        base.store,
        base.stats,
        rules=live,
        state=base.state,
        clock=base.clock,
        body_max=base.config.send.message_size_max,
        messages=base.messages,
        members=members,
        access=base.access,
    )
    base.settings.listen(lambda new, _: ends.follow_size(new.send.message_size_max))
    return TransactionParts(service, checks, ends, HalfDoor(live, make_checks(base), service), live)
