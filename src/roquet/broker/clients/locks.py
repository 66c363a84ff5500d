"""Which client may consume which queue in order: leases of a minute (spec: broker (b) 41/42).

A client that consumes in order asks again every 20 s; one that has gone stops asking, and a minute
later its queues are free. Nothing here reads a clock: the caller says what time it is, by a clock
that nobody can set. Which queues there are, and who is in the group, the caller has checked.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from roquet.model.queue import MessageQueue

LOCK_EXPIRES_MS = 60_000
"""A lease older than this may be taken by another client."""

LOCKS_MAX = 1_000_000
"""Leases held at once, all groups together; beyond it a queue is simply not granted."""

HOLDER_MAX = 65_536
"""Leases of one connection; it takes 16 of them to keep others from theirs."""


@dataclasses.dataclass(slots=True)
class _Lease:
    client_id: str
    holder: Hashable
    taken_ms: int


class QueueLocks:
    """Leases by consumer group and queue."""

    def __init__(
        self,
        expires_ms: int = LOCK_EXPIRES_MS,
        locks_max: int = LOCKS_MAX,
        holder_max: int = HOLDER_MAX,
    ) -> None:
        self._expires_ms = expires_ms
        self._locks_max = locks_max
        self._holder_max = holder_max
        self._groups: dict[str, dict[MessageQueue, _Lease]] = {}
        self._held_by: collections.Counter[Hashable] = collections.Counter()
        self._count = 0

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        now_ms: int,
        holder: Hashable = None,
    ) -> list[MessageQueue]:
        """Take or renew leases; return the queues granted, in the order asked for.

        A queue that another client holds is left out of the answer and stays with it. `holder` is
        whose number of leases is bounded: a connection.
        """
        held = self._groups.setdefault(group, {})
        mine = _Lease(client_id, holder, now_ms)
        granted = [queue for queue in queues if self._lock_one(held, queue, mine)]
        if not held:
            del self._groups[group]
        return granted

    def unlock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        holder: Hashable = None,
    ) -> None:
        """Give leases back; those of other clients, or of another `holder`, are left alone."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            lease = held.get(queue)
            if (
                lease is not None
                and lease.client_id == client_id
                and holder in (None, lease.holder)
            ):
                self._forget(held, queue)
        if not held:
            del self._groups[group]

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Tell whether a client of the group holds a lease that has not run out.

        A message that comes back to `%RETRY%` of such a group goes to the dead letters at once:
        an orderly consumer has already tried it again in place (spec: broker (b) Send, 7).
        """
        held = self._groups.get(group, {})
        return any(not self._expired(lease, now_ms) for lease in held.values())

    def sweep(self, now_ms: int) -> int:
        """Forget leases that have run out; return how many.

        Nobody can tell: an expired lease and none are granted alike. It keeps groups that have
        gone from staying in memory.
        """
        dropped = 0
        for group, held in list(self._groups.items()):
            dead = [queue for queue, lease in held.items() if self._expired(lease, now_ms)]
            for queue in dead:
                self._forget(held, queue)
            dropped += len(dead)
            if not held:
                del self._groups[group]
        return dropped

    def __len__(self) -> int:
        return self._count

    def _lock_one(
        self, held: dict[MessageQueue, _Lease], queue: MessageQueue, mine: _Lease
    ) -> bool:
        lease = held.get(queue)
        if lease is not None:
            is_mine = lease.client_id == mine.client_id
            if not is_mine and not self._expired(lease, mine.taken_ms):
                return False
            if lease.holder == mine.holder:
                lease.client_id, lease.taken_ms = mine.client_id, mine.taken_ms
                return True
        if self._held_by[mine.holder] >= self._holder_max:
            return False
        if lease is not None:
            self._forget(held, queue)
        elif self._count >= self._locks_max:
            return False
        held[queue] = dataclasses.replace(mine)
        self._held_by[mine.holder] += 1
        self._count += 1
        return True

    def _forget(self, held: dict[MessageQueue, _Lease], queue: MessageQueue) -> None:
        holder = held.pop(queue).holder
        self._count -= 1
        self._held_by[holder] -= 1
        if self._held_by[holder] <= 0:
            del self._held_by[holder]

    def _expired(self, lease: _Lease, now_ms: int) -> bool:
        return now_ms - lease.taken_ms > self._expires_ms
