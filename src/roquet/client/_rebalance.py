"""Which queues a member of a consumer group gets: the averaging strategy. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.model.queue import MessageQueue


def average(
    queues: Sequence[MessageQueue], clients: Sequence[str], me: str
) -> tuple[MessageQueue, ...]:
    """Return my share: contiguous, sizes differing by at most one (Java: AVG).

    Every member computes it alone, so both lists are sorted here: queues by topic, broker and id,
    clients as plain text. A client that is not in the list gets nothing.
    """
    members = sorted(set(clients))
    if me not in members or not queues:
        return ()
    ordered = sorted(queues)
    index = members.index(me)
    share, rest = divmod(len(ordered), len(members))
    start = index * share + min(index, rest)
    return tuple(ordered[start : start + share + (1 if index < rest else 0)])
