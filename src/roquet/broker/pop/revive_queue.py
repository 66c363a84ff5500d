"""One revive queue: which checkpoints wait, and which are due. Pure, and without a clock.

Records are taken in the order of the queue. A checkpoint waits for its acknowledgements until the
queue is known to hold everything up to 2 s after its revive time; then what is not acknowledged is
to be delivered again. Checkpoints are settled in the order of the queue.

Invariant: every checkpoint at or below `settled` is settled, so whoever starts again behind
`settled` meets every checkpoint that is not, and all its acknowledgements behind it.

The timer wheel brings a checkpoint one second before its acknowledgements. Only when it lags may
they change places; an acknowledgement without a checkpoint is therefore remembered for a while
(`stray_acks`), together with those of the other revive queues.

A Java broker reads the queue from the first unsettled record in every round; here a record is read
once and waits in memory. What is known of the timer wheel also comes from the wheel itself, where
Java guesses from the largest time that it has read.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.pop.drafts import ACKS, CHECKPOINTS
from roquet.broker.pop.stray_acks import StrayAcks
from roquet.protocol import properties as props
from roquet.protocol.fastjson import JsonError
from roquet.protocol.pop.records import (
    PopAck,
    PopCheckpoint,
    has_bit,
    read_record,
    with_bit,
)
from roquet.service.counting import LabelCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.pop.records import MergeKey

SLACK_MS = 2000
"""How far the queue must be read behind a checkpoint's revive time."""
EARLY_MS = 60_000
"""A checkpoint that is due so much later has no business here: it goes back to the timer wheel."""


@dataclasses.dataclass(slots=True)
class Waiting:
    """A checkpoint of the queue."""

    checkpoint: PopCheckpoint
    offset: int
    """Where its record lies."""
    bits: int
    """Messages that are acknowledged or settled otherwise."""

    def unacked(self) -> list[tuple[int, int]]:
        """Return (bit, queue offset) of the messages that are to be delivered again."""
        offsets, bits = enumerate(self.checkpoint.offsets()), self.bits
        if not bits:
            # Nobody has acknowledged any of them: what is redelivered is mostly so.
            return list(offsets)
        return [(bit, offset) for bit, offset in offsets if not has_bit(bits, bit)]

    def as_it_stands(self) -> PopCheckpoint:
        """Return the checkpoint with what is acknowledged by now."""
        return dataclasses.replace(self.checkpoint, bits=self.bits)

    def done(self, bit: int) -> None:
        """Note that a message is acknowledged or settled."""
        self.bits = with_bit(self.bits, bit)


@dataclasses.dataclass(slots=True)
class ReviveCounts:
    """What a revive queue has brought."""

    checkpoints: int = 0
    acks: int = 0
    stray_acks: int = 0
    """Acknowledgements whose checkpoint was not there."""
    unreadable: int = 0
    of_owners: LabelCounts = dataclasses.field(default_factory=LabelCounts)
    """The same by (kind, topic, group)."""


