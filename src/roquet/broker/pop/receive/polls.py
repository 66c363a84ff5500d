"""Long polling of POP: requests that found nothing wait here for a message or for their end.

A poll waits under (topic, group, queue id), where queue id -1 stands for all queues. An arrival
wakes one poll of each group: of those for all queues and of those for the queue itself. A poll that
takes messages and leaves some wakes the next. Polls of a group are also woken by its pop retry
topics. The number of polls is bounded, of one key and of all.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import dataclasses
import enum
import heapq
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.protocol.pop.topics import ALL_QUEUES, pop_retry_topic
from roquet.service.background import give_way

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from roquet.base.clock import Clock
    from roquet.remoting.router import Peer

log = logging.getLogger(__name__)

EXPIRES_EARLY_MS = 50
"""A poll ends so much before its client gives up."""
WAKES_PER_TURN = 64
"""Polls served in one go before other work of the loop gets its turn."""
SPARE_DEADLINES = 64
LOOKS_AGAIN_S = 1.0
"""While polls wait, the clock is asked so often at least: it may be set."""
LOOKS_MAX = 8
"""Polls of a key whose filters are tried on one arrival."""

Key = tuple[str, str, int]


class Waiting(enum.Enum):
    """What became of a poll that found nothing."""

    HELD = "held"
    FULL = "full"
    LATE = "late"


class Limits(Protocol):
    """How many polls may wait."""

    @property
    def held_of_key(self) -> int:
        """Polls of one key."""
        ...

    @property
    def held_max(self) -> int:
        """Polls of all keys together."""
        ...

    @property
    def force_interval(self) -> int:
        """Every so many messages of a queue wake a poll whatever its filter; 0: never."""
        ...


class Held(Protocol):
    """One waiting request, whoever keeps it. `resume` has it tried again."""

    done: bool
    """Whether it waits no more; false at first."""

    @property
    def topic(self) -> str:
        """The topic of the messages that it waits for."""
        ...

    @property
    def group(self) -> str:
        """The group that it is of."""
        ...

    @property
    def key(self) -> Key:
        """What it waits under."""
        ...

    @property
    def peer(self) -> Peer:
        """Who waits."""
        ...

    @property
    def expires_ms(self) -> int:
        """When its client gives up, Unix milliseconds."""
        ...

    @property
    def matches(self) -> Callable[[int, int, int], bool] | None:
        """Tells of (queue, begin, end) whether a message from `begin` up to `end` may be for it."""
        ...

    @property
    def resume(self) -> Callable[[], None]:
        """Has it tried again."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class Poll:
    """A waiting request with what to do of its own (`Held`)."""

    topic: str
    group: str
    queue_id: int
    peer: Peer
    expires_ms: int
    resume: Callable[[], None]
    matches: Callable[[int, int, int], bool] | None = None
    done: bool = False

    @property
    def key(self) -> Key:
        """What it waits under."""
        return self.topic, self.group, self.queue_id


class _Entry(NamedTuple):
    expires_ms: int
    sequence: int
    poll: Held


