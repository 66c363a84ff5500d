"""The steps of a change of duties that are not about parts of the life-cycle table."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.store.marks import diverged
from roquet.store.marks.ownership import follow_another, lead

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.broker.replication.duties import Role
    from roquet.broker.replication.log_topics import LogTopics
    from roquet.broker.state import BrokerState, Identity
    from roquet.ha.master import HaMaster
    from roquet.store.store import MessageStore

log = logging.getLogger(__name__)

LOOK_S = 0.005
ANNOUNCE_S = 3.0
"""How long a change waits for name servers; the next registration tells them in any case."""
SPARE_MS = 2_000
"""How long requests under way may take beyond what a send may wait for its copies."""
LANES = ("send", "ack", "reply", "end_transaction")
"""The requests of these append messages."""


class Busy(Protocol):
    """The requests of one family."""

    @property
    def running(self) -> int:
        """How many have begun and not ended."""
        ...


class Registers(Protocol):
    """Tells name servers of the broker."""

    async def register(self) -> None:
        """Register now."""
        ...


class Ends(Protocol):
    """Knows how far groups are, and where queues end."""

    async def mend(self) -> None:
        """Set offsets back that are behind the end of their queue. Raises StoreFault, OSError."""
        ...


class Notes(Protocol):
    """Where settings are written down."""

    async def write(self, texts: Mapping[str, str]) -> None:
        """Write settings down for the next start. Raises OSError, UsageError."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHands:
    """What a change of duties does to a broker, beside starting and stopping its parts."""

    store: MessageStore
    folder: Path
    """The store's."""
    state: BrokerState
    identity: Identity
    lanes: Mapping[str, Busy]
    master: HaMaster
    log_topics: LogTopics
    ends: Ends
    settings: Notes
    registers: Registers
    clock: Clock
    take_up: Callable[[Role], Awaitable[None]]
    """Lets the settings of a role take effect."""
    copy_last: Callable[[], Awaitable[None]]
    """Copies the tables of the last master once more, if it still answers."""
    look_at_log: Callable[[], Awaitable[None]]
    """Forgets the offsets of topics that began anew in what was copied."""
    forget_master: Callable[[], None]
    release: Callable[[], Awaitable[None]]
    """Answers the requests that wait for messages as only a master may."""

    def why_not(self, role: Role) -> str | None:
        """Return why the broker may not have a role now."""
        if role.broker_id == 0 and self.state.is_slave and self.state.has_diverged:
            why = diverged.read(self.folder) or "it is no copy of its master's"
            return f"the log here is not to lead: {why}; {diverged.remedy(self.folder)}"
        return None

    async def note(self, role: Role) -> None:
        """Write the role down durably, if there is a file of settings."""
        await self.settings.write({"brokerRole": role.name, "brokerId": str(role.broker_id)})

    async def announce(self, role: Role) -> None:
        """Register under the role's id: name servers keep an address under one id only."""
        self.identity.broker_id = role.broker_id
        try:
            async with asyncio.timeout(ANNOUNCE_S):
                await self.registers.register()
        except TimeoutError:
            log.warning("name servers do not know yet that this broker is %s", role.name)

    def close(self) -> None:
        """Refuse what clients send; the rows of the fast path go in the same step."""
        self.state.is_slave = True

    async def drain(self) -> list[str]:
        """Answer what was taken: durable, and copied as far as that is asked for and goes."""
        await self.release()
        end = self.store.end_offset()
        await self.store.flush()
        limit_ms = self.state.slave_timeout_ms + SPARE_MS
        replicas = self.master.replicas

        def is_answered() -> bool:
            return replicas.has(end) and not any(self.lanes[name].running for name in LANES)

        if await self._wait(is_answered, limit_ms):
            return []
        replicas.give_up(self.store.end_offset())
        running = ", ".join(f"{self.lanes[name].running} of {name}" for name in LANES)
        return [f"answers are outstanding ({running}); what has no copy was answered as timed out"]

    def fence(self) -> None:
        """Make the log a copy: nobody appends to it any more."""
        follow_another(self.store)

    async def hand_over(self) -> list[str]:
        """Wait until the best slave has the end of the log, if there is one."""
        await self.store.flush()

        def is_over() -> bool:
            return not self.master.behind()

        if await self._wait(is_over, self.state.slave_timeout_ms):
            return []
        return [f"no slave has the last {self.master.behind()} bytes of the log"]

    async def lead(self) -> None:
        """Make the log this broker's own, and the topics that only the log knows."""
        await self.copy_last()
        self.forget_master()
        await lead(self.store)
        # The end of the log is in the queues only now.
        await self.look_at_log()
        await self.log_topics.settle(leads=True)
        # What groups committed at the last master may be ahead of what came here.
        await self.ends.mend()

    async def adopt(self, role: Role) -> None:
        """Let the settings of a role take effect."""
        await self.take_up(role)
        if role.broker_id != 0:
            await self.log_topics.settle(leads=False)
        # What a master finds out by looking at its slaves is true from its first look on.
        self.state.lacks_slave = self.state.waits_for_slave

    def open(self) -> None:
        """Take what clients send; the rows of the fast path follow."""
        self.state.is_slave = False

    async def _wait(self, holds: Callable[[], bool], limit_ms: int) -> bool:
        """Wait until something holds; False when it does not within the limit."""
        end_ms = self.clock.steady_ms() + limit_ms
        while not holds():
            if self.clock.steady_ms() >= end_ms:
                return False
            await self.clock.sleep(LOOK_S)
        return True
