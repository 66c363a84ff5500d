"""A turn over the budget is measured again, and the best round counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tools.budget.rounds import best_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Found(NamedTuple):
    turn_ms: float


def judged(figures: Sequence[float]) -> tuple[float, list[int]]:
    """Return the best of these figures by a budget of 20, and the numbers of the rounds."""
    rounds: list[int] = []

    async def measure(number: int) -> Found:
        rounds.append(number)
        return Found(figures[number])

    best = asyncio.run(best_of(measure, 20.0, rounds=2, again_after_s=0.0))
    return best.turn_ms, rounds


def test_round_within_the_budget_is_the_last() -> None:
    assert judged([19.0]) == (19.0, [0])
    assert judged([20.0]) == (20.0, [0])
    assert judged([30.0, 20.0]) == (20.0, [0, 1])


def test_over_in_all_rounds_is_measured_again() -> None:
    assert judged([30.0, 25.0, 18.0]) == (18.0, [0, 1, 2])
    assert judged([30.0, 25.0, 40.0, 19.0]) == (19.0, [0, 1, 2, 3])


def test_over_in_all_rounds_twice_is_over_by_the_best() -> None:
    assert judged([30.0, 21.0, 40.0, 50.0]) == (21.0, [0, 1, 2, 3])
