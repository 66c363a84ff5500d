"""Pops that the core has read and that wait for a message: kept as they were read.

Nothing is there for them, and no service has seen them. When a message may be there, each is tried
again by the core; when that cannot decide, its frame goes to the service as one that has waited.
So that nothing needs to be judged again, pops wait here only while no account is asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.pop.receive.polls import Key, PopPolls
    from roquet.remoting.connections.popped import PopHere
    from roquet.remoting.router import Peer


class _HeldPop:
    """One waiting pop, as `PopPolls` sees it: there may be 100,000."""

    __slots__ = ("_of", "_pop", "done", "expires_ms", "peer")

    def __init__(self, of: HeldPops, peer: Peer, pop: PopHere) -> None:
        self._of = of
        self._pop = pop
        self.peer = peer
        self.expires_ms = pop.born_ms + pop.poll_ms
        self.done = False

    @property
    def topic(self) -> str:
        return self._pop.topic

    @property
    def group(self) -> str:
        return self._pop.group

    @property
    def key(self) -> Key:
        pop = self._pop
        return pop.topic, pop.group, pop.queue_id

    @property
    def matches(self) -> Callable[[int, int, int], bool] | None:
        pop = self._pop
        return None if pop.expression in {"", "*"} else self._matches

    def _matches(self, queue_id: int, begin: int, end: int) -> bool:
        return self._of.matches(self._pop, queue_id, begin, end)

    def resume(self) -> None:
        if self.peer.is_open:
            self._of.resume(self.peer.key, self._pop)


class HeldPops:
    """Has pops wait that the core has read."""

    def __init__(
        self,
        polls: PopPolls,
        *,
        find: Callable[[int], Peer | None],
        try_again: Callable[[int, PopHere], bool],
        leave: Callable[[int, PopHere], None],
        matches: Callable[[PopHere, int, int, int], bool],
    ) -> None:
        """`find` returns the connection with a key, if it is still there.

        `try_again(key, pop)` has the core answer a pop or let it wait again; when it says False,
        `leave(key, pop)` has the service answer it. `matches(pop, queue id, begin, end)` tells
        whether one of new messages may be for it.
        """
        self._polls = polls
        self._find = find
        self._try_again = try_again
        self._leave = leave
        self.matches = matches

    def may_wait(self, pop: PopHere, now_ms: int) -> bool:
        """Tell whether a pop may wait, and there is room for it."""
        if pop.poll_ms <= 0 or not pop.frame:
            return False
        key = pop.topic, pop.group, pop.queue_id
        return self._polls.room(key, (pop.born_ms or now_ms) + pop.poll_ms) is None

    def hold(self, key: int, pop: PopHere, now_ms: int) -> None:
        """Let a pop wait for which `may_wait` said that it may."""
        peer = self._find(key)
        if peer is None:
            return  # it has gone, and nobody waits for an answer
        kept = pop._replace(
            # One text for all of a group.
            topic=sys.intern(pop.topic),
            group=sys.intern(pop.group),
            expression=sys.intern(pop.expression),
            born_ms=pop.born_ms or now_ms,
            since_ms=pop.since_ms or now_ms,
        )
        self._polls.hold(_HeldPop(self, peer, kept))

    def resume(self, key: int, pop: PopHere) -> None:
        """Try a pop again: something may be there for it, or its time is over."""
        if not self._try_again(key, pop):
            self._leave(key, pop)
