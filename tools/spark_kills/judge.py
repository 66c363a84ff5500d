"""What a topic has after kills, by a client and a reader that are not the product's."""

from __future__ import annotations

import collections
import dataclasses
import json
import time

from tools.attack.kills import Finding, read
from tools.attack.raw import RawClient

QUEUES = 4
"""Of the topics, both of them."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is wrong with a topic that was to get the numbers from 0 on, each once."""

    lost: int
    twice: int
    """Rows beyond the first of a number."""
    foreign: int
    """Rows of numbers that nobody sent."""

    @property
    def is_good(self) -> bool:
        """Whether each number is there once, and nothing else."""
        return self == Verdict(0, 0, 0)


BEHIND, RUNTIME = "dispatchBehindBytes", 28
DISPATCH_S = 60.0


def seen(address: str, topic: str) -> collections.Counter[int]:
    """Return how often each number is in a topic. Raises Finding, ValueError for other bodies."""
    found: collections.Counter[int] = collections.Counter()
    with RawClient(address) as client:
        # Queues are written behind the log: what is not in them yet would not be counted.
        late = time.monotonic() + DISPATCH_S
        while json.loads(client.call(RUNTIME).body)["table"][BEHIND] != "0":
            if time.monotonic() > late:
                raise Finding(f"the queues of {address} are behind its log")
            time.sleep(0.02)
        for number in range(QUEUES):
            for one in read(client, (topic, number), 0, 0):
                found[int(one.body)] += 1
    return found


def verdict(found: collections.Counter[int], sent: int) -> Verdict:
    """Compare what was seen with what was sent: the numbers below `sent`. Pure."""
    mine = {number: count for number, count in found.items() if 0 <= number < sent}
    return Verdict(
        lost=sent - len(mine),
        twice=sum(mine.values()) - len(mine),
        foreign=found.total() - sum(mine.values()),
    )