class PopPolls:
    """The waiting requests of one kind."""

    def __init__(self, clock: Clock, limits: Limits, *, newest_first: bool = False) -> None:
        """`newest_first`: a wake takes the poll that expires last instead of first."""
        self._clock = clock
        self._limits = limits
        self._newest_first = newest_first
        self._by_key: dict[Key, list[_Entry]] = {}
        self._groups: dict[str, collections.Counter[str]] = {}
        self._retries: dict[str, tuple[str, str]] = {}
        self._ends: dict[str, dict[int, int]] = {}
        self._by_peer: dict[int, set[Held]] = {}
        self._deadlines: list[_Entry] = []
        self._due: collections.deque[Held] = collections.deque()
        self._gone: collections.deque[Key] = collections.deque()
        """Keys whose polls are all to be served: their topic or group was deleted."""
        self._serves = False
        """Whether `_serve` runs in the next turn of the loop."""
        self.begins: Callable[[], None] = lambda: None
        """Hears that a request has begun to wait where none did."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._sequence = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def follow(self, limits: Limits) -> None:
        """Go by other limits from now on; polls that wait stay."""
        self._limits = limits

    async def start(self) -> None:
        """Serve wakes on the running loop."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Forget every poll: the connections have been closed."""
        self._loop = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for entries in list(self._by_key.values()):
            for entry in list(entries):
                self._forget(entry)
        self._due.clear()
        self._gone.clear()
        self._deadlines.clear()

    async def release(self) -> None:
        """Serve every poll now, whether its time is over or not; returns when all were."""
        for entries in list(self._by_key.values()):
            for entry in list(entries):
                self._make_due(entry)
        while self._due and self._loop is not None:
            await give_way()

    def room(self, key: Key, expires_ms: int) -> Waiting | None:
        """Return why a request could not wait under a key until then; None: it could."""
        if self._count >= self._limits.held_max:
            return Waiting.FULL
        if self._clock.now_ms() > expires_ms - EXPIRES_EARLY_MS:
            return Waiting.LATE
        is_crowded = len(self._by_key.get(key, ())) > self._limits.held_of_key
        return Waiting.FULL if is_crowded else None

    def hold(self, poll: Held) -> Waiting:
        """Let a request wait, unless its time is over or there is no room."""
        key = poll.key
        refused = self.room(key, poll.expires_ms)
        if refused is not None or not poll.peer.is_open:
            return refused or Waiting.LATE
        entries = self._by_key.setdefault(key, [])
        self._sequence += 1
        entry = _Entry(poll.expires_ms, self._sequence, poll)
        bisect.insort(entries, entry)
        self._count += 1
        if len(self._deadlines) > 2 * self._count + SPARE_DEADLINES:
            # Polls that were woken long before their time would pile up here.
            self._deadlines = [old for old in self._deadlines if not old.poll.done]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, entry)
        self._by_peer.setdefault(poll.peer.key, set()).add(poll)
        groups = self._groups.setdefault(poll.topic, collections.Counter())
        groups[poll.group] += 1
        if groups[poll.group] == 1:
            for v2 in (False, True):
                retry = pop_retry_topic(poll.topic, poll.group, v2=v2)
                self._retries[retry] = poll.topic, poll.group
        self._set_alarm()
        if self._count == 1:
            self.begins()
        return Waiting.HELD

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many polls wait under a key."""
        return len(self._by_key.get((topic, group, queue_id), ()))

    def arrived(self, topic: str, queue_id: int, end: int) -> None:
        """Wake one poll of each group for messages of a queue, which now ends at `end`."""
        of_retry = self._retries.get(topic)
        if of_retry is not None:
            self.wake(*of_retry, ALL_QUEUES)
            self.wake(*of_retry, queue_id)
        groups = self._groups.get(topic)
        if groups is None:
            return
        ends = self._ends.setdefault(topic, {})
        begin = ends.get(queue_id, end - 1)
        ends[queue_id] = end
        begin = min(begin, end - 1)
        every = self._limits.force_interval
        forced = every > 0 and (end - 1) // every != (begin - 1) // every
        for group in list(groups):
            for key in ((topic, group, ALL_QUEUES), (topic, group, queue_id)):
                self._wake_one(key, None if forced else (queue_id, begin, end))

    def wake(self, topic: str, group: str, queue_id: int) -> bool:
        """Wake one poll of a key, whatever its filter; return whether there was one."""
        return self._wake_one((topic, group, queue_id), None)

    def expire(self) -> None:
        """Wake the polls whose time is over."""
        now_ms = self._clock.now_ms()
        while self._deadlines:
            entry = self._deadlines[0]
            if not entry.poll.done:
                if now_ms <= entry.expires_ms - EXPIRES_EARLY_MS:
                    break
                self._make_due(entry)
            heapq.heappop(self._deadlines)
        self._set_alarm()

    def drop_peer(self, peer: Peer) -> None:
        """Forget the polls of a connection that closed."""
        gone = self._by_peer.get(peer.key, set())
        for key in {poll.key for poll in gone}:
            for entry in [one for one in self._by_key.get(key, ()) if one.poll in gone]:
                self._forget(entry)

    def leave(self, poll: Held) -> None:
        """Forget a poll that nobody waits for any more; one that was woken is forgotten already."""
        for entry in [one for one in self._by_key.get(poll.key, ()) if one.poll is poll]:
            self._forget(entry)

    def topics_gone(self, topics: Collection[str]) -> None:
        """Serve the polls of topics that were deleted, which are refused then; some a turn."""
        if any(topic in self._groups for topic in topics):
            self._serve_keys(key for key in self._by_key if key[0] in topics)

    def groups_gone(self, groups: Collection[str]) -> None:
        """Do the same for groups that were deleted."""
        if any(group in of_topic for group in groups for of_topic in self._groups.values()):
            self._serve_keys(key for key in self._by_key if key[1] in groups)

    def _serve_keys(self, keys: Iterable[Key]) -> None:
        self._gone.extend(keys)
        self._serve_soon()

    def _wake_one(self, key: Key, news: tuple[int, int, int] | None) -> bool:
        entries = self._by_key.get(key)
        if not entries:
            return False
        order = reversed(entries) if self._newest_first else iter(entries)
        for looks, entry in enumerate(order):
            poll = entry.poll
            if news is None or poll.matches is None or poll.matches(*news):
                self._make_due(entry)
                return True
            if looks + 1 >= LOOKS_MAX:
                break
        return False

    def _set_alarm(self) -> None:
        """See to it that `expire` runs when the next poll ends; without polls nothing runs."""
        if self._loop is None or not self._deadlines:
            return
        left_ms = self._deadlines[0].expires_ms - EXPIRES_EARLY_MS + 1 - self._clock.now_ms()
        at = self._loop.time() + min(max(left_ms, 1) / 1000, LOOKS_AGAIN_S)
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.expire()

    def _make_due(self, entry: _Entry) -> None:
        self._forget(entry)
        self._due.append(entry.poll)
        self._serve_soon()

    def _serve_soon(self) -> None:
        if self._loop is not None and not self._serves:
            self._serves = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._serves = False
        if self._gone and not self._due:
            for entry in reversed(self._by_key.get(self._gone.popleft(), ())):
                self._make_due(entry)
        for _ in range(min(WAKES_PER_TURN, len(self._due))):
            poll = self._due.popleft()
            try:
                poll.resume()
            except Exception:
                log.exception("a poll of %s for group %s failed", poll.topic, poll.group)
        if self._due or self._gone:
            self._serve_soon()

    def _forget(self, entry: _Entry) -> None:
        poll = entry.poll
        assert not poll.done, "a poll is forgotten once"
        poll.done = True
        self._count -= 1
        entries = self._by_key[poll.key]
        del entries[bisect.bisect_left(entries, entry)]
        if not entries:
            del self._by_key[poll.key]
        of_peer = self._by_peer[poll.peer.key]
        of_peer.discard(poll)
        if not of_peer:
            del self._by_peer[poll.peer.key]
        groups = self._groups[poll.topic]
        groups[poll.group] -= 1
        if groups[poll.group]:
            return
        del groups[poll.group]
        for v2 in (False, True):
            self._retries.pop(pop_retry_topic(poll.topic, poll.group, v2=v2), None)
        if not groups:
            del self._groups[poll.topic]
            self._ends.pop(poll.topic, None)
