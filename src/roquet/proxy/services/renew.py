"""Messages of push consumers are kept invisible for as long as they are worked on.

The proxy changes their invisible time before it ends, so the client's receipt handle is not the
one that counts any more; `current` finds that one by the handle that the client knows.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.limits import RENEW_MS
from roquet.proxy.services.clients import pause_ms
from roquet.proxy.services.settle import Flight
from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from roquet.model.group import SubscriptionGroupConfig
    from roquet.proxy.brokers.api import Brokers
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Session
    from roquet.proxy.services.routes import Routes
    from roquet.proxy.services.settle import Settlements

log = logging.getLogger(__name__)

LOCK_S = 3.0
NACK_MS = 1000
AT_ONCE = 64
"""Renewals between which other work of the loop has its turn."""
_UNANSWERED = frozenset({Code.PROXY_TIMEOUT, Code.INTERNAL_SERVER_ERROR})
"""Of brokers that cannot be asked."""
_FINAL = frozenset({Reason.INVALID_ARGUMENT, Reason.UNKNOWN_GROUP, Reason.UNKNOWN_TOPIC})


@dataclasses.dataclass(slots=True, eq=False)
class Held:
    """One message in flight that is renewed."""

    session: Session
    context: Context
    topic: str
    group: str
    light: str
    """The lite topic that it is of, if any."""
    message_id: str
    known: str
    """The handle that the client has."""
    current: str
    attempts: int
    """Earlier deliveries."""
    since_ms: int
    is_settled: bool = False
    """The client has tried to settle it, in vain: its handle is known to the end of its time."""
    renewals: int = 0
    failures: int = 0
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


Key = tuple[int, str, str, str]
"""Session, group, message id, the handle that the client has."""


class Renewals:
    """Renews what lies with push consumers, until they settle it or are gone."""

    def __init__(
        self, brokers: Brokers, routes: Routes, settlements: Settlements, rules: ProxyLimits
    ) -> None:
        self._brokers = brokers
        self._routes = routes
        self.settlements = settlements
        self._rules = rules
        self._held: dict[Key, Held] = {}
        self._counts: collections.Counter[int] = collections.Counter()
        """Messages by session."""
        self._log = RateLog(log, brokers.clock)

    def __len__(self) -> int:
        return len(self._held)

    def count_of(self, session: Session) -> int:
        """Return how many messages are renewed for a client."""
        return self._counts[session.key]

    def add(
        self, session: Session, context: Context, flight: Flight, message_id: str, attempts: int
    ) -> None:
        """Renew a message from now on; `attempts` are earlier deliveries."""
        if len(self._held) >= self._rules.renewed_max:
            # It comes back after its invisible time, as without renewal.
            self._log.warning("full", f"{len(self._held)} messages are renewed: no more")
            return
        key = session.key, flight.group, message_id, flight.handle
        if key not in self._held:
            self._counts[session.key] += 1
        self._held[key] = Held(
            session=session,
            context=context,
            topic=flight.topic,
            group=flight.group,
            light=flight.light,
            message_id=message_id,
            known=flight.handle,
            current=flight.handle,
            attempts=attempts,
            since_ms=self._brokers.clock.steady_ms(),
        )

    @contextlib.asynccontextmanager
    async def settling(
        self, session: Session | None, group: str, message_id: str, handle: str
    ) -> AsyncGenerator[str]:
        """Stop renewing a message, and give the handle by which the broker knows it.

        Where the broker cannot be asked in the block, the client may try again by its own handle.
        """
        key = None if session is None else (session.key, group, message_id, handle)
        held = None if key is None else self._pop(key)
        if key is None or held is None:
            yield handle
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(held.lock.acquire(), LOCK_S)
            held.lock.release()
        try:
            yield held.current
        except (Rejected, StoreFault) as error:
            is_answer = isinstance(error, Rejected) and error.code not in _UNANSWERED
            if not is_answer and held.session.is_open and key not in self._held:
                held.is_settled = True
                self._held[key] = held
                self._counts[held.session.key] += 1
            raise

    async def drop(self, session: Session) -> None:
        """Let the messages of a client that has gone come back soon."""
        mine = [(key, held) for key, held in self._held.items() if held.session is session]
        for key, held in mine:
            if self._pop(key) is not None:
                await self._change(held, NACK_MS)

    async def round(self) -> None:
        """Renew what is due: the action of a timer. No broker waits for another."""
        by_broker: dict[str, list[tuple[Key, Held]]] = {}
        for count, (key, held) in enumerate(list(self._held.items())):
            if count % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
            broker = ReceiptHandle.decode(held.current).broker_name
            by_broker.setdefault(broker, []).append((key, held))
        await asyncio.gather(*map(self._renew_all, by_broker.values()))

    async def _renew_all(self, mine: Sequence[tuple[Key, Held]]) -> None:
        """Renew what is due at one broker."""
        for count, (key, held) in enumerate(mine):
            if count % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)  # noqa: TID251  (a turn of the loop, no time)
            if self._held.get(key) is held and self._is_due(held):
                async with held.lock:
                    if self._held.get(key) is held:
                        await self._renew(key, held)

    def _is_due(self, held: Held) -> bool:
        return self._left_ms(held) < self._rules.renew_ahead_ms

    def _left_ms(self, held: Held) -> int:
        """Return how long a message stays invisible; less than nothing once it does not."""
        handle = ReceiptHandle.decode(held.current)
        return handle.pop_time_ms + handle.invisible_ms - self._brokers.clock.now_ms()

    async def _renew(self, key: Key, held: Held) -> None:
        if held.is_settled:
            if self._left_ms(held) < 0:
                self._pop(key)
            return
        if not held.session.is_open:
            # It has vanished without a word: the message comes back when its time is over.
            self._pop(key)
            return
        age_ms = self._brokers.clock.steady_ms() - held.since_ms
        if age_ms >= self._rules.renew_for_ms:
            self._pop(key)
            group = await self._group_of(held)
            pause = NACK_MS if group is None else pause_ms(group.retry_policy, held.attempts)
            await self._change(held, pause)
            return
        by_ms = RENEW_MS[min(held.renewals, len(RENEW_MS) - 1)]
        held.renewals += 1
        if not await self._change(held, by_ms) or held.failures >= self._rules.renew_tries:
            self._pop(key)

    def _pop(self, key: Key) -> Held | None:
        held = self._held.pop(key, None)
        if held is not None:
            self._counts[key[0]] -= 1
            if not self._counts[key[0]]:
                del self._counts[key[0]]
        return held

    async def _group_of(self, held: Held) -> SubscriptionGroupConfig | None:
        try:
            return await self._routes.group(held.context, held.group)
        except Refusal:
            return None

    async def _change(self, held: Held, invisible_ms: int) -> bool:
        """Change the invisible time of a message; false when that is of no use any more."""
        try:
            flight = Flight(held.topic, held.group, held.current, held.light)
            changed = await self.settlements.change(flight, invisible_ms, held.context.caller)
        except (Refusal, StoreFault, Rejected) as error:
            held.failures += 1
            self._log.warning(held.group, f"a message of {held.group} is not renewed: {error}")
            return not (isinstance(error, Refusal) and error.reason in _FINAL)
        held.failures = 0
        held.current = changed
        return True
