"""What may happen to a message between its service and the store: hooks, in order.

The order stands here and nowhere else (spec: broker (b) "Store-level hook limits", (g)):

1. `check`: the broker takes messages, and the topic is a name that a record may have.
2. `inner batch`: no record holds a batch that readers would take apart.
3. `quota`: the light queues that the message names exist, or there is room for them.
4. `schedule`: a message with a delay level or a time to come goes to where it waits.

Whatever the broker appends passes them, but for deliveries of delayed messages, whose records still
ask for the delay that they have had. The fast path takes a message only when no hook would do
anything to it that the core does not do alike: its rows say what `check` would, the properties at
which a hook acts make it leave the message to the services, and the delay levels are handed down to
it. A hook names these properties in `acts_on`, so that one that is added here is not passed by
there (see `PutHooks.beyond_core`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.broker.state import BrokerState
    from roquet.store.results import Draft

KNOWN_TO_CORE = props.TIMER_DELAYS | {props.INNER_NUM, props.INNER_MULTI_DISPATCH, props.DELAY}
"""Properties at which the core leaves a message to the services, or does what the hook does."""

ANY_MESSAGE = None
"""`acts_on` of a hook that may act on every message: none is taken by the core then."""


_PLAIN_FLAGS = (
    sys_flag.COMPRESSED
    | sys_flag.COMPRESSION_MASK
    | sys_flag.MULTI_TAGS
    | sys_flag.BORN_HOST_V6
    | sys_flag.STORE_HOST_V6
)
"""Bits of a message's flag that say how its bytes are to be read, and nothing else."""


class Put(NamedTuple):
    """How a message comes to the hooks."""

    sent: bool = False
    """Whether a client sends it now."""
    inner: bool = False
    """Whether the broker appends it by itself: it goes on for a moment when it takes no more."""
    is_new: bool = True
    """False for a message that was accepted before, and goes elsewhere now."""
    as_it_is: bool = False
    """Whether it is stored where it is addressed to: a half message waits for its outcome first."""


class PutHook(Protocol):
    """One step. It may change the draft, also its topic and queue."""

    name: str
    """For people."""
    acts_on: frozenset[str] | None
    """The properties without which it does nothing to a message with plain flags."""

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        """Return why the message cannot be stored. May raise Refusal."""
        ...


class Delays(Protocol):
    """Turns a delay level into a place in the schedule topic."""

    def divert(self, draft: Draft) -> None:
        """Change topic, queue and properties of a draft whose DELAY property asks for it."""
        ...


class Timers(Protocol):
    """Turns a timer property into a place in the timer topic."""

    def divert(self, draft: Draft) -> PutResult | None:
        """Change topic, queue and properties of a draft that asks for it; return why it cannot."""
        ...


class Lights(Protocol):
    """Knows which light queues a message may be put into."""

    def refusal(self, draft: Draft, *, is_new: bool) -> PutResult | None:
        """Return why a draft cannot be stored with what it says of light queues."""
        ...


