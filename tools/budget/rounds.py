"""When a measurement is over the budget: the best of several rounds, and then of several more.

The CPU time of one turn does not depend on how busy the host is, but for what shared processors
cost: caches that others have emptied, and threads that run slower than alone. Such a time passes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

AGAIN_AFTER_S = 5.0
"""Pause before what was over is measured again."""
ROUNDS = 5


class Figure(Protocol):
    """What was measured."""

    @property
    def turn_ms(self) -> float:
        """The longest turn, in milliseconds of CPU."""
        ...


T = TypeVar("T", bound=Figure)


async def best_of(
    measure: Callable[[int], Awaitable[T]],
    budget_ms: float,
    *,
    rounds: int = ROUNDS,
    again_after_s: float = AGAIN_AFTER_S,
) -> T:
    """Measure until a round is within the budget; return the best one.

    There are `rounds`, a pause, and as many again. `measure` gets the number of the round, from 0.
    """
    best = await measure(0)
    for number in range(1, 2 * rounds):
        if best.turn_ms <= budget_ms:
            break
        if number == rounds:
            await asyncio.sleep(again_after_s)
        best = min(best, await measure(number), key=lambda it: it.turn_ms)
    return best
