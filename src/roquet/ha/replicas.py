"""Which slaves have what: how an acknowledgement waits for copies (spec: ha §1.4, §1.5).

Slaves are counted, not connections: by the id that they proved to have, else by the address of
their host, so that two connections of one slave are never two copies. One look at the watermark
serves all sends that wait, however many they are.

Invariant: a send is acknowledged only for bytes that were sent on a connection that acknowledged
them, or that the slave has shown by a digest. A slave that shows none (Java's) counts from its
first report on; what waits for offsets below that report, or for a record around it, is answered
as timed out at once, and never released by what such slaves acknowledge later.

The watermark never falls, in the core's copies of it neither, and need not: while it is open a log
loses bytes only behind its last whole record (`forget_half` in the core), and a slave's report is
never beyond the whole records here. So what is appended later ends behind the watermark, whoever
led in between. A start, after which a log may be shorter, begins at 0.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import itertools
from typing import TYPE_CHECKING

from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_PROOF = "no slave has proven to have a copy"


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """How many copies an acknowledgement asks for, and how long it waits for them."""

    slaves: int = 0
    """Copies besides the master's own; 0 asks for none."""
    timeout_s: float = 3.0
    gap_max: int = 256 * 1024 * 1024
    """Bytes that a slave may be behind and still count as following."""


