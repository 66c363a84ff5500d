"""How much of a bounded table each of its users holds, and how much one of them may.

One user must not fill a table that all of them need. A fixed part for each would be too small for a
lone proxy that speaks for thousands of clients, or too large for many users. So the bound of each
is `FACTOR` times the room that is left for all, as in switches that share one buffer ("dynamic
thresholds"): alone, one gets 4/5 of the table and leaves a fifth; a second one that is as greedy
leaves a fifth of that. A user with at most `SMALL` entries is judged by the table's bound alone.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

FACTOR = 4
SMALL = 100


class Shares:
    """Entries of a table by user; the table itself is somebody else's."""

    def __init__(self) -> None:
        self._held: collections.Counter[Hashable] = collections.Counter()
        self.total = 0
        """Entries of all users."""

    def add(self, user: Hashable, count: int = 1) -> None:
        """Note entries of a user; fewer with a negative count."""
        self.total += count
        held = self._held[user] + count
        assert held >= 0, "nobody gives back more than it has"
        if held:
            self._held[user] = held
        else:
            del self._held[user]

    def move(self, before: Hashable, after: Hashable, count: int) -> None:
        """Note that entries of one user are another's now."""
        if before != after and count:
            self.add(before, -count)
            self.add(after, count)

    def of(self, user: Hashable) -> int:
        """Return how many entries a user has."""
        return self._held[user]


def may_hold(held: int, total: int, most: int) -> bool:
    """Tell whether a user may have so many entries when all users together have `total`.

    Ask when entries are added: whoever has more than that, because others came, keeps them.
    """
    return total <= most and held <= max(SMALL, FACTOR * (most - total))
