"""What most parts of the broker are made of."""

from __future__ import annotations

import dataclasses
import os
import random
from typing import TYPE_CHECKING

from roquet.acl.files import AccountFiles, accounts_path
from roquet.acl.guard import Guard
from roquet.acl.needs import broker_needs
from roquet.acl.rights import EVERYBODY
from roquet.auth.guard import PolicyGuard
from roquet.auth.keeping.starting import make_users, white_lists
from roquet.auth.keeping.store import NAME as USERS_FILE
from roquet.auth.needs import broker_needs as user_needs
from roquet.base.clock import HeldClock
from roquet.broker.clients.locks import QueueLocks
from roquet.broker.clients.long_polling import LongPolling
from roquet.broker.clients.registry import Registry
from roquet.broker.lanes import lane_configs
from roquet.broker.messages.broker_properties import BrokerProperties
from roquet.broker.messages.proof import ProvenMessages
from roquet.broker.metadata import Metadata
from roquet.broker.metrics.daily_totals import DailyTotals
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.remoting.callers import Callers
from roquet.broker.services.access import Access
from roquet.broker.services.admin.settings import LiveConfig
from roquet.broker.services.topic_checks import SendChecks
from roquet.broker.state import BrokerState, Identity
from roquet.broker.wiring.hooks import load_hooks
from roquet.protocol.messages.message_id import UniqueIds
from roquet.remoting.connections.waits import KernelWaits
from roquet.remoting.tls import ServerTls
from roquet.service.exporting.config import LOG, OTLP, pairs
from roquet.service.http.health import Health
from roquet.service.lanes import Lanes
from roquet.service.lifecycle import Rest
from roquet.service.loop_lag import LoopLag
from roquet.service.metrics import Metrics
from roquet.store.housekeeping.cleaning import Cleaner
from roquet.store.plugins import find_plugins, make_store
from roquet.store.settings import FILES
from roquet.store.tables.deletions import Deletions
from roquet.store.tables.files import JsonFile
from roquet.store.tables.filters import FilterTable
from roquet.store.tables.groups import GroupTable
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.request_modes import RequestModes
from roquet.store.tables.topics import TopicTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from roquet.acl.rights import RequestGuard
    from roquet.auth.keeping.users import Users
    from roquet.base.clock import Clock
    from roquet.broker.config import BrokerConfig
    from roquet.broker.hooks import Hooks
    from roquet.store.settings import StoreConfig
    from roquet.store.store import MessageStore
    from roquet.store.tables.key_values import TableForm


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """What most parts are made of; only this module sees it whole."""

    config: BrokerConfig
    settings: LiveConfig[BrokerConfig]
    """The configuration of the moment; whoever obeys a live setting listens to it."""
    clock: Clock
    held_clock: HeldClock
    """The same, which believes no jump ahead at once: for what comes again after a time."""
    rng: random.Random
    identity: Identity
    state: BrokerState
    metadata: Metadata
    store: MessageStore
    cleaner: Cleaner
    lanes: Lanes
    registry: Registry
    locks: QueueLocks
    holds: LongPolling
    stats: BrokerStats
    metrics: Metrics
    health: Health
    rest: Rest
    """Whether nothing is asked of the broker at the moment."""
    lag: LoopLag
    waits: KernelWaits
    hooks: Hooks
    tls: ServerTls
    accounts: AccountFiles | None
    """None: requests need no account of `plain_acl.yml`."""
    users: Users | None
    """None: requests need no user of access control 2.0."""
    guard: RequestGuard | None
    """What looks at requests, by these accounts or these users; None: everybody may do all."""
    access: Access
    """The same for services."""
    callers: Callers
    """Who sent a frame."""
    messages: ProvenMessages
    """The one way to read what a request names by its place in the log."""


