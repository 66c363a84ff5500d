"""What tools ask for and change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.figures import Figures
from roquet.broker.lanes import lane_configs
from roquet.broker.processors.admin.brokers import BrokerAdmin
from roquet.broker.processors.admin.clients import ClientAdmin
from roquet.broker.processors.admin.messages import QueueAdmin
from roquet.broker.processors.admin.offsets import OffsetAdmin
from roquet.broker.processors.admin.progress import ProgressAdmin
from roquet.broker.processors.admin.runtime import Paths, RuntimeInfo
from roquet.broker.processors.admin.upkeep import UpkeepAdmin
from roquet.broker.timers.recall import TimerProcessor
from roquet.broker.wiring.base import make_stamps
from roquet.broker.wiring.security import make_access
from roquet.protocol.command import VERSION

if TYPE_CHECKING:
    from collections.abc import Collection

    from roquet.broker.appender import Appender
    from roquet.broker.config import BrokerConfig
    from roquet.broker.routes import Routed
    from roquet.broker.schedule import DelaySchedule
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.timers import TimerParts
    from roquet.broker.wiring.transactions import TransactionParts


def make_administration(
    base: Base,
    schedule: DelaySchedule,
    transactions: TransactionParts,
    timers: TimerParts,
    appender: Appender,
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
    figures = Figures(tables, base.registry, store, base.lanes, state=base.state, clock=base.clock)
    figures.watch(base.metrics)
    base.stats.watch(base.metrics, figures.type_of)
    settings = base.settings
    settings.listen(lambda new, changed: _apply(base, new, changed))
    settings.listen(lambda new, _: transactions.follow(new.transactions))
    recalls = TimerProcessor(
        timers.service,
        appender,
        topics,
        rules=config.timers,
        stamps=make_stamps(base),
        state=base.state,
    )
    settings.listen(lambda new, _: timers.follow(new.timers, recalls))
    identity = base.identity
    return [
        ProgressAdmin(
            topics, offsets, base.registry, store, base.stats, identity=identity, clock=base.clock
        ),
        ClientAdmin(
            base.registry,
            topics,
            groups,
            store,
            identity=identity,
            messages=base.messages,
            rights=base.rights,
        ),
        OffsetAdmin(
            topics,
            groups,
            offsets,
            base.registry,
            store,
            identity=identity,
            state=base.state,
            delay_offsets=schedule.export,
        ),
        BrokerAdmin(settings, topics, runtime_info),
        QueueAdmin(topics, base.registry, store),
        *make_access(base),
        UpkeepAdmin(topics, store, base.cleaner),
        recalls,
    ]


def _apply(base: Base, config: BrokerConfig, changed: Collection[str]) -> None:
    """Let settings that changed while running take effect."""
    base.state.permission = config.identity.permission
    base.state.accept_sends_from_ms = config.identity.accept_sends_from_ms
    base.metadata.topics.follow(config.topics)
    base.metadata.groups.follow(config.groups)
    base.lanes.follow(lane_configs(config.server))
    base.store.follow(config.store.native(), config.store)
    base.cleaner.follow(config.store)
    if "brokerPermission" in changed:
        # The permission is part of what the name servers know of each topic.
        base.metadata.topics.touch()