class ReviveQueue:
    """The checkpoints of one revive queue between being read and being settled."""

    def __init__(self, settled: int, broker_name: str, strays: StrayAcks | None = None) -> None:
        """Begin behind the record at offset `settled`; -1 for the start of the queue.

        `strays` remembers acknowledgements without a checkpoint, also for other queues.
        """
        self._broker_name = broker_name
        self._waiting: collections.deque[Waiting] = collections.deque()
        self._by_key: dict[MergeKey, list[Waiting]] = {}
        self._strays = StrayAcks() if strays is None else strays
        self._read_to_ms = 0
        self._settled = settled
        self._own: set[int] = set()
        self.next_offset = settled + 1
        self.counts = ReviveCounts()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def settled(self) -> int:
        """The offset of the last record behind which nothing older waits; -1 when there is none."""
        first = self._waiting[0].offset if self._waiting else self.next_offset
        return max(self._settled, first - 1)

    @property
    def head(self) -> Waiting | None:
        """The checkpoint to be settled next."""
        return self._waiting[0] if self._waiting else None

    def popped_after(self, now_ms: int) -> list[Waiting]:
        """Return checkpoints of pops that are still to come, by this time."""
        return [it for it in self._waiting if it.checkpoint.pop_time_ms > now_ms]

    # --- reading --------------------------------------------------------------------------------

    def take(self, offset: int, properties: Mapping[str, str], body: bytes, now_ms: int) -> None:
        """Take the next record of the queue."""
        assert offset >= self.next_offset, "records come in the order of the queue"
        self.next_offset = offset + 1
        if offset in self._own:
            self._own.remove(offset)
            return
        try:
            read = read_record(properties.get(props.TAGS), body)
            if isinstance(read, PopCheckpoint):
                self._checkpoint(read, offset)
            elif read is not None:
                self._ack(read, now_ms)
        except JsonError:
            # Java fails here and reads the same record for ever.
            self.counts.unreadable += 1
        # What did not pass through the wheel says nothing about how far the wheel is.
        if props.TIMER_OUT_MS in properties:
            due_ms = _number(properties.get(props.TIMER_DELIVER_MS, ""))
            self._read_to_ms = max(self._read_to_ms, min(due_ms, now_ms))

    def wrote(self, offset: int) -> None:
        """Note the offset of a record that says what is known here already: it is passed over."""
        if offset >= self.next_offset:
            self._own.add(offset)

    def skip_to(self, offset: int, *, unreadable: int = 0) -> None:
        """Go on at an offset: the records before it are gone, or `unreadable` of them damaged."""
        assert offset >= self.next_offset, "no record is read twice"
        self._own = {it for it in self._own if it >= offset}
        self.counts.unreadable += unreadable
        self.next_offset = offset

    def caught_up(self, to_ms: int) -> None:
        """Note that everything due up to a time has been read, Unix milliseconds."""
        self._read_to_ms = max(self._read_to_ms, to_ms)

    def clock_is(self, now_ms: int) -> None:
        """Forget what lies in the future after the clock was set back."""
        self._read_to_ms = min(self._read_to_ms, now_ms)

    def _checkpoint(self, checkpoint: PopCheckpoint, offset: int) -> None:
        self.counts.checkpoints += 1
        self.counts.of_owners.add((CHECKPOINTS, checkpoint.topic or "", checkpoint.group or ""))
        if checkpoint.topic is None or checkpoint.group is None:
            return
        key = checkpoint.merge_key
        same = self._by_key.setdefault(key, [])
        if any(waiting.checkpoint == checkpoint for waiting in same):
            # The wheel fires a record again after a crash.
            return
        waiting = Waiting(checkpoint, offset, checkpoint.bits)
        if len(self._strays):
            for bit, message in enumerate(checkpoint.offsets()):
                if self._strays.pop(key, message):
                    waiting.done(bit)
        same.append(waiting)
        self._waiting.append(waiting)

    def _ack(self, ack: PopAck, now_ms: int) -> None:
        key = ack.merge_key(self._broker_name)
        found = self._by_key.get(key)
        for offset in ack.offsets:
            self.counts.acks += 1
            self.counts.of_owners.add((ACKS, ack.topic or "", ack.group or ""))
            if found is None:
                self.counts.stray_acks += 1
                self._strays.add(key, offset, now_ms)
                continue
            for waiting in found:
                bit = waiting.checkpoint.index_of(offset)
                if bit >= 0:
                    waiting.done(bit)

    # --- settling -------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Tell whether the first checkpoint has had all its acknowledgements."""
        head = self.head
        return head is not None and self._read_to_ms - head.checkpoint.revive_ms > SLACK_MS

    def is_early(self, now_ms: int) -> bool:
        """Tell whether the first checkpoint is due so late that the timer wheel should have it."""
        head = self.head
        return head is not None and head.checkpoint.revive_ms - now_ms > EARLY_MS

    def settle(self) -> Waiting:
        """Take the first checkpoint away: whoever calls has dealt with all its messages."""
        waiting = self._waiting.popleft()
        key = waiting.checkpoint.merge_key
        same = self._by_key[key]
        same.remove(waiting)
        if not same:
            del self._by_key[key]
        return waiting


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
