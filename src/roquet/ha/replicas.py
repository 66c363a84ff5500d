"""Which slaves have what: how an acknowledgement waits for copies (spec: ha §1.4, §1.5).

Slaves are counted, not connections: by the id that they proved to have, else by the address of
their host, so that two connections of one slave are never two copies. One look at the watermark
serves all sends that wait, however many they are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from typing import TYPE_CHECKING

from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaRules:
    """How many copies an acknowledgement asks for, and how long it waits for them."""

    slaves: int = 0
    """Copies besides the master's own; 0 asks for none."""
    timeout_s: float = 3.0
    gap_max: int = 256 * 1024 * 1024
    """Bytes that a slave may be behind and still count as following."""


class Replicas:
    """The slaves of a master, and the sends that wait for them. Only the loop uses it."""

    def __init__(self, rules: ReplicaRules) -> None:
        self._rules = rules
        self._acked: dict[object, tuple[str, int]] = {}
        self._watermark = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sequence = 0
        self._listeners: list[Callable[[int], None]] = []

    def listen(self, listener: Callable[[int], None]) -> None:
        """Have `listener(watermark)` called when it rose, and when slaves came or went."""
        self._listeners.append(listener)

    @property
    def wanted(self) -> int:
        """How many copies besides the master's own an acknowledgement asks for."""
        return self._rules.slaves

    @property
    def watermark(self) -> int:
        """Offset up to which as many slaves as are asked for have the log; it never falls."""
        return self._watermark

    def acked(self, link: object, slave: str, offset: int) -> None:
        """Note what a connection's slave has."""
        is_new = link not in self._acked
        self._acked[link] = (slave, offset)
        # Reports that change nothing are many: heartbeats, and all where nobody waits for copies.
        if is_new or (self._rules.slaves and offset > self._watermark):
            self._changed(members=is_new)

    def left(self, link: object) -> None:
        """Forget a connection. What its slave has acknowledged stays acknowledged."""
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
        return self._rules.slaves == 0 or self._watermark >= end

    async def copied(self, end: int) -> tuple[PutStatus, str]:
        """Wait until enough slaves have the log up to `end`; return how that went, and why."""
        if self.has(end):
            return PutStatus.PUT_OK, ""
        if self.lacks_slaves(end):
            return PutStatus.SLAVE_NOT_AVAILABLE, "too few slaves follow this master"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._waiting, (end, self._sequence, future))
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                await future
        except TimeoutError:
            return PutStatus.FLUSH_SLAVE_TIMEOUT, "no slave had a copy in time"
        return PutStatus.PUT_OK, ""

    def _changed(self, *, members: bool) -> None:
        before, slaves = self._watermark, self._rules.slaves
        offsets = sorted(self.by_slave().values(), reverse=True)
        if slaves and len(offsets) >= slaves:
            self._watermark = max(self._watermark, offsets[slaves - 1])
        while self._waiting and self._waiting[0][0] <= self._watermark:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if members or self._watermark > before:
            for listener in self._listeners:
                listener(self._watermark)
