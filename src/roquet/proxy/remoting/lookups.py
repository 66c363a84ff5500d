"""What name servers and brokers said, remembered, and used while none of them answers.

Only names are looked up, and only what name servers say is ever connected to: whatever a client
writes into the field of the broker's name, it cannot make the proxy connect elsewhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.proxy.remoting.limits import (
    FRESH_MS,
    REFRESH_S,
    REMEMBERED_MAX,
    STALE_MS,
    UNKNOWN_MS,
)
from roquet.service.background import Tasks
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.base.clock import Clock

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


@dataclasses.dataclass(slots=True)
class _Entry(Generic[V]):
    value: V | Refused
    known_ms: int
    """When it was said."""
    asked_ms: int
    """When it was asked for last, with success or without."""


class Lookup(Generic[K, V]):
    """Remembers answers by key; the same key is asked for once at a time. A service."""

    def __init__(
        self,
        what: str,
        ask: Callable[[K], Awaitable[V]],
        clock: Clock,
        unknown_ms: int = UNKNOWN_MS,
    ) -> None:
        """`ask` raises Refused for what is not there, Unreachable when nobody answers.

        What is not there is asked for again after `unknown_ms`.
        """
        self._unknown_ms = unknown_ms
        self._what = what
        self._ask = ask
        self._clock = clock
        self._entries: dict[K, _Entry[V]] = {}
        self._asking: dict[K, asyncio.Future[None]] = {}
        self._tasks = Tasks()
        self._log = RateLog(log, clock)

    def __len__(self) -> int:
        return len(self._entries)

    async def start(self) -> None:
        """Nothing to do: the first request asks."""

    async def stop(self) -> None:
        """End what is being asked."""
        await self._tasks.stop()

    async def get(self, key: K) -> V:
        """Return what is known of a key, asked for anew when that is old.

        Something old is used at once where the answer takes long. Raises Refused, and Unreachable
        or OutcomeUnknown when nothing is known and nobody answers.
        """
        entry = self._entries.get(key)
        if entry is None:
            await asyncio.shield(self._asked(key))
            entry = self._entries[key]
        elif self._is_due(entry):
            await asyncio.wait([self._asked(key)], timeout=REFRESH_S)
            entry = self._entries.get(key, entry)
        if isinstance(entry.value, Refused):
            raise Refused(entry.value.code, entry.value.remark)
        return entry.value

    def learn(self, key: K, value: V) -> None:
        """Remember what the answer to another question said."""
        now_ms = self._clock.steady_ms()
        self._put(key, _Entry(value, now_ms, now_ms))

    def doubt(self, key: K) -> None:
        """Have a key asked for anew at its next use: what is known of it did not work."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.asked_ms = min(entry.asked_ms, self._clock.steady_ms() - UNKNOWN_MS)
            entry.known_ms = min(entry.known_ms, self._clock.steady_ms() - FRESH_MS)

    def _is_due(self, entry: _Entry[V]) -> bool:
        now_ms = self._clock.steady_ms()
        if isinstance(entry.value, Refused):
            return now_ms - entry.asked_ms >= self._unknown_ms
        if now_ms - entry.asked_ms < UNKNOWN_MS:
            return False
        return now_ms - entry.known_ms >= FRESH_MS

    def _asked(self, key: K) -> asyncio.Future[None]:
        """Ask for a key unless somebody does already."""
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._refresh(key, asking), f"look up {self._what}")
        return asking

    async def _refresh(self, key: K, asking: asyncio.Future[None]) -> None:
        failure: BaseException | None = None
        try:
            value = await self._ask(key)
            self.learn(key, value)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            failure = self._failed(key, error)
        except BaseException:
            failure = Unreachable(f"{self._what} could not be looked up")
            raise
        finally:
            del self._asking[key]
            if failure is None:
                asking.set_result(None)
            else:
                asking.set_exception(failure)
                asking.exception()  # seen, even when nobody waits any more

    def _failed(self, key: K, error: Refused | Unreachable | OutcomeUnknown) -> Exception | None:
        """Note a failure; return it where nothing is known of the key."""
        now_ms = self._clock.steady_ms()
        if isinstance(error, Refused) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            self._put(key, _Entry(error, now_ms, now_ms))
            return None
        entry = self._entries.get(key)
        if entry is None or isinstance(error, Refused):
            # A refusal for another reason, of an account say, must not be hidden by what was.
            self._entries.pop(key, None)
            return error
        entry.asked_ms = now_ms
        age_ms = now_ms - entry.known_ms
        if age_ms > STALE_MS:
            text = f"{self._what} {key!r} is as it was {age_ms // 1000} s ago: {error}"
            self._log.warning(("stale", key), text)
        return None

    def _put(self, key: K, entry: _Entry[V]) -> None:
        self._entries.pop(key, None)
        if len(self._entries) >= REMEMBERED_MAX:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = entry
