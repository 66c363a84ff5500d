"""Wrappers around the operations of a broker: who may, what plugins say, what is counted.

Each wrapper has its turn before the service, in the order of the list, and after it in the reverse
order. One that refuses ends the call: those behind it and the service never see it, those before
it see the refusal. Without wrappers an operation is the service's own method, at no cost.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from roquet.acl.needs import Need
    from roquet.broker.api.caller import Caller

_F = TypeVar("_F", bound=Callable[..., Any])

End = Callable[[object, "Exception | None"], None]
"""Given the result, or None and the error; it may not raise."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One thing that a front may ask for."""

    name: str
    """RocketMQ's name of the request, in small letters: what metrics and logs show."""
    needs: Callable[[Any], Sequence[Need]] | None
    """What the caller's account needs for a request; None: it has to be an administrator's."""


class Wrapper(Protocol):
    """Looks at calls."""

    def begin(self, operation: Operation, request: object, caller: Caller) -> End | None:
        """Look before the service does; return what looks at the outcome. May raise Refusal."""
        ...


def wrapped(operation: Operation, call: _F, wrappers: Sequence[Wrapper]) -> _F:
    """Return a call with wrappers around it.

    It takes a request, a caller and what else the service takes. A plain method that returns None
    where it usually has a result goes on later: its outcome is that of the operation that resumes
    it, and the wrappers see no end here.
    """
    if not wrappers:
        return call
    around = _Around(operation, wrappers)
    if inspect.iscoroutinefunction(call):
        return cast("_F", around.waiting(call))
    return cast("_F", around.plain(call))


class _Around:
    """The wrappers of one operation."""

    def __init__(self, operation: Operation, wrappers: Sequence[Wrapper]) -> None:
        self._operation = operation
        self._wrappers = tuple(wrappers)

    def plain(self, call: Callable[..., object]) -> Callable[..., object]:
        def run(request: object, caller: Caller, *more: object) -> object:
            ends = self._begin(request, caller)
            try:
                result = call(request, caller, *more)
            except Exception as error:
                _end(ends, None, error)
                raise
            if result is not None or not more:
                _end(ends, result, None)
            return result

        return run

    def waiting(self, call: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
        async def run(request: object, caller: Caller, *more: object) -> object:
            ends = self._begin(request, caller)
            try:
                result = await call(request, caller, *more)
            except Exception as error:
                _end(ends, None, error)
                raise
            _end(ends, result, None)
            return result

        return run

    def _begin(self, request: object, caller: Caller) -> list[End]:
        ends: list[End] = []
        try:
            for wrapper in self._wrappers:
                end = wrapper.begin(self._operation, request, caller)
                if end is not None:
                    ends.append(end)
        except Exception as error:
            _end(ends, None, error)
            raise
        return ends


def _end(ends: list[End], result: object, error: Exception | None) -> None:
    for end in reversed(ends):
        end(result, error)
