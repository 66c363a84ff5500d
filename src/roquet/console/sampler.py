"""Rates and lag over the last minutes: looked at now and then, while somebody watches.

A look costs few requests, whatever the cluster's size. Brokers of ours tell the lag of all groups
by one request; where one does not, groups take turns.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.admin import Admin
    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

EVERY_S = 5.0
_WATCHED_S = 120.0
"""So long after the last look of somebody the sampler goes on."""
_POINTS = 180
_GROUPS_A_LOOK = 20
_GROUPS_MAX = 5_000


@dataclasses.dataclass(slots=True)
class GroupSeen:
    """A group as it was when its turn came."""

    lag: int
    members: int
    time_ms: int
    points: collections.deque[tuple[int, int]] = dataclasses.field(
        default_factory=lambda: collections.deque[tuple[int, int]](maxlen=_POINTS)
    )
    """Unix milliseconds and lag, the oldest first."""


class Sampler:
    """Looks at a cluster. `tick` is the action of a timer."""

    def __init__(self, admin: Callable[[], Admin], clock: Clock) -> None:
        """Look at nothing yet."""
        self._admin = admin
        self._clock = clock
        self._watched_s = -_WATCHED_S
        self.points: collections.deque[tuple[int, float, float]] = collections.deque(maxlen=_POINTS)
        """Unix milliseconds, messages a second in and out, the oldest first."""
        self.groups: dict[str, GroupSeen] = {}
        self.known_groups = 0
        self.rounds = 0
        """How often each group has been looked at."""
        self._turn: collections.deque[str] = collections.deque()

    def watched(self) -> None:
        """Note that somebody looks."""
        self._watched_s = self._clock.steady_ms() / 1000

    @property
    def is_watched(self) -> bool:
        """Whether somebody has looked in the last minutes."""
        return self._clock.steady_ms() / 1000 - self._watched_s <= _WATCHED_S

    async def tick(self) -> None:
        """Look once, if somebody watches."""
        if not self.is_watched:
            return
        try:
            admin = self._admin()
            await self._look_at_brokers(admin)
            if not await self._look_at_all(admin):
                await self._look_at_groups(admin)
        except RoquetError as error:
            # The page says it, too: its own questions fail for the same reason.
            log.debug("nothing was sampled: %s", error)

    def see_group(self, name: str, lag: int, members: int) -> None:
        """Keep what somebody has just seen of a group."""
        now_ms = self._clock.now_ms()
        seen = self.groups.get(name)
        if seen is None:
            if len(self.groups) >= _GROUPS_MAX:
                return
            seen = self.groups[name] = GroupSeen(lag, members, now_ms)
        seen.lag, seen.members, seen.time_ms = lag, members, now_ms
        if not seen.points or now_ms - seen.points[-1][0] >= EVERY_S * 500:
            seen.points.append((now_ms, lag))

    def most_behind(self, count: int) -> list[dict[str, Any]]:
        """Return the groups that are behind most."""
        behind = [(name, it) for name, it in self.groups.items() if it.lag > 0]
        behind.sort(key=lambda row: (-row[1].lag, row[0]))
        return [
            {"group": name, "lag": it.lag, "members": it.members, "seen_ms": it.time_ms}
            for name, it in behind[:count]
        ]

    async def _look_at_brokers(self, admin: Admin) -> None:
        taken = given = 0.0
        for data in (await admin.brokers.cluster()).brokers.values():
            if data.master is None:
                continue
            try:
                found = await admin.brokers.runtime(data.master)
            except RoquetError:
                continue
            taken += rate(found, "putTps")
            given += rate(found, "getTransferredTps")
        self.points.append((self._clock.now_ms(), taken, given))

    async def _look_at_all(self, admin: Admin) -> bool:
        """Look at every group by a request to each master; tell whether all of them answered."""
        lags: dict[str, int] = {}
        members: dict[str, int] = {}
        for broker in await admin.brokers.masters():
            try:
                found = await admin.brokers.group_lags(broker)
            except RoquetError:
                return False
            if found is None:
                return False
            for name, it in found.items():
                lags[name] = lags.get(name, 0) + it.lag
                # A member is connected with every broker that it reads from.
                members[name] = max(members.get(name, 0), it.members)
        names = await admin.groups.names(system=False)
        self.known_groups = len(names)
        self._turn.clear()
        for gone in self.groups.keys() - set(names):
            del self.groups[gone]
        for name in names[:_GROUPS_MAX]:
            self.see_group(name, lags.get(name, 0), members.get(name, 0))
        self.rounds += 1
        return True

    async def _look_at_groups(self, admin: Admin) -> None:
        if not self._turn:
            names = await admin.groups.names(system=False)
            self.known_groups = len(names)
            self._turn.extend(names[:_GROUPS_MAX])
            for gone in self.groups.keys() - set(names):
                del self.groups[gone]
        for _ in range(min(_GROUPS_A_LOOK, len(self._turn))):
            name = self._turn.popleft()
            try:
                lag = await admin.groups.lag(name)
                online = await admin.groups.connection(name)
            except RoquetError:
                continue
            self.see_group(name, lag, 0 if online is None else len(online.connections))
        self.rounds += not self._turn


def rate(found: Mapping[str, str], key: str) -> float:
    """Return the first of the rates that a key of a broker's state has: that of the last 10 s."""
    try:
        return float(found.get(key, "").split()[0])
    except (IndexError, ValueError):
        return 0.0
