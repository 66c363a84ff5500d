"""Overload: what waited too long is refused at once, and sends are while the loop cannot keep up.

Texts and limits are those of Java (spec: broker (c)); official producers take such an answer to
another broker. The loop's lag stands for the age of a request, since what lags is not yet read.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.state import BrokerState
    from roquet.service.lanes import Lanes

REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"
LAG_BEGINS_MS = 200
LAG_ENDS_MS = 100
STUCK_MS = 10_000_000
"""An append that seems to take longer than this is a clock that was set."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FastFailRules:
    """When the broker counts as too busy."""

    enabled: bool = setting(
        "brokerFastFailureEnable", True, "Whether requests that waited too long are refused."
    )
    page_cache_busy_ms: int = setting(
        "osPageCacheBusyTimeOutMills",
        1000,
        "An append that takes longer means a busy page cache.",
        unit="ms",
        low=1,
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

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each sample."""
        ...

    def look(self) -> None:
        """Take a sample at once when one is long overdue."""
        ...


class FastFail:
    """Refuses what waits too long, and says whether sends are taken."""

    def __init__(
        self,
        *,
        rules: FastFailRules,
        appends: Appends,
        lag: Lag,
        lanes: Lanes,
        state: BrokerState,
    ) -> None:
        self._rules = rules
        self._appends = appends
        self._lag = lag
        self._lanes = lanes
        self._state = state
        self._lagging = False
        self._listeners: list[Callable[[], None]] = []
        lag.listen(self._sampled)
        self.look = lag.look
        """Notice a lag that no sample has shown yet: before sends are read."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when the loop begins to lag, and when it has caught up."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Nothing to do: a timer calls `tick`."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def tick(self) -> None:
        """Look at the waiting requests: the action of a timer."""
        if not self._rules.enabled:
            return
        while self.page_cache_is_busy() and self._lanes["send"].refuse_head("PCBUSY_CLEAN_QUEUE"):
            pass
        await self._lanes.refuse_old()

    def _sampled(self) -> None:
        limit_ms = LAG_ENDS_MS if self._lagging else LAG_BEGINS_MS
        lagging = self._rules.enabled and self._lag.last_ms > limit_ms
        if lagging != self._lagging:
            self._lagging = lagging
            for hear in self._listeners:
                hear()

    def page_cache_is_busy(self) -> bool:
        """Tell whether an append hangs in the operating system."""
        return self._rules.page_cache_busy_ms < self._appends.append_busy_ms() < STUCK_MS

    def takes_sends(self) -> bool:
        """Tell whether overload lets sends in at the moment."""
        return not (self._lagging or self.page_cache_is_busy())

    def check(self) -> None:
        """Raise Refused when no send is taken at the moment."""
        if self._state.is_slave or self.page_cache_is_busy():
            raise Refused(ResponseCode.SYSTEM_BUSY, REJECTED)
        if self._lagging:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                f"period in queue: {self._lag.last_ms:.0f}ms, "
                f"size of queue: {self._lanes['send'].waiting}",
            )
