"""Which queue a row goes to. Pure.

Small tasks send one batch each: were all to begin with the same queue, it would get every row. So
each task begins with another one, and neighbours in turn are queues of different brokers.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.client import MessageQueue


def first_turn(run: str, partition: int) -> int:
    """Return the turn that a task begins with: neighbours differ, and so do runs."""
    return zlib.crc32(run.encode()) + partition


class Placement:
    """The queues of one topic, as the options choose among them."""

    def __init__(self, topic: str, queues: Sequence[MessageQueue], broker: str | None) -> None:
        """Keep the order of `queues` for keys; `broker` is that of rows that name none."""
        self._topic = topic
        self._broker = broker
        self._all = queues
        self._mine = [it for it in queues if broker is None or it.broker_name == broker]
        self._in_turn = sorted(self._mine, key=lambda it: (it.queue_id, it.broker_name))

    def has(self, broker: str | None) -> bool:
        """Whether a broker has queues of the topic; None: any."""
        return any(broker is None or it.broker_name == broker for it in self._all)

    @property
    def for_keys(self) -> Sequence[MessageQueue]:
        """The queues among which the hash of a row's key chooses."""
        return self._mine

    def in_turn(self, turn: int) -> MessageQueue:
        """Return where rows of a turn go that may go anywhere."""
        return self._in_turn[turn % len(self._in_turn)]

    def named(self, broker: str | None, queue_id: int | None) -> MessageQueue:
        """Return the queue of a number; without a broker always the same one of those that have it.

        So rows of one number stay in order, and all brokers get some of the numbers.

        Raises UsageError.
        """
        broker = broker or self._broker
        found = sorted(
            (
                it
                for it in self._all
                if it.queue_id == queue_id and (broker is None or it.broker_name == broker)
            ),
            key=lambda it: it.broker_name,
        )
        if queue_id is not None and found:
            return found[queue_id % len(found)]
        of = "" if broker is None else f" of broker {broker}"
        has = sorted({it.queue_id for it in self._all if broker in {None, it.broker_name}})
        held = f"queues 0 to {has[-1]}" if has else f"queues of {', '.join(_brokers(self._all))}"
        raise UsageError(f"queueId {queue_id}{of}: topic {self._topic} has {held}")


def _brokers(queues: Sequence[MessageQueue]) -> list[str]:
    return sorted({it.broker_name for it in queues})
