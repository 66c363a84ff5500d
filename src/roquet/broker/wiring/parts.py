"""The parts of the broker in the order they start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.installed import release
from roquet.broker.messages.light_queues import LightOffsets
from roquet.broker.wiring.duties import lookup_part, mode_part
from roquet.broker.wiring.network import (
    exporter_parts,
    make_address_lookup,
    make_endpoint,
    watch_part,
)
from roquet.broker.wiring.security import security_parts
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part, Timer
from roquet.store.housekeeping.self_check import SelfCheck
from roquet.store.light_queues import LightQueueStore
from roquet.store.marks.format import StoreFormat

if TYPE_CHECKING:
    from roquet.broker.config import BrokerConfig
    from roquet.broker.fastpath.admission import FastIngest
    from roquet.broker.messages.schedule import DelaySchedule
    from roquet.broker.network.fast_fail import FastFail
    from roquet.broker.network.ports import Listeners
    from roquet.broker.network.registration import Registration
    from roquet.broker.services.clients.heartbeats import Clients
    from roquet.broker.services.clients.queue_locks import Locks
    from roquet.broker.services.topics import Topics
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.light import LightService
    from roquet.broker.wiring.pop import PopParts, ReviveParts
    from roquet.broker.wiring.replication import Pair
    from roquet.broker.wiring.timers import TimerParts
    from roquet.broker.wiring.transactions import TransactionParts

SCAN_MIN_S = 0.1
"""Between two scans of name servers, however short a connection may take."""


def list_parts(
    base: Base,
    schedule: DelaySchedule,
    clients: Clients,
    fast_fail: FastFail,
    entrance: tuple[FastIngest, Listeners],
    *,
    locks: Locks,
    transactions: TransactionParts,
    timers: TimerParts,
    revive: ReviveParts,
    pop: PopParts,
    light: LightService,
    pair: Pair,
    registration: Registration,
    topics: Topics,
) -> list[Part]:
    """List the parts in the order they start."""
    config = base.config
    fast, listeners = entrance
    offsets_s = config.server.offsets_interval_ms / 1000
    parts = [
        Part("format", StoreFormat(config.store.folder, release())),
        Part(
            "metadata",
            base.metadata,
            needs=("format",),
            timers=(
                Timer("save topics and groups", base.metadata.persist_configs, 10, 10),
                Timer("save offsets", base.metadata.persist_offsets, offsets_s, min(offsets_s, 10)),
                Timer("save filters", base.metadata.persist_filters, 10, 10),
            ),
        ),
        _totals_part(base),
        *_store_parts(base),
        mode_part(base),
        *pair.store_parts(),
        # Before anything reads or writes topics.
        Part("begun_deletions", topics, ("store", "metadata", "log_topics")),
        Part("schedule", schedule, ("store",), Duty.DELAYS, schedule.timers),
        timers.part(),
        revive.part(),
        transactions.part(),
        Part("clients", clients, needs=("metadata",), timers=(*clients.timers, *locks.timers)),
        Part("loop_lag", base.lag),
        Part("lanes", base.lanes),
        watch_part(base),
        *pop.parts(),
        *light.parts(),
        Part("holds", base.holds, timers=(Timer("end holds", base.holds.sweep, 0.5, 0.5),)),
        _fast_fail_part(fast_fail),
        Part("client", pair.client),
        Part("fast_path", fast, needs=("store", "clients", "fast_fail"), timers=fast.timers),
        Part("server", listeners, needs=("store", "clients", "holds", "lanes", "fast_path")),
        *pair.parts(),
        # It pushes for the last time before anything that it reads has ended.
        *exporter_parts(base),
        # Above the registration, so that name servers hear of a stop before anything else ends.
        *make_address_lookup(base, registration),
        _registration_part(registration, config),
        lookup_part(base, pair, registration),
    ]
    parts[:0] = security_parts(base)
    if config.server.metrics == "PROM":
        parts.insert(0, make_endpoint(base))
    return parts


def _fast_fail_part(fast_fail: FastFail) -> Part:
    looks = (Timer("refuse what waited", fast_fail.tick, fast_fail.pause_s, 1, fast_fail.rest),)
    return Part("fast_fail", fast_fail, ("lanes", "loop_lag"), timers=looks)


def _registration_part(registration: Registration, config: BrokerConfig) -> Part:
    rounds = [
        Timer("register", registration.register, config.registration.period_s, 10),
        Timer("register again", registration.register_again, 1, 1),
    ]
    if config.registration.scans:
        scan_s = max(config.outgoing.connect_ms / 1000, SCAN_MIN_S)
        rounds.append(Timer("scan name servers", registration.scan, scan_s, scan_s))
    needs = ("server", "client")
    return Part("registration", registration, needs, timers=tuple(rounds), stop_within_s=5)


def _totals_part(base: Base) -> Part:
    days = base.stats.daily_totals
    return Part("totals", days, timers=(Timer("save totals", days.persist, 60, 60),))


def _store_parts(base: Base) -> list[Part]:
    """List the store and what keeps it in order."""
    checker = SelfCheck(base.store)
    light_offsets = LightOffsets(LightQueueStore(base.store), base.metadata.offsets)
    cleaning_s = base.config.store.clean_interval_ms / 1000
    return [
        # Recovery of a large log may take minutes, and so may the last flush.
        Part("store", base.store, needs=("metadata",), stop_within_s=60),
        Part("light_offsets", light_offsets, ("store",), Duty.POPS),
        Part(
            "cleaning",
            base.cleaner,
            needs=("store",),
            timers=(
                Timer("delete old files", base.cleaner.clean, cleaning_s, 60),
                Timer("forget offsets of light queues", light_offsets.forget, 60, 60),
            ),
        ),
        Part(
            "self_check",
            checker,
            needs=("store",),
            timers=(
                Timer("check the store's files", checker.check, 600, 60),
                Timer("tell what was passed over", checker.tell_damage, 10, 10),
            ),
        ),
    ]
