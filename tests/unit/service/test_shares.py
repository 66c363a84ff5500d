"""Shares of a table: whoever takes all it may leaves room for the next one."""

from __future__ import annotations

import pytest

from roquet.service.shares import FACTOR, SMALL, Shares, may_hold

MOST = 100_000


def test_alone_a_user_gets_four_fifths() -> None:
    assert may_hold(80_000, 80_000, MOST)
    assert not may_hold(80_001, 80_001, MOST)


def test_small_tables_and_small_users_are_bounded_by_the_table_alone() -> None:
    assert may_hold(3, 3, 3)
    assert not may_hold(1, 4, 3)
    assert may_hold(SMALL, MOST, MOST)
    assert not may_hold(SMALL + 1, MOST, MOST)


@pytest.mark.parametrize("greedy", [1, 2, 3])
@pytest.mark.parametrize("in_turns", [False, True])
def test_users_that_take_all_they_may_leave_room(greedy: int, *, in_turns: bool) -> None:
    shares = Shares()
    turns = [*range(greedy)] * MOST if in_turns else sorted([*range(greedy)] * MOST)
    for user in turns:
        if may_hold(shares.of(user) + 1, shares.total + 1, MOST):
            shares.add(user)
    left = MOST - shares.total
    assert left >= MOST // (1 + FACTOR) ** greedy
    assert not in_turns or left >= MOST // (1 + FACTOR * greedy)
    assert may_hold(left // 2, shares.total + left // 2, MOST)


def test_entries_that_move_or_go_are_counted() -> None:
    shares = Shares()
    shares.add("a", 5)
    shares.move("a", "b", 3)
    shares.move("b", "b", 3)
    assert (shares.of("a"), shares.of("b"), shares.total) == (2, 3, 5)
    shares.add("a", -2)
    shares.add("b", -3)
    assert (shares.of("a"), shares.of("b"), shares.total) == (0, 0, 0)
    assert not shares._held, "users that have nothing take no memory"
    with pytest.raises(AssertionError, match="gives back more"):
        shares.add("a", -1)