def make_base(config: BrokerConfig, clock: Clock, rng: random.Random) -> Base:
    """Make what most parts share: tables, store, lanes, statistics, the identity."""
    rules, held_clock = config.identity, HeldClock(clock)
    folder = config.store.config_folder
    node = {"cluster": rules.cluster, "node_type": "broker", "node_id": rules.name}
    if config.exporter.in_delta and config.server.metrics in {OTLP, LOG}:
        node["aggregation"] = "delta"
    shown = config.exporter
    metrics = Metrics(node, pairs(shown.labels), shown.rows_max, config.families.off())
    lanes = Lanes(lane_configs(config.server, config.fast_fail), clock)
    metrics.watch_lanes(lanes)
    stats = BrokerStats(
        rules.cluster, clock, DailyTotals(clock, JsonFile(folder / "brokerStats.json"))
    )
    # Numbers of its own: which pulls are held where must not change what else is drawn.
    holds = LongPolling(clock, random.Random(rng.getrandbits(64)), config.server.holds_max)  # noqa: S311
    metrics.watch("held_pulls", "Pulls that wait for a message", lambda: float(len(holds)))
    rest = Rest()
    lag = LoopLag(metrics, rest)
    store = make_store(config.store.native(), config.store, find_plugins(config.plugins))
    accounts = make_accounts(config, clock)
    users = make_users(config.auth, accounts_file(config), folder / USERS_FILE, clock)
    guard = make_guard(config, accounts, users)
    rights = guard or EVERYBODY
    return Base(
        config=config,
        settings=LiveConfig(config, config.file),
        clock=clock,
        held_clock=held_clock,
        rng=rng,
        identity=Identity(
            cluster=rules.cluster,
            name=rules.name,
            broker_id=rules.broker_id,
            ip=rules.ip1 or "127.0.0.1",
            ha_ip=rules.ip2 or rules.ip1 or "127.0.0.1",
            port=config.server.port,
            ha_port=config.server.ha_port,
        ),
        state=BrokerState(
            permission=rules.permission,
            accept_sends_from_ms=rules.accept_sends_from_ms,
            is_slave=rules.is_slave,
            waits_for_slave=rules.slaves_wanted > 0,
            slave_timeout_ms=config.ha.slave_timeout_ms,
            lacks_slave=rules.slaves_wanted > 0,
        ),
        metadata=_make_metadata(config, clock, held_clock),
        store=store,
        cleaner=Cleaner(store, config.store, clock, JsonFile(folder / "cleaningTime.json")),
        lanes=lanes,
        registry=Registry(config.clients.expire_ms),
        locks=QueueLocks(),
        holds=holds,
        stats=stats,
        metrics=metrics,
        health=Health(("registered",)),
        rest=rest,
        lag=lag,
        waits=KernelWaits(lag.look, lag.denied_ms),
        hooks=load_hooks(),
        tls=ServerTls(config.tls, clock),
        accounts=accounts,
        users=users,
        guard=guard,
        access=Access(rights),
        callers=Callers(rights),
        messages=ProvenMessages(store, clock),
    )


def _make_metadata(config: BrokerConfig, clock: Clock, held_clock: HeldClock) -> Metadata:
    """Make the tables; a broker with light queues knows every name of such a queue or group."""
    light = config.store.has_light_queues
    topics = table_form(config.store, "topics.json")
    groups = table_form(config.store, "subscriptionGroup.json")
    return Metadata(
        TopicTable(topics, config.topics, clock, light_queues=light),
        GroupTable(groups, config.groups, clock, light_queues=light),
        _make_offsets(config, clock),
        FilterTable(table_form(config.store, "consumerFilter.json"), clock),
        RequestModes(table_form(config.store, "messageRequestMode.json")),
        # They are compared with the times of pops.
        Deletions(JsonFile(config.store.config_folder / "roquetDeletions.json"), held_clock),
    )


def table_form(settings: StoreConfig, name: str) -> TableForm:
    """Return the form in which a table is kept: `storeType` says which."""
    forms: Mapping[str, Callable[[Path], TableForm]] = {FILES: JsonFile}
    return forms[settings.store_type](settings.config_folder / name)


def _make_offsets(config: BrokerConfig, clock: Clock) -> OffsetTable:
    """Make the table of offsets; a broker with light queues has its file under another name."""
    forms = [
        table_form(config.store, name) for name in ("consumerOffset.json", "lmqConsumerOffset.json")
    ]
    light = config.store.light_queues
    return OffsetTable(forms[light], clock, other_file=forms[not light], light_queues=light)


def make_accounts(config: BrokerConfig, clock: Clock) -> AccountFiles | None:
    """Make the accounts; None when requests need none."""
    if not config.acl.enabled:
        return None
    return AccountFiles(accounts_path(config.acl, config.file), clock)


def accounts_file(config: BrokerConfig) -> Path | None:
    """Return the file of accounts that become users at the start; None where none do."""
    return accounts_path(config.acl, config.file) if config.auth.migrate else None


def make_guard(
    config: BrokerConfig, accounts: AccountFiles | None, users: Users | None
) -> RequestGuard | None:
    """Make what looks at each request before it is carried out."""
    if users is not None:
        unsigned, unchecked = white_lists(config.auth)
        needs = user_needs(config.identity.cluster)
        return PolicyGuard(users, needs, unsigned=unsigned, unchecked=unchecked)
    return None if accounts is None else Guard(accounts, broker_needs)


def make_broker_properties(base: Base) -> BrokerProperties:
    """Make what is written into each message that arrives."""
    identity = base.identity
    unique_ids = UniqueIds(identity.store_host[:-4], os.getpid(), base.rng.getrandbits(32))
    broker_properties = BrokerProperties(identity, base.config.send, unique_ids, base.clock)
    base.settings.listen(lambda new, _: broker_properties.follow(new.send))
    return broker_properties


def make_checks(base: Base) -> SendChecks:
    """Make the checks that sends of all kinds go through."""
    return SendChecks(base.metadata.topics, base.state, base.identity, base.clock)
