"""What tools ask for and change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.lanes import lane_configs
from roquet.broker.metrics.figures import Figures
from roquet.broker.remoting.admin.broker import BrokerAdapter
from roquet.broker.remoting.admin.connections import ConnectionAdapter
from roquet.broker.remoting.admin.offsets import OffsetAdminAdapter
from roquet.broker.remoting.admin.progress import ProgressAdapter
from roquet.broker.remoting.admin.queues import QueueUnitAdapter
from roquet.broker.remoting.admin.timers import TimerAdapter
from roquet.broker.remoting.admin.upkeep import UpkeepAdapter
from roquet.broker.services.admin.connections import Connections
from roquet.broker.services.admin.offsets import OffsetAdmin
from roquet.broker.services.admin.progress import Progress
from roquet.broker.services.admin.queues import QueueUnits
from roquet.broker.services.admin.runtime import Paths, RuntimeInfo
from roquet.broker.services.admin.settings import Settings
from roquet.broker.services.admin.upkeep import Upkeep
from roquet.broker.wiring.security import make_access
from roquet.protocol.command import VERSION

if TYPE_CHECKING:
    from collections.abc import Collection

    from roquet.broker.config import BrokerConfig
    from roquet.broker.messages.schedule import DelaySchedule
    from roquet.broker.network.routes import Routed
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.duties import RoleDoor
    from roquet.broker.wiring.timers import TimerParts
    from roquet.broker.wiring.transactions import TransactionParts


def make_administration(
    base: Base,
    schedule: DelaySchedule,
    transactions: TransactionParts,
    timers: TimerParts,
    duties: RoleDoor,
) -> list[Routed]:
    """Wire what tools ask for and change."""
    tables, store, config = base.metadata, base.store, base.config
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets
    runtime_info = RuntimeInfo(
        store,
        base.stats,
        base.lanes,
        paths=Paths(config.store.folder / "commitlog", config.store.folder / "consumequeue"),
        state=base.state,
        clock=base.clock,
        version=VERSION,
        delays=schedule,
        timers=timers.service,
    )
    figures = Figures(
        *(tables, base.registry, store, base.lanes),
        state=base.state,
        clock=base.clock,
        light=lambda: base.settings.config.light_topics,
    )
    figures.watch(base.metrics)
    base.stats.watch(base.metrics, figures.type_of)
    settings = base.settings
    settings.listen(lambda new, changed: _apply(base, new, changed))
    settings.listen(lambda new, _: transactions.follow(new.transactions))
    callers, identity = base.callers, base.identity
    progress = Progress(topics, offsets, base.registry, store, base.stats, clock=base.clock)
    connections = Connections(
        base.registry, topics, groups, store, messages=base.messages, access=base.access
    )
    offset_admin = OffsetAdmin(
        topics,
        groups,
        offsets,
        base.registry,
        store,
        state=base.state,
        delay_offsets=schedule.export,
        deletions=base.metadata.deletions,
    )
    return [
        ProgressAdapter(progress, callers, identity=identity, clock=base.clock),
        ConnectionAdapter(connections, callers, identity.name),
        OffsetAdminAdapter(offset_admin, callers, identity.name),
        BrokerAdapter(Settings(settings, duties.take), topics, runtime_info, callers),
        QueueUnitAdapter(QueueUnits(topics, base.registry, store, base.access), callers),
        *make_access(base),
        UpkeepAdapter(Upkeep(topics, store, base.cleaner), callers),
        TimerAdapter(timers.service),
    ]


def _apply(base: Base, config: BrokerConfig, changed: Collection[str]) -> None:
    """Let settings that changed while running take effect."""
    base.state.permission = config.identity.permission
    base.state.accept_sends_from_ms = config.identity.accept_sends_from_ms
    base.metadata.topics.follow(config.topics)
    base.metadata.groups.follow(config.groups)
    base.lanes.follow(lane_configs(config.server, config.fast_fail))
    base.store.follow(config.store.native(), config.store)
    base.cleaner.follow(config.store)
    if "brokerPermission" in changed:
        # The permission is part of what the name servers know of each topic.
        base.metadata.topics.touch()
