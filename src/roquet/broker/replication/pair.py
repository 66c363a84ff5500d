"""Replication as a part of the broker: the master's port, and the state that sends look at."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.ha.strangers import Opening
from roquet.service.lifecycle import REST_S, Timer
from roquet.store.marks import diverged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.broker.replication.slave_sync import SlaveSync
    from roquet.broker.state import BrokerState, Identity
    from roquet.ha.master import HaMaster
    from roquet.ha.slave import HaSlave

log = logging.getLogger(__name__)

_TELL_EVERY_MS = 60_000
_DIVERGED = (
    "%s: it is no copy. Nothing is copied and nothing is read here. Stop this broker, then type: %s"
)

TICK_S = 0.1
LOOK_S = 1.0
"""Between two questions for what the master has deleted."""
"""How late a connection that says nothing is ended, and how old what is shown of a slave may be."""


class MasterSide:
    """Listens for slaves while the broker is master."""

    def __init__(
        self,
        master: HaMaster,
        identity: Identity,
        state: BrokerState,
        *,
        host: str,
        port: int | None,
        replicated: Callable[[int], None],
        lapsed: Callable[[int], None],
        opening: Opening | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`port` None means the one above the main port; `replicated` hears of the watermark.

        `prepare` is called before the port opens: what only a master needs is read there.
        `opening` says whether it may open at all; None: it may.

        `lapsed` hears of an offset up to which no copy can be proven any more.
        """
        self._master = master
        self._identity = identity
        self._state = state
        self._host = host
        self._port = port
        self._replicated = replicated
        self._told = 0
        self._prepare = prepare
        self._opening = opening or Opening(True, None)
        self._bound: int | None = None
        self._listening = False
        self.timers = (
            Timer("feed slaves", self.tick, self.pause_s, TICK_S, master.alone),
            Timer("log how far slaves are behind", self.log_difference, 60, 10),
        )
        master.replicas.listen(self._changed)
        master.replicas.on_lapse(lapsed)

    async def start(self) -> None:
        """Open the port, if it may be open. Raises UsageError when it cannot be had."""
        self._prepare()
        port = self._identity.port + 1 if self._port is None else self._port
        # Slaves find it where it was before.
        port = port or self._bound or 0
        if self._opening.warning is not None:
            log.warning("%s:%d: %s", self._host, port, self._opening.warning)
        if self._opening.is_allowed:
            self._bound = self._identity.ha_port = await self._master.listen(self._host, port)
        self._listening = True
        self._look()

    async def stop(self) -> None:
        """Let go of the slaves."""
        self._listening = False
        await self._master.stop()

    async def tick(self) -> None:
        """Look at the slaves: the action of a timer."""
        await self._master.tick()
        self._look()

    def pause_s(self) -> float:
        """Return when to look again: seldom while nobody is connected."""
        return REST_S if self._master.alone.is_on else TICK_S

    async def log_difference(self) -> None:
        """Say how far slaves are behind: the action of a timer."""
        behind = self._master.behind()
        if behind is not None:
            log.info("CommitLog: slave fall behind master: %d bytes", behind)

    def _changed(self, watermark: int) -> None:
        if watermark > self._told:
            self._told = watermark
            self._replicated(watermark)
            if not self._state.lacks_slave:
                return
        if self._listening:
            self._look()

    def _look(self) -> None:
        end = self._master.log.limit
        self._state.lacks_slave = self._master.replicas.lacks_slaves(end)


class CopiedStore:
    """A slave's store as its master judges it: what is no copy is marked, and not read."""

    def __init__(self, folder: Path, state: BrokerState, clock: Clock) -> None:
        """`folder` is the store's."""
        self._folder = folder
        self._state = state
        self._clock = clock
        self._told_ms = 0

    async def start(self) -> None:
        """Take up what was known before the start. Raises OSError."""
        why = diverged.read(self._folder)
        if why is None:
            return
        if self._state.is_slave:
            self._tell(why)
        else:
            log.warning("this store was refused by a master and leads now: %s", why)
            diverged.clear(self._folder)

    async def stop(self) -> None:
        """Nothing to do."""

    def judged(self, why: str | None) -> None:
        """Hear that the log is the master's, or why it is not."""
        try:
            if why is not None:
                diverged.mark(self._folder, why)
            elif self._state.has_diverged:
                diverged.clear(self._folder)
        except OSError as error:
            log.warning("the mark of %s is not written: %s", self._folder, error)
        if why is not None:
            self._tell(why)
        elif self._state.has_diverged:
            self._state.has_diverged = False
            log.info("the log here is a copy of the master's again")

    def _tell(self, why: str) -> None:
        self._state.has_diverged = True
        now_ms = self._clock.now_ms()
        if abs(now_ms - self._told_ms) >= _TELL_EVERY_MS:
            self._told_ms = now_ms
            log.error(_DIVERGED, why, diverged.remedy(self._folder))


class SlaveSide:
    """Follows the master while the broker is a slave."""

    def __init__(
        self,
        slave: HaSlave,
        sync: SlaveSync,
        state: BrokerState,
        interval_s: float,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepare` is called before the master is looked for."""
        self._prepare = prepare
        self._forget: list[Callable[[], None]] = []
        self._slave = slave
        self._sync = sync
        self._state = state
        self.timers = (
            Timer("follow the master", self.tick, TICK_S, TICK_S),
            Timer("copy the master's tables", sync.tick, interval_s, min(interval_s, 1)),
            Timer("follow deletions", sync.look_at_deletions, LOOK_S, LOOK_S),
        )

    def on_follow(self, forget: Callable[[], None]) -> None:
        """Have `forget()` called when this broker begins to follow another one.

        What a part remembers of a time as master is out of date as soon as another broker leads:
        the same places of queues may hold other messages when this one leads again.
        """
        self._forget.append(forget)

    async def start(self) -> None:
        """Begin to follow. Raises UsageError when the TLS files cannot be used, OSError."""
        for forget in self._forget:
            forget()
        self._prepare()
        await self._slave.start()

    async def stop(self) -> None:
        """Let go of the master."""
        self._state.has_master = False
        await self._slave.stop()

    async def tick(self) -> None:
        """Look at the connection to the master: the action of a timer."""
        await self._slave.tick()
        self._state.has_master = self._slave.link is not None

    def forget(self) -> None:
        """Know no master any more: this broker is to lead."""
        self._sync.forget()
        self._slave.forget()

    def learn(self, address: str | None, ha_address: str | None) -> None:
        """Take what name servers say of the master."""
        self._sync.learn(address)
        self._slave.learn(ha_address)
