"""Where each row of a batch goes, as numbers for the encoder.

A *lot* is a queue together with whether its messages are sent one by one. Rows that may go
anywhere fill one lot with the rows of a request, then the next one in turn.
"""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from roquet import _native as native
from roquet.base.errors import UsageError
from roquet.protocol import names
from roquet.spark.sink.columns import texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.client import MessageQueue
    from roquet.spark.options import SinkOptions
    from roquet.spark.sink.columns import Columns
    from roquet.spark.sink.placing import Placement

BATCH_ROWS: Final = 256
"""Messages of one request, all of one queue."""


class Lot(NamedTuple):
    """Where messages go that may share a request."""

    queue: MessageQueue
    alone: bool
    """Brokers take delayed messages and half messages one by one only."""


class Routing:
    """Gives each row its lot. The placements of topics are its caller's to find."""

    def __init__(self, options: SinkOptions, turn: int, *, alone: bool = False) -> None:
        """Begin with the queue of `turn`; with `alone` every message is sent by itself."""
        self._partitioner = options.partitioner
        self._turn = turn
        self._alone = alone
        self._numbers: dict[Lot, int] = {}
        self._open: dict[tuple[str, bool], tuple[int, int]] = {}
        self.lots: list[Lot] = []
        """By number; there are at most two for each queue."""

    def lots_of(
        self,
        columns: Columns,
        topics: Sequence[str],
        levels: Sequence[int],
        placements: Mapping[str, Placement],
    ) -> array[int]:
        """Return the number of each row's lot. Raises UsageError for a queue that is not there."""
        if self._partitioner == "queue":
            return self._named(columns, topics, levels, placements)
        if self._partitioner == "key":
            return self._by_key(columns, topics, levels, placements)
        found = array("i")
        for (topic, level), same in itertools.groupby(zip(topics, levels, strict=True)):
            self._in_turn(found, placements[topic], topic, level > 0, sum(1 for _ in same))
        return found

    def _in_turn(
        self, found: array[int], placement: Placement, topic: str, delayed: bool, count: int
    ) -> None:
        while count:
            number, left = self._open.get((topic, delayed), (0, 0))
            if not left:
                number, left = self._number(placement.in_turn(self._turn), delayed), BATCH_ROWS
                self._turn += 1
            taken = min(left, count)
            found.extend(itertools.repeat(number, taken))
            self._open[topic, delayed] = number, left - taken
            count -= taken

    def _by_key(
        self,
        columns: Columns,
        topics: Sequence[str],
        levels: Sequence[int],
        placements: Mapping[str, Placement],
    ) -> array[int]:
        keys = columns.sharding_keys()
        hashes = array("i", native.java_hashes(len(keys), texts(pa.array(keys, pa.string()))))
        known: dict[tuple[str, bool], list[int]] = {}
        found = array("i")
        for topic, key, value, level in zip(topics, keys, hashes, levels, strict=True):
            if not key:
                self._in_turn(found, placements[topic], topic, level > 0, 1)
                continue
            here = known.get((topic, level > 0))
            if here is None:
                here = [self._number(it, level > 0) for it in placements[topic].for_keys]
                known[topic, level > 0] = here
            found.append(here[value % len(here)])
        return found

    def _named(
        self,
        columns: Columns,
        topics: Sequence[str],
        levels: Sequence[int],
        placements: Mapping[str, Placement],
    ) -> array[int]:
        known: dict[tuple[str, str | None, int | None, bool], int] = {}
        found = array("i")
        ids, brokers = columns.values("queueId"), columns.values("brokerName")
        for topic, broker, queue_id, level in zip(topics, brokers, ids, levels, strict=True):
            place = (topic, broker, queue_id, level > 0)
            number = known.get(place)
            if number is None:
                queue = placements[topic].named(broker, queue_id)
                number = known[place] = self._number(queue, level > 0)
            found.append(number)
        return found

    def _number(self, queue: MessageQueue, delayed: bool) -> int:
        lot = Lot(queue, delayed or self._alone)
        number = self._numbers.get(lot)
        if number is None:
            if names.is_retry(queue.topic) and not lot.alone:
                raise UsageError("a batch cannot go to a retry topic")
            number = self._numbers[lot] = len(self.lots)
            self.lots.append(lot)
        return number
