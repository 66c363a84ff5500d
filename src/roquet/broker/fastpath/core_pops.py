"""Plain pops that the core gives messages: decided here, read, stored and answered there.

The common case of `broker/pop/receive/service.py`, in one step of the loop, so that it needs no
lock: the same checks, draw and positions lead to the same queues. What is not common - an order, a
filter by properties, a group or a queue without a position, a reset, a queue that another pop has
just now, a message to redeliver - goes to that service, and nothing has changed then: not even the
number that the pop draws. A pop for which nothing is there waits as it was read (`held_pops`), or
goes to the service, which has it wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.broker.api.pop import PopRequest
from roquet.broker.api.refusal import Refusal
from roquet.broker.pop.receive.reads import Draw
from roquet.model.subscription import ExpressionType
from roquet.protocol.pop.records import checkpoint_of
from roquet.remoting.connections.popped import PopHere, Wish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.fastpath.held_pops import HeldPops
    from roquet.broker.pop.buffer.merge import Key, MergeBuffer
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.locks import PopLocks
    from roquet.broker.pop.receive.reads import Draws
    from roquet.broker.pop.receive.records import ReviveLog
    from roquet.broker.pop.receive.rules import PopConfig
    from roquet.model.topic import TopicConfig
    from roquet.remoting.connections.fast_ingest import Rows
    from roquet.remoting.connections.popped import Give
    from roquet.remoting.router import Request
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable

_UNKNOWN = -1
"""The offset of a queue in which the group has none yet."""
PLANS_MAX = 512
"""Pops whose checks are remembered: most clients ask for the same again and again."""
EXPRESSION_MAX = 1024
"""Characters of a tag expression that is remembered with them."""
_BY_TAG = frozenset({None, "", ExpressionType.TAG})
"""Kinds of expressions that are plain."""


ROUTES_MAX = 4096
"""Ways through the queues that are remembered, of all plans: one a number that a pop may draw."""


class _Route(NamedTuple):
    """Where a pop with a certain number reads, in this order."""

    names: tuple[str, str, str]
    """(group, topic, retry topic or nothing)."""
    queues: Sequence[int]
    keys: Sequence[Key]
    """The same with their names."""
    retry_queues: Sequence[int]
    retry_keys: Sequence[Key]
    retry_first: bool


class _Plan(NamedTuple):
    """What the checks said of a pop, as long as nothing has changed that they ask for."""

    topic: TopicConfig
    codes: Sequence[int] | None
    urgent_percent: int
    routes: dict[int, _Route]
    """By the number that is drawn."""


class CorePops:
    """Decides plain pops."""

    def __init__(
        self,
        *,
        checks: PopChecks,
        topics: TopicTable,
        offsets: OffsetTable,
        buffer: MergeBuffer,
        locks: PopLocks,
        revive_log: ReviveLog,
        draws: Draws,
        broker_name: str,
        rules: PopConfig,
        clock: Clock,
        wake: Callable[[str, str, int], object],
    ) -> None:
        """`wake(topic, group, queue id)` has a pop that waits tried: messages were left."""
        self._checks = checks
        self._topics = topics
        self._offsets = offsets
        self._buffer = buffer
        self._locks = locks
        self._revive_log = revive_log
        self._draws = draws
        self._broker_name = broker_name
        self.rules = rules
        self._clock = clock
        self._wake = wake
        self._plans: dict[tuple[str, str, int, str, int, int], _Plan] = {}
        self._routes = 0
        """Of all plans."""
        self.held: HeldPops | None = None
        """Where pops wait for which nothing is there; None: the service has them wait."""

    def answer_woken(
        self,
        request: Request,
        wanted: PopRequest,
        answer: Callable[[int, PopHere], bool],
    ) -> bool:
        """Have a pop that waited answered by `answer(connection key, pop)`, if it is plain."""
        if wanted.is_ordered or request.command.is_one_way:
            return False
        if wanted.expression_type not in _BY_TAG:
            return False
        pop = PopHere(
            opaque=request.command.opaque,
            topic=wanted.topic,
            group=wanted.group,
            queue_id=wanted.queue_id,
            messages=wanted.max_messages,
            invisible_ms=wanted.invisible_ms,
            poll_ms=wanted.poll_ms,
            born_ms=wanted.born_ms,
            expression=wanted.expression or "",
            frame=b"",
            since_ms=request.received_ms,
        )
        return answer(request.peer.key, pop)

    def answer(self, key: int, pop: PopHere, rows: Rows) -> bytes | None:
        """Return the answer to a connection, nothing for one that waits.

        None leaves the pop to the service.
        """
        now_ms = self._clock.now_ms()
        may_wait = self.held is not None and self.held.may_wait(pop, now_ms)
        answer = self._given(pop, now_ms, rows.give, may_wait=may_wait)
        if answer is not None and not answer:
            assert self.held is not None, "the wish said whether it may wait"
            self.held.hold(key, pop, now_ms)
        return answer

    def call(self, pop: PopHere, give: Give) -> bytes | None:
        """Return the answer of another front, as `give` has it.

        None leaves the pop to the service, which has it wait when there is nothing.
        """
        return self._given(pop, self._clock.now_ms(), give, may_wait=False)

    def _given(self, pop: PopHere, now_ms: int, give: Give, *, may_wait: bool) -> bytes | None:
        """Return the answer, an empty one when the pop is to wait; None when it is not plain."""
        wish = self._wish(pop, now_ms, may_wait=may_wait)
        given = None if wish is None else give(wish)
        if wish is None or given is None:
            return None
        answer, rest, batches, passed = given
        self._draws.take()
        self._revive_log.next_queue()
        if not answer:
            return answer
        topic, group = pop.topic, pop.group
        for queue_id, start, diffs, next_offset in batches:
            queue = topic, group, queue_id
            if wish.merges:
                self._keep(wish, queue, start, diffs, next_offset)
            else:
                self._buffer.passed(queue, next_offset)
        for queue_id, next_offset in passed:
            self._buffer.passed((topic, group, queue_id), next_offset)
        if rest > 0:
            self._wake(topic, group, pop.queue_id)
        return answer

    def _wish(self, pop: PopHere, now_ms: int, *, may_wait: bool) -> Wish | None:
        """Return what to give; None when it is not for the core to say."""
        plan, group = self._plan(pop, now_ms), pop.group
        if plan is None or self._offsets.has_reset(group):
            return None
        number = self._draws.look()
        route = plan.routes.get(number) or self._route(plan, pop, number)
        names, queues, keys, retry_queues, retry_keys, retry_first = route
        places = self._places(names[1], group, queues, keys)
        if any(offset < 0 for _, _, offset in places):
            return None
        if retry_queues:
            again = self._places(names[2], group, retry_queues, retry_keys, of_retry=True)
            places = [*again, *places] if retry_first else [*places, *again]
        if len(self._locks) and self._is_busy(keys, retry_keys):
            return None
        merges = self._buffer.admits(keys, now_ms + pop.invisible_ms, now_ms)
        if merges is None or (self._buffer.may_repeat and self._is_known(places, names, now_ms)):
            return None
        return Wish(
            pop.opaque,
            names,
            places,
            pop.messages,
            plan.codes,
            (now_ms, pop.invisible_ms, pop.since_ms or now_ms),
            self._revive_log.look_queue(),
            retry_first,
            merges,
            may_wait,
        )

    def _route(self, plan: _Plan, pop: PopHere, number: int) -> _Route:
        """Return where a pop with this number reads, and remember it."""
        topic, group = plan.topic, pop.group
        draw = Draw(self.rules, number, urgent_percent=plan.urgent_percent)
        retry = self._topics.get(draw.retry_topic(topic.name, group))
        queues = [pop.queue_id] if pop.queue_id >= 0 else [it for _, it in draw.turned(topic)]
        turned = draw.turned(retry)
        found = _Route(
            (group, topic.name, "" if retry is None else retry.name),
            queues,
            [(topic.name, group, it) for it in queues],
            [it for _, it in turned],
            [(name, group, it) for name, it in turned],
            draw.retry_first,
        )
        if self._routes >= ROUTES_MAX:
            self.forget()
        plan.routes[number] = found
        self._routes += 1
        return found

    def forget(self) -> None:
        """Ask every check again: a topic, a group, the broker's state or a setting has changed."""
        self._plans.clear()
        self._routes = 0

    def _plan(self, pop: PopHere, now_ms: int) -> _Plan | None:
        """Return what the checks say; None: they refuse the pop, or it has a filter."""
        key = (
            *(pop.topic, pop.group, pop.queue_id, pop.expression),
            *(pop.messages, pop.invisible_ms),
        )
        plan = self._plans.get(key)
        if plan is not None:
            # The one check whose answer changes with time alone.
            is_late = self._checks.is_late(pop.born_ms or now_ms, pop.poll_ms)
            return None if is_late else plan
        request = _request(pop, now_ms)
        try:
            topic, wanted = self._checks.pop(request)
        except Refusal:
            return None
        if wanted.filter_by is not None:
            return None
        plan = _Plan(topic, wanted.codes, self._checks.urgent_percent(topic, request), {})
        if len(self._plans) >= PLANS_MAX:
            self.forget()
        if len(pop.expression) <= EXPRESSION_MAX:
            self._plans[key] = plan
        return plan

    def _places(
        self,
        topic: str,
        group: str,
        queues: Sequence[int],
        keys: Sequence[Key],
        *,
        of_retry: bool = False,
    ) -> list[tuple[bool, int, int]]:
        """Return queues of a topic, each with where the group goes on in it; below 0: unknown."""
        known = self._offsets.queues(group, topic).get
        if not self._buffer.has_queues:
            return [(of_retry, it, known(it, _UNKNOWN)) for it in queues]
        ahead = self._ahead
        pairs = zip(queues, keys, strict=True)
        return [(of_retry, it, ahead(key, known(it, _UNKNOWN))) for it, key in pairs]

    def _ahead(self, key: Key, known: int) -> int:
        """Return where a group goes on that committed an offset; memory may be ahead of it."""
        ahead = self._buffer.position(key)
        if ahead is None or known < 0:
            return known
        return _UNKNOWN if self._buffer.is_set_back(key, known) else max(known, ahead)

    def _is_busy(self, keys: Sequence[Key], retry_keys: Sequence[Key]) -> bool:
        """Tell whether another pop has one of the queues."""
        is_taken = self._locks.is_taken
        return any(map(is_taken, keys)) or any(map(is_taken, retry_keys))

    def _is_known(
        self,
        places: Sequence[tuple[bool, int, int]],
        names: tuple[str, str, str],
        now_ms: int,
    ) -> bool:
        """Tell whether a checkpoint in memory has the name that a new one would get."""
        group, topic, _ = names
        return any(
            self._buffer.knows_key((topic, group, queue_id, offset, now_ms, self._broker_name))
            for of_retry, queue_id, offset in places
            if not of_retry
        )

    def _keep(
        self, wish: Wish, key: Key, start: int, diffs: Sequence[int], next_offset: int
    ) -> None:
        topic, group, queue_id = key
        now_ms, invisible_ms, _ = wish.times
        checkpoint = checkpoint_of(
            topic=topic,
            group=group,
            queue_id=queue_id,
            start_offset=start,
            pop_time_ms=now_ms,
            invisible_ms=invisible_ms,
            broker_name=self._broker_name,
            diffs=tuple(diffs),
            count=len(diffs),
        )
        added = self._buffer.add(checkpoint, wish.revive_queue, next_offset, now_ms)
        assert added, "the buffer was asked before"


def _request(pop: PopHere, now_ms: int) -> PopRequest:
    return PopRequest(
        topic=pop.topic,
        group=pop.group,
        queue_id=pop.queue_id,
        max_messages=pop.messages,
        invisible_ms=pop.invisible_ms,
        poll_ms=pop.poll_ms,
        born_ms=pop.born_ms or now_ms,
        expression_type=ExpressionType.TAG,
        expression=pop.expression or None,
    )
