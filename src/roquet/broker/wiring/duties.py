"""What changes the broker's duties while it runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.broker.replication.duties import Duties, Role
from roquet.broker.replication.hands import LANES, BrokerHands
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part, Timer
from roquet.store.marks.ownership import follow_another, lead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.broker.config import BrokerConfig
    from roquet.broker.network.registration import Registration
    from roquet.broker.services.sequences.service import SequencedSends
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.pop import PopParts
    from roquet.broker.wiring.replication import Pair


@dataclasses.dataclass(slots=True)
class RoleDoor:
    """The operators' door: `brokerRole` and `brokerId` of a change of settings."""

    duties: Duties | None = None

    async def take(self, changes: Mapping[str, str]) -> Sequence[str]:
        """Take the role that the settings say; return what went wrong all the same.

        Raises UsageError, ChangeFailed.
        """
        assert self.duties is not None, "the broker is built whole"
        now = self.duties.role
        name = changes.get("brokerRole", now.name).strip()
        default = now.broker_id if name in {now.name, "SLAVE"} else 0
        text = changes.get("brokerId", str(default)).strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 10):
            raise UsageError(f"brokerId = {text[:40]!r}: must be a whole number")
        if name == "SLAVE" and int(text) == 0:
            raise UsageError("brokerRole = 'SLAVE': give brokerId as well, it must be > 0")
        return (await self.duties.become(Role(name, int(text)))).notes


class LogMode:
    """Gives the log its role when the store has been opened. A service."""

    def __init__(self, base: Base) -> None:
        self._base = base

    async def start(self) -> None:
        """Make the log this broker's own, or a copy. Raises StoreFault."""
        if self._base.state.is_slave:
            follow_another(self._base.store)
        else:
            await lead(self._base.store)

    async def stop(self) -> None:
        """Leave it as it is: the store closes next."""


def mode_part(base: Base) -> Part:
    """Return the row of the life-cycle table, to come behind the store."""
    return Part("log_mode", LogMode(base), ("store",))


class MasterLookup:
    """Asks name servers who the master is, while a slave does not know. A service."""

    def __init__(self, pair: Pair, registration: Registration) -> None:
        self._pair = pair
        self._registration = registration

    async def start(self) -> None:
        """Need nothing."""

    async def stop(self) -> None:
        """Have nothing to give back."""

    async def look(self) -> None:
        """Register, which is answered with the master's addresses: the action of a timer."""
        if self._pair.slave.address is None:
            await self._registration.register()


def lookup_part(base: Base, pair: Pair, registration: Registration) -> Part:
    """Return the row of the life-cycle table, to come behind the registration."""
    lookup = MasterLookup(pair, registration)
    every_s = base.config.ha.reconnect_ms / 1000
    timer = Timer("look for the master", lookup.look, every_s, every_s)
    return Part("master_lookup", lookup, ("registration",), Duty.COPIES, (timer,))


def make_duties(
    base: Base,
    pair: Pair,
    registration: Registration,
    pop: PopParts,
    sequenced: SequencedSends,
) -> Duties:
    """Wire `grant`."""
    for forget in (sequenced.forget_all, *pop.forget):
        pair.slave_side.on_follow(forget)
    rules = base.config.identity

    async def take_up(role: Role) -> None:
        def changed(config: BrokerConfig) -> BrokerConfig:
            identity = dataclasses.replace(
                config.identity, role=role.name, broker_id=role.broker_id
            )
            return dataclasses.replace(config, identity=identity)

        await base.settings.replace(changed)
        pair.slave.broker_id = role.broker_id

    hands = BrokerHands(
        store=base.store,
        folder=base.config.store.folder,
        state=base.state,
        identity=base.identity,
        lanes={name: base.lanes[name] for name in LANES},
        master=pair.master,
        log_topics=pair.log_topics,
        ends=pair.lost_ends,
        settings=base.settings,
        registers=registration,
        clock=base.clock,
        take_up=take_up,
        copy_last=pair.sync.copy_last,
        look_at_log=pair.deletions.look_at_log,
        forget_master=pair.slave_side.forget,
        release=pop.release,
    )
    duties = Duties(hands, Role(rules.role, rules.broker_id), base.health)
    base.metrics.watch(
        "duty_changes", "Changes of the broker's duties", lambda: float(duties.changes)
    )
    base.metrics.watch(
        "duty_change_failures",
        "Changes of the broker's duties that failed",
        lambda: float(duties.failures),
    )
    return duties
