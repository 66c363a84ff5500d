"""Master and slave put together."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.remoting.admin.replication import ReplicationAdapter
from roquet.broker.replication.deletion_copies import DeletionCopies
from roquet.broker.replication.log_topics import LogTopics
from roquet.broker.replication.pair import TICK_S, CopiedStore, MasterSide, SlaveSide
from roquet.broker.replication.slave_sync import SlaveSync
from roquet.broker.replication.user_copies import UserCopies
from roquet.broker.services.admin.replication import ReplicationAdmin
from roquet.broker.wiring.security import make_client
from roquet.ha.log import StoreLog
from roquet.ha.master import Entrance, HaMaster
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.ha.slave import HaSlave
from roquet.ha.strangers import opening
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part, Timer
from roquet.store.housekeeping.lost_ends import LostEnds

if TYPE_CHECKING:
    from roquet.broker.config import BrokerConfig
    from roquet.broker.state import Identity
    from roquet.broker.wiring.base import Base
    from roquet.remoting.client import Client
    from roquet.remoting.connections.fast_ingest import FastPath


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Both sides; the duties say which of them runs."""

    identity: Identity
    client: Client
    replicas: Replicas
    master: HaMaster
    slave: HaSlave
    master_side: MasterSide
    slave_side: SlaveSide
    admin: ReplicationAdapter
    copied: CopiedStore
    log_topics: LogTopics
    lost_ends: LostEnds
    users: UserCopies | None
    """None: requests need no user."""
    sync: SlaveSync
    deletions: DeletionCopies

    def store_parts(self) -> list[Part]:
        """Return the rows that come behind the store: what is known of it as a copy."""
        return [
            # Before `log_topics`, which forgets that the log was a copy.
            Part("lost_ends", self.lost_ends, ("store", "metadata", "log_mode")),
            Part("copied_store", self.copied, ("store",)),
            Part(
                "log_topics",
                self.log_topics,
                ("store", "metadata"),
                timers=self.log_topics.timers,
            ),
        ]

    def parts(self) -> list[Part]:
        """Return the rows of the life-cycle table, to come before the registration."""
        needs = ("store", "server")
        look = Timer("forget what began anew", self.deletions.look_at_log, TICK_S, TICK_S)
        found = [
            Part("slaves", self.master_side, needs, Duty.FEEDS, self.master_side.timers),
            Part("master", self.slave_side, needs, Duty.COPIES, (*self.slave_side.timers, look)),
        ]
        if self.users is not None:
            needs = ("users", "client")
            found.append(Part("master_users", self.users, needs, Duty.COPIES, self.users.timers))
        return found

    def on_master(self, address: str | None, ha_address: str | None) -> None:
        """Hear where the master is; a broker that leads, or did until now, is told of itself."""
        if self.identity.broker_id != 0 and address != self.identity.address:
            self.slave_side.learn(address, ha_address)


def make_replicas(base: Base) -> Replicas:
    """Make the book of what slaves have."""
    return Replicas(_replica_rules(base.config))


def _replica_rules(config: BrokerConfig) -> ReplicaConfig:
    return ReplicaConfig(
        slaves=config.identity.slaves_wanted,
        timeout_s=config.ha.slave_timeout_ms / 1000,
        gap_max=config.ha.gap_max,
    )


def _read_server_tls(base: Base, master: HaMaster) -> None:
    """Read what a master shows slaves, when the broker was none at the start."""
    if master.entrance.tls is None and base.config.ha.tls:
        tls = base.config.ha.server_tls(base.clock)
        master.entrance = dataclasses.replace(master.entrance, tls=tls)


def _read_client_tls(base: Base, slave: HaSlave) -> None:
    """Read whom a slave trusts, when the broker was none at the start."""
    if slave.tls is None and base.config.ha.tls:
        slave.tls = base.config.ha.client_tls(base.clock)


