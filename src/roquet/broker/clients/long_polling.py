"""Long polling: pulls that found nothing wait here for a message or for their time to end.

A held pull is no work in hand: its handler has returned. It is woken when the queue has grown past
its offset and, when it filters by tag, a new message matches; or by the sweep once its deadline has
passed. Deadlines are moved by up to a tenth, so that consumers which came together do not go
together. The number of held pulls is bounded, and a closed connection takes its own along.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import heapq
import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

_Key = TypeVar("_Key", tuple[str, int], int)

WAKES_PER_TURN = 64
"""Held pulls served in one go before other work of the loop gets its turn."""
SPARE_DEADLINES = 64


class Waiter(Protocol):
    """Who waits: a connection, or a caller of this process."""

    @property
    def key(self) -> int:
        """A number that no other waiter of this process has or had."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether an answer could still arrive."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class Held:
    """One waiting pull. `resume` answers it; `matches(max offset)` says whether that is due."""

    topic: str
    queue_id: int
    peer: Waiter
    offset: int
    resume: Callable[[], None]
    matches: Callable[[int], bool] | None = None
    deadline_ms: int = 0
    done: bool = False


class Others(Protocol):
    """Hold pulls as well, under the same bound."""

    @property
    def held_pulls(self) -> int:
        """How many it holds."""
        ...

    def held_beside(self, count: int) -> None:
        """Hear how many are held here."""
        ...


class NoOthers:
    """Stands for a fast path where there is none: it holds no pull."""

    held_pulls = 0

    def held_beside(self, count: int) -> None:
        """Need not know."""


class LongPolling:
    """The held pulls of a broker, beside those that the native fast path holds."""

    def __init__(self, clock: Clock, rng: random.Random, held_max: int = 100_000) -> None:
        """Begin with none; `held_max` bounds how many there may be."""
        self._clock = clock
        self._rng = rng
        self._held_max = held_max
        self._by_queue: dict[tuple[str, int], dict[int, Held]] = {}
        self._by_peer: dict[int, dict[int, Held]] = {}
        self._deadlines: list[tuple[int, int, Held]] = []
        self._due: collections.deque[Held] = collections.deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sequence = 0
        self._count = 0
        self._others: Others = NoOthers()
        self.begins: Callable[[], None] = lambda: None
        """Hears that a pull has begun to wait where none did."""

    def __len__(self) -> int:
        return self._count + self._others.held_pulls

    @property
    def count(self) -> int:
        """How many pulls wait here."""
        return self._count

    def share(self, others: Others) -> None:
        """Have one bound for the pulls held here and there together."""
        self._others = others

    async def start(self) -> None:
        """Serve wakes on the running loop."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Forget every held pull: its connection has been closed."""
        for waiting in list(self._by_queue.values()):
            for held in list(waiting.values()):
                self._forget(held)
        self._due.clear()
        self._deadlines.clear()

    def hold(self, held: Held, wait_ms: int) -> bool:
        """Keep a pull for at most about `wait_ms`; False when there is no room or nobody waits."""
        if len(self) >= self._held_max or not held.peer.is_open:
            return False
        jitter = self._rng.uniform(-0.1, 0.1)
        held.deadline_ms = self._clock.steady_ms() + int(wait_ms * (1 + jitter))
        self._sequence += 1
        self._count += 1
        self._others.held_beside(self._count)
        if len(self._deadlines) > 2 * self._count + SPARE_DEADLINES:
            # Pulls that were woken long before their time would pile up here with their requests.
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (held.deadline_ms, self._sequence, held))
        self._by_queue.setdefault((held.topic, held.queue_id), {})[id(held)] = held
        self._by_peer.setdefault(held.peer.key, {})[id(held)] = held
        if self._count == 1:
            self.begins()
        return True

    def arrived(self, topic: str, queue_id: int, max_offset: int) -> None:
        """Wake the pulls of a queue that now ends at `max_offset` and that a message is for."""
        waiting = self._by_queue.get((topic, queue_id))
        if not waiting:
            return
        for held in list(waiting.values()):
            if max_offset > held.offset and (held.matches is None or held.matches(max_offset)):
                self._make_due(held)

    def removed(self, topic: str) -> None:
        """Wake the pulls of a topic that has gone: queues of its name begin at 0."""
        for where in [known for known in self._by_queue if known[0] == topic]:
            for held in list(self._by_queue[where].values()):
                self._make_due(held)

    async def sweep(self) -> None:
        """Wake the pulls whose time is over: the action of a timer."""
        now_ms = self._clock.steady_ms()
        while self._deadlines and (self._deadlines[0][2].done or self._deadlines[0][0] <= now_ms):
            held = heapq.heappop(self._deadlines)[2]
            if not held.done:
                self._make_due(held)

    def drop_peer(self, peer: Waiter) -> None:
        """Forget the pulls of a connection that closed, or of a caller that has gone."""
        for held in list(self._by_peer.get(peer.key, {}).values()):
            self._forget(held)

    def _make_due(self, held: Held) -> None:
        self._forget(held)
        self._due.append(held)
        if len(self._due) == 1 and self._loop is not None:
            self._loop.call_soon(self._serve, self._loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(WAKES_PER_TURN, len(self._due))):
            _resume(self._due.popleft())
        if self._due:
            loop.call_soon(self._serve, loop)

    def _forget(self, held: Held) -> None:
        if held.done:
            return
        held.done = True
        self._count -= 1
        self._others.held_beside(self._count)
        _discard(self._by_queue, (held.topic, held.queue_id), held)
        _discard(self._by_peer, held.peer.key, held)


def _resume(held: Held) -> None:
    try:
        held.resume()
    except Exception:
        log.exception("a held pull of %s queue %d failed", held.topic, held.queue_id)


def _discard(table: dict[_Key, dict[int, Held]], key: _Key, held: Held) -> None:
    waiting = table.get(key)
    if waiting is not None:
        waiting.pop(id(held), None)
        if not waiting:
            del table[key]
