"""Overload: what has itself waited too long is refused at once, and so is what finds a hung append.

Texts and limits are those of Java (spec: broker (c)); official producers take such an answer to
another broker, others show it to the application. So a request is judged by its own age alone
(waitTimeMillsInSendQueue and its like, see `service/lanes.py`), never by a lag that it did not see.
The age counts from the moment the kernel had the request. While the loop is late enough to matter,
each read finds out how long it has waited; the fast path then passes on what is too old, and the
lane refuses it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.broker.api.refusal import Reason, Refusal
from roquet.service.lifecycle import REST_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.state import BrokerState
    from roquet.service.lanes import Lanes
    from roquet.service.lifecycle import Rest

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
_LOOK_S = 0.02
"""Between looks at requests that wait."""
_IDLE_LOOK_S = 0.1
"""The same while none waits."""
STUCK_MS = 10_000_000
"""An append that seems to take longer than this is a clock that was set."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FastFailConfig:
    """When the broker counts as too busy."""

    enabled: bool = setting(
        "brokerFastFailureEnable",
        True,
        "Whether requests that waited too long are refused.",
        live=True,
    )
    page_cache_busy_ms: int = setting(
        "osPageCacheBusyTimeOutMills",
        1000,
        "An append that takes longer means a busy page cache.",
        unit="ms",
        low=1,
        live=True,
    )


class Appends(Protocol):
    """Knows how long the append under way has taken."""

    def append_busy_ms(self) -> int:
        """Return milliseconds, 0 when no append is under way."""
        ...


class Lag(Protocol):
    """Knows how late the loop runs."""

    @property
    def last_ms(self) -> float:
        """The latest sample in milliseconds."""
        ...

    @property
    def margin_ms(self) -> float:
        """By how much a sample may be below the true lag."""
        ...

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each sample."""
        ...


class Waits(Protocol):
    """Knows how long what is being read has waited in the kernel."""

    is_late: bool
    """Whether reads ask for it."""

    @property
    def read_ms(self) -> int:
        """Milliseconds, of the bytes last read."""
        ...

    def in_time(self) -> None:
        """Hear that nothing waits any more."""
        ...


class FastFail:
    """Refuses what waits too long, and says whether sends are taken."""

    def __init__(
        self,
        *,
        rules: FastFailConfig,
        appends: Appends,
        lag: Lag,
        waits: Waits,
        lanes: Lanes,
        state: BrokerState,
        rest: Rest,
    ) -> None:
        """`rest` ends with the first request, so that nothing can wait during one."""
        self.rest = rest
        self._rules = rules
        self._appends = appends
        self._lag = lag
        self._lanes = lanes
        self._state = state
        self._waits = waits
        lag.listen(self._sampled)

    @property
    def judges_reads(self) -> bool:
        """Whether one read may be too old and the next one not."""
        return self._waits.is_late

    def follow(self, rules: FastFailConfig) -> None:
        """Refuse by other settings from now on."""
        self._rules = rules

    async def start(self) -> None:
        """Nothing to do: a timer calls `tick`."""

    async def stop(self) -> None:
        """Nothing to do."""

    def pause_s(self) -> float:
        """Return when to look again.

        While nothing waits, nothing can be too old before the shortest limit has passed.
        """
        lanes = self._lanes.all()
        if any(lane.has_queued for lane in lanes):
            return _LOOK_S
        if self.rest.is_on and not any(lane.running for lane in lanes):
            return REST_S
        limits_ms = [it.config.age_max_ms for it in lanes if it.config.age_max_ms is not None]
        least_ms = min([*limits_ms, self._rules.page_cache_busy_ms])
        return min(_IDLE_LOOK_S, max(_LOOK_S, least_ms / 2000))

    async def tick(self) -> None:
        """Look at the waiting requests: the action of a timer."""
        if not self._rules.enabled:
            return
        while self.page_cache_is_busy() and self._lanes["send"].refuse_head("PCBUSY_CLEAN_QUEUE"):
            pass
        await self._lanes.refuse_old()

    def _sampled(self) -> None:
        limit_ms = self._lanes["send"].config.age_max_ms
        lag_ms = self._lag.last_ms + self._lag.margin_ms
        if self._rules.enabled and limit_ms is not None and lag_ms > limit_ms:
            self._waits.is_late = True
        elif self._waits.is_late:
            self._waits.in_time()

    def page_cache_is_busy(self) -> bool:
        """Tell whether an append hangs in the operating system."""
        return self._rules.page_cache_busy_ms < self._appends.append_busy_ms() < STUCK_MS

    def takes_sends(self) -> bool:
        """Tell whether overload lets in the sends that are being read."""
        limit_ms = self._lanes["send"].config.age_max_ms
        too_old = limit_ms is not None and self._waits.read_ms > limit_ms
        return not (too_old or self.page_cache_is_busy())

    def check(self) -> None:
        """Raise Refusal when no send is taken at the moment; old ones are refused by their lane."""
        if self._state.is_slave or self.page_cache_is_busy():
            raise Refusal(Reason.BUSY, REJECTED)