def make_pair(base: Base, replicas: Replicas, path: FastPath) -> Pair:
    """Make both sides. Raises UsageError when the TLS files cannot be used."""
    config, rules = base.config, base.config.ha
    is_slave = config.identity.is_slave
    log = StoreLog(base.store, config.store)
    tls = None if is_slave else rules.server_tls(base.clock)
    entrance = Entrance(rules.secret, rules.slave_addresses, tls)
    feed = rules.feed(config.store.commit_log_file_bytes)
    master = HaMaster(log, replicas, feed, entrance=entrance, clock=base.clock)
    master.is_awaited = lambda: path.on_loop > 0
    path.begins.append(master.listen_up)
    copied = CopiedStore(config.store.folder, base.state, base.clock)
    slave = HaSlave(
        log,
        rules,
        base.clock,
        broker_id=config.identity.broker_id,
        tls=rules.client_tls(base.clock) if is_slave else None,
        judged=copied.judged,
    )
    master_side = _make_master_side(base, master, path)
    client = make_client(base)
    folder = config.store.config_folder
    log_topics = LogTopics(base.metadata.topics, base.store, base.state, folder)
    deletions = DeletionCopies(base.metadata, base.store)
    sync = SlaveSync(
        *(client, base.metadata, folder, base.state, base.clock),
        log_topics=log_topics,
        store_folder=config.store.folder,
        deletions=deletions,
    )
    slave_side = SlaveSide(
        *(slave, sync, base.state, rules.sync_interval_ms / 1000),
        prepare=lambda: _read_client_tls(base, slave),
    )
    admin = ReplicationAdmin(
        identity=base.identity,
        state=base.state,
        log=log,
        master=master,
        slave=slave,
        learn=slave_side.learn,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        base.state.waits_for_slave = new.identity.slaves_wanted > 0
        base.state.slave_timeout_ms = new.ha.slave_timeout_ms
        replicas.follow(_replica_rules(new))
        master.follow(new.ha.feed(new.store.commit_log_file_bytes))
        slave.follow(new.ha)

    base.settings.listen(follow)
    _watch(base, master)
    sides = (master_side, slave_side, ReplicationAdapter(admin, base.callers))
    users = _make_user_copies(base, client, sync)
    ends = _make_lost_ends(base, log_topics)
    shared = (base.identity, client, replicas, master, slave)
    return Pair(*shared, *sides, copied, log_topics, ends, users, sync, deletions)


def _make_lost_ends(base: Base, log_topics: LogTopics) -> LostEnds:
    tables, state = base.metadata, base.state
    ends = LostEnds(
        *(base.store, tables.topics, tables.offsets),
        is_slave=lambda: state.is_slave,
        was_slave=lambda: log_topics.is_copy,
    )
    base.metrics.watch_many(
        "offsets_set_back",
        "Committed offsets behind the end of their queue that were set back, since the start",
        "why",
        lambda: {why: float(count) for why, count in ends.set_back.items()},
        counts=True,
    )
    return ends


def _make_master_side(base: Base, master: HaMaster, path: FastPath) -> MasterSide:
    server, rules = base.config.server, base.config.ha
    above = None if server.port else 0
    host = server.bind_address or "127.0.0.1"
    return MasterSide(
        master,
        base.identity,
        base.state,
        host=host,
        port=server.ha_port or above,
        replicated=path.set_replicated,
        lapsed=path.lapse,
        opening=opening(
            host,
            has_accounts=base.guard is not None,
            knows_slaves=rules.knows_slaves,
            is_wanted=rules.open_with_accounts,
        ),
        prepare=lambda: _read_server_tls(base, master),
    )


def _watch(base: Base, master: HaMaster) -> None:
    base.metrics.watch(
        "slave_bytes_behind",
        "Bytes of the log that the best slave lacks",
        lambda: 0.0 if base.state.is_slave else float(master.behind() or 0),
    )
    base.metrics.watch(
        "refused_copies",
        "Pieces of the master's log that a slave refused: a damaged record, or no log",
        lambda: float(base.store.native.stats()["refused_copies"]),
    )


def _make_user_copies(base: Base, client: Client, sync: SlaveSync) -> UserCopies | None:
    """Make what copies a master's users; None where requests need none."""
    if base.users is None:
        return None
    copies = UserCopies(base.users, client, base.state, lambda: sync.master, base.clock)
    base.users.follow(copies)
    base.metrics.watch(
        "users_copy_age_seconds",
        "Seconds since a slave had its master's users and policies",
        lambda: copies.age_s,
    )
    return copies