class Replicas:
    """The slaves of a master, and the sends that wait for them. Only the loop uses it."""

    def __init__(self, rules: ReplicaConfig) -> None:
        self._rules = rules
        self._acked: dict[object, tuple[str, int]] = {}
        self._watermark = 0
        self._waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._sequence = itertools.count()
        self._listeners: list[Callable[[int], None]] = []
        self._lapse_listeners: list[Callable[[int], None]] = []
        self._proven: set[object] = set()
        self._doubts: dict[object, int] = {}
        """Of each connection without a proof up to where that matters."""
        self.look: Callable[[], None] = _nothing
        """Brings what slaves have up to date: it is told late while nobody waits here."""
        self.begins: Callable[[], None] = _nothing
        """Hears that a send waits here."""
        self._unproven = (0, 0)
        """Offsets above the first and up to the second are nobody's by proof."""

    def follow(self, rules: ReplicaConfig) -> None:
        """Ask for other copies from now on; what waits goes on waiting as long as it was told."""
        self.look()
        asked = self._rules.slaves > 0
        self._rules = rules
        if rules.slaves and not asked:
            # Nobody waited for copies when they came.
            doubt = max(self._doubts.values(), default=0)
            if doubt > max(self._watermark, self._certain()):
                self._lapse(doubt)
        self._changed(members=True)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have `listener(watermark)` called when it rose, and when slaves came or went."""
        self._listeners.append(listener)

    def on_lapse(self, listener: Callable[[int], None]) -> None:
        """Have `listener(offset)` called when no copy up to it can be proven any more."""
        self._lapse_listeners.append(listener)

    @property
    def wanted(self) -> int:
        """How many copies besides the master's own an acknowledgement asks for."""
        return self._rules.slaves

    @property
    def is_awaited(self) -> bool:
        """Whether a send waits here, or did until lately."""
        return bool(self._waiting)

    @property
    def watermark(self) -> int:
        """Offset up to which as many slaves as are asked for have the log; it never falls."""
        return self._watermark

    def came(self, link: object, slave: str, offset: int, *, proven: bool, doubt: int = 0) -> None:
        """Note a slave's first report; `proven` when it has shown that it has the log up to it.

        Without a proof what ends up to `doubt` may begin before the report: it is in doubt as well.
        """
        self.look()
        doubt = max(offset, doubt)
        if proven:
            self._proven.add(link)
        else:
            self._doubts[link] = doubt
            if self._rules.slaves and doubt > self._watermark:
                self._lapse(doubt)
        self.acked(link, slave, offset)

    def acked(self, link: object, slave: str, offset: int) -> None:
        """Note what a connection's slave has."""
        is_new = link not in self._acked
        self._acked[link] = (slave, offset)
        # Reports that change nothing are many: heartbeats, and all where nobody waits for copies.
        moved = offset > self._watermark or self._unproven[1] > 0
        if is_new or (self._rules.slaves and moved):
            self._changed(members=is_new)

    def left(self, link: object) -> None:
        """Forget a connection. What its slave has acknowledged stays acknowledged."""
        self._proven.discard(link)
        self._doubts.pop(link, None)
        if self._acked.pop(link, None) is not None:
            self._changed(members=True)

    def by_slave(self) -> dict[str, int]:
        """Return what each slave has, by its name here."""
        best: dict[str, int] = {}
        for slave, offset in self._acked.values():
            best[slave] = max(offset, best.get(slave, 0))
        return best

    def following(self, end: int) -> int:
        """Return how many slaves are less than the gap behind `end`."""
        return sum(end - offset < self._rules.gap_max for offset in self.by_slave().values())

    def lacks_slaves(self, end: int) -> bool:
        """Tell whether a copy is asked for that no slave could make soon."""
        return self.following(end) < self._rules.slaves

    def has(self, end: int) -> bool:
        """Tell whether enough slaves have the log up to `end`, or none is asked for."""
        if self._rules.slaves == 0:
            return True
        if self._watermark < end:
            self.look()
        return self._watermark >= end and not self._is_unproven(end)

    def _is_unproven(self, end: int) -> bool:
        return self._unproven[0] < end <= self._unproven[1]

    async def copied(self, end: int) -> tuple[PutStatus, str]:
        """Wait until enough slaves have the log up to `end`; return how that went, and why."""
        if self.has(end):
            return PutStatus.PUT_OK, ""
        if self._is_unproven(end):
            return PutStatus.FLUSH_SLAVE_TIMEOUT, _NO_PROOF
        if self.lacks_slaves(end):
            return PutStatus.SLAVE_NOT_AVAILABLE, "too few slaves follow this master"
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (end, next(self._sequence), future))
        self.begins()
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                if not await future:
                    return PutStatus.FLUSH_SLAVE_TIMEOUT, _NO_PROOF
        except TimeoutError:
            return PutStatus.FLUSH_SLAVE_TIMEOUT, "no slave had a copy in time"
        return PutStatus.PUT_OK, ""

    def give_up(self, end: int) -> None:
        """Answer what waits for copies up to `end`, if they are missing, as timed out."""
        if self.has(end):
            return
        self._release(end, copied=False)
        for listener in self._lapse_listeners:
            listener(end)

    def _lapse(self, offset: int) -> None:
        """Give up what waits for offsets up to this one, which is above the watermark.

        So no slaves with a proof have it: what they have is below the watermark.
        """
        begin = self._unproven[0] if self._unproven[1] else self._watermark
        self._unproven = (begin, max(offset, self._unproven[1]))
        self._release(offset, copied=False)
        for listener in self._lapse_listeners:
            listener(offset)

    def _certain(self) -> int:
        """Return up to where as many slaves as are asked for have proven to have the log."""
        best: dict[str, int] = {}
        for link in self._proven & self._acked.keys():
            slave, offset = self._acked[link]
            best[slave] = max(offset, best.get(slave, 0))
        offsets = sorted(best.values(), reverse=True)
        return offsets[self._rules.slaves - 1] if len(offsets) >= self._rules.slaves else 0

    def _release(self, offset: int, *, copied: bool) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(copied)

    def _changed(self, *, members: bool) -> None:
        before, slaves = self._watermark, self._rules.slaves
        offsets = sorted(self.by_slave().values(), reverse=True)
        if slaves and len(offsets) >= slaves:
            self._watermark = max(self._watermark, offsets[slaves - 1])
        if slaves and self._unproven[1] and self._certain() >= self._unproven[1]:
            self._unproven = (0, 0)
        self._release(self._watermark, copied=True)
        if members or self._watermark > before:
            for listener in self._listeners:
                listener(self._watermark)


def _nothing() -> None:
    """Do nothing."""
