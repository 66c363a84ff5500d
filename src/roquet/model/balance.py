"""Which queues a member of a consumer group gets. Pure.

Brokers and clients of all languages compute the same, so nothing is negotiated. Lists are sorted
here: queues by topic, broker and id, members as plain text. Who is no member gets nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.model.queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Strategy = Callable[[Iterable[MessageQueue], Iterable[str], str], tuple[MessageQueue, ...]]

ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""


def average(
    queues: Iterable[MessageQueue], members: Iterable[str], me: str
) -> tuple[MessageQueue, ...]:
    """Return my share: contiguous, sizes differing by at most one (Java: AVG)."""
    ids, ordered = sorted(set(members)), sorted(queues)
    if me not in ids:
        return ()
    index = ids.index(me)
    share, rest = divmod(len(ordered), len(ids))
    start = index * share + min(index, rest)
    return tuple(ordered[start : start + share + (1 if index < rest else 0)])


def by_circle(
    queues: Iterable[MessageQueue], members: Iterable[str], me: str
) -> tuple[MessageQueue, ...]:
    """Return my share: each n-th queue, for n members (Java: AVG_BY_CIRCLE)."""
    ids, ordered = sorted(set(members)), sorted(queues)
    return tuple(ordered[ids.index(me) :: len(ids)]) if me in ids else ()


STRATEGIES: Mapping[str, Strategy] = {"AVG": average, "AVG_BY_CIRCLE": by_circle}
"""The strategies that a broker knows."""


def pop_share(
    strategy: Strategy,
    queues: Sequence[MessageQueue],
    members: Iterable[str],
    me: str,
    others: int,
) -> tuple[MessageQueue, ...]:
    """Return the queues that I may pop: my share and those of so many members behind me.

    With `others` of 0 or less, or of nearly all members, it is every queue of each broker, which
    `ALL_QUEUES` stands for. With more members than queues each has one, so that none is idle.
    """
    ids = sorted(set(members))
    if others <= 0 or others >= len(ids) - 1:
        brokers = {(queue.topic, queue.broker_name) for queue in queues}
        return tuple(MessageQueue(topic, name, ALL_QUEUES) for topic, name in sorted(brokers))
    if me not in ids:
        return ()
    index = ids.index(me)
    if len(ids) > len(queues):
        return (sorted(queues)[index % len(queues)],)
    shared = (ids[(index + step) % len(ids)] for step in range(others + 1))
    return tuple(sorted({queue for one in shared for queue in strategy(queues, ids, one)}))
