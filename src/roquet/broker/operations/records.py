"""What operators see of calls: distributions of how long they took, and a line for a refusal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Reason, Refusal
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.operations.wrapping import End, Operation

log = logging.getLogger(__name__)

_DENIED = frozenset({Reason.ACCOUNT_REFUSED, Reason.FORBIDDEN})


class Calls(Protocol):
    """Counts calls."""

    def called(self, front: str, request: str, code: int, took_ms: float) -> None:
        """Note a call of a front, by RocketMQ's name of the request and the response code."""
        ...


class Counted:
    """Counts calls and how long they took."""

    def __init__(
        self, calls: Calls, clock: Clock, code_of: Callable[[object, Exception | None], int]
    ) -> None:
        """`code_of` returns the response code by which metrics show an outcome."""
        self._calls = calls
        self._clock = clock
        self._code_of = code_of

    def begin(self, operation: Operation, request: object, caller: Caller) -> End:
        """Take the time."""
        del request
        began_ms = self._clock.steady_ms()

        def end(result: object, error: Exception | None) -> None:
            took_ms = float(max(0, self._clock.steady_ms() - began_ms))
            code = self._code_of(result, error)
            self._calls.called(caller.front.value, operation.name, code, took_ms)

        return end


class Audited:
    """Logs who was denied what."""

    def __init__(self, clock: Clock) -> None:
        self._log = RateLog(log, clock)

    def begin(self, operation: Operation, request: object, caller: Caller) -> End:
        """Wait for the outcome."""
        del request

        def end(result: object, error: Exception | None) -> None:
            del result
            if isinstance(error, Refusal) and error.reason in _DENIED:
                host = caller.address.rpartition(":")[0]
                who = f"{caller.address} by {caller.front.value}, account {caller.access_key!r}"
                text = f"{operation.name} of {who} refused: {error.text}"
                self._log.warning((host, caller.access_key, operation.name), text)

        return end