class PutHooks:
    """The hooks of a broker, in order."""

    def __init__(self, check: Check, *hooks: PutHook) -> None:
        """`check` is the first."""
        self._check = check
        self._hooks: tuple[PutHook, ...] = (check, *hooks)
        self._later = hooks
        self._acts_on = _together(hooks)

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        """Run them until one refuses; return why it does. May raise Refusal.

        Those are left out that say themselves that they would do nothing.
        """
        refused = self._check.refused(draft.topic, inner=put.inner)
        if refused is not None:
            return refused
        is_plain = not draft.sys_flag & ~_PLAIN_FLAGS
        if is_plain and self._acts_on is not None and self._acts_on.isdisjoint(draft.properties):
            return None
        for hook in self._later:
            refused = hook(draft, put)
            if refused is not None:
                return refused
        return None

    def refused_topic(self, topic: str, *, inner: bool) -> PutResult | None:
        """Return why no message, of a batch either, can be stored under a topic now."""
        return self._check.refused(topic, inner=inner)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the hooks, in order."""
        return tuple(hook.name for hook in self._hooks)

    @property
    def beyond_core(self) -> frozenset[str] | None:
        """Properties with which the core has to leave a message to the hooks; None: leave all.

        Those that it knows by itself are not among them.
        """
        found = _together(self._hooks)
        return None if found is None else found - KNOWN_TO_CORE


def _together(hooks: Iterable[PutHook]) -> frozenset[str] | None:
    """Return the properties at which any of the hooks acts; None when one acts on every message."""
    found: set[str] = set()
    for hook in hooks:
        acts_on = hook.acts_on
        if acts_on is None:  # ANY_MESSAGE
            return None
        found |= acts_on
    return frozenset(found)


def put_hooks(
    state: BrokerState,
    delays: Delays,
    *,
    timers: Timers | None = None,
    lights: Lights | None = None,
) -> PutHooks:
    """Return the hooks of a broker; without `lights` names of light queues mean nothing."""
    return PutHooks(Check(state), InnerBatch(), Quota(lights), Schedule(delays, timers))


class Check:
    """Refuses what no broker, or not this one now, may store."""

    name = "check"
    acts_on: frozenset[str] | None = frozenset()

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        """Return why the message cannot be stored."""
        return self.refused(draft.topic, inner=put.inner)

    def refused(self, topic: str, *, inner: bool) -> PutResult | None:
        """Return why no message can be stored under a topic now."""
        if self._state.is_slave and not inner:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="this broker is a slave")
        if not _is_storable(topic):
            return PutResult(PutStatus.MESSAGE_ILLEGAL, why=f"illegal topic name {topic[:255]!r}")
        return None


class InnerBatch:
    """Refuses what a client sends that readers would take apart as a batch within a record (B7)."""

    name = "inner batch"
    acts_on: frozenset[str] | None = frozenset({props.INNER_NUM})

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        """Return why the message cannot be stored."""
        return inner_batch_refused(draft.properties, draft.sys_flag) if put.sent else None


def inner_batch_refused(properties: dict[str, str], flag: int) -> PutResult | None:
    """Return why a message, or a batch, with these properties and this flag cannot be stored."""
    if props.INNER_NUM in properties or flag & (sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP):
        return PutResult(
            PutStatus.MESSAGE_ILLEGAL, why="no queue here holds batches within a record"
        )
    return None


class Quota:
    """Refuses a message whose light queues cannot be, or would be too many."""

    name = "quota"
    acts_on: frozenset[str] | None = frozenset({props.INNER_MULTI_DISPATCH})

    def __init__(self, lights: Lights | None) -> None:
        self._lights = lights

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        """Return why the message cannot be stored."""
        if props.INNER_MULTI_DISPATCH not in draft.properties:
            return None
        # The store alone says where a message is in light queues. Copies for a retry keep it, as
        # in Java: no queue is made by it.
        if not names.is_retry(draft.topic):
            draft.properties.pop(props.INNER_MULTI_QUEUE_OFFSET, None)
        return None if self._lights is None else self._lights.refusal(draft, is_new=put.is_new)


class Schedule:
    """Sends a message with a delay level, or with a time to come, to where it waits."""

    name = "schedule"
    acts_on: frozenset[str] | None = props.TIMER_DELAYS | {props.DELAY}

    def __init__(self, delays: Delays, timers: Timers | None) -> None:
        self._delays = delays
        self._timers = timers

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        """Return why the message cannot be stored."""
        if put.as_it_is or sys_flag.transaction(draft.sys_flag) not in _MAY_WAIT:
            return None
        if not asks_for_timer(draft.properties):
            self._delays.divert(draft)
            return None
        if self._timers is None:
            return PutResult(PutStatus.WHEEL_TIMER_NOT_ENABLE, why="there is no timer wheel")
        return self._timers.divert(draft)


_MAY_WAIT = (sys_flag.TRANSACTION_NONE, sys_flag.TRANSACTION_COMMIT)
"""Messages with these transaction bits may have a delay."""


def asks_for_timer(properties: dict[str, str]) -> bool:
    """Tell whether a message is for the timer wheel; a delay level wins and clears the rest."""
    if props.TIMER_DELAYS.isdisjoint(properties):
        return False
    if delay_level(properties) > 0:
        for name in _TIMES:
            properties.pop(name, None)
        return False
    return any(name in properties for name in _TIMES)


_TIMES = (props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS)
"""Properties that say when a message is due."""


def delay_level(properties: dict[str, str]) -> int:
    """Return the delay level a message asks for; text that is no number counts as 0."""
    text = properties.get(props.DELAY)
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0


@functools.lru_cache(maxsize=1024)
def _is_storable(topic: str) -> bool:
    """Tell whether a record may have this topic; pop retry topics of the second form hold a `+`."""
    if names.check_topic(topic) is None:
        return True
    return names.is_retry(topic) and names.check_topic(topic.replace("+", "_")) is None
