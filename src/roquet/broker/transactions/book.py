"""Which half messages are settled: the book-keeping of the half queue and the op queue. Pure.

A half message is settled when its op record says so, or when a newer copy of it has been written
behind it. Below `half_offset` everything is settled; above it the settled ones are a set of ranges.
Op records may be forgotten once all that they name lies below `half_offset`.
"""

from __future__ import annotations

from collections import deque

from roquet.broker.transactions.ranges import OffsetSet


class TransactionBook:
    """What is known of the half messages of one queue, by offset in that queue."""

    def __init__(self) -> None:
        """Begin at the start of both queues."""
        self.half_offset = 0
        """Everything below is settled."""
        self.op_offset = 0
        """Op records below have nothing to say any more."""
        self._settled = OffsetSet()
        self._ops: deque[tuple[int, int]] = deque()
        self._newer: dict[int, int] = {}
        self._older: dict[int, list[int]] = {}

    def begin(self, half_offset: int, op_offset: int) -> None:
        """Forget everything and begin where the two committed offsets say."""
        self.half_offset, self.op_offset = half_offset, op_offset
        self._settled = OffsetSet()
        for table in (self._ops, self._newer, self._older):
            table.clear()

    def is_settled(self, offset: int) -> bool:
        """Tell whether nothing more is to be done about a half message at this place."""
        return offset < self.half_offset or offset in self._settled

    def next_open(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not settled."""
        return self._settled.next_missing(max(offset, self.half_offset))

    def living(self, offset: int) -> int | None:
        """Return where the open copy of a half message is; None when it is settled.

        A producer that is late names the place at which it stored the message, not the copy's.
        """
        newest = self._newer.get(offset, offset)
        return None if self.is_settled(newest) else newest

    def settle(self, offset: int) -> None:
        """Note that a half message is committed, rolled back or put aside."""
        if offset >= self.half_offset:
            self._settled.add(offset)
        for older in self._older.pop(offset, ()):
            del self._newer[older]

    def move(self, old: int, new: int) -> None:
        """Note that the half message at `old` now counts at `new`, where a copy of it is."""
        older = [*self._older.pop(old, ()), old]
        for one in older:
            self._newer[one] = new
        self._older.setdefault(new, []).extend(older)
        if old >= self.half_offset:
            self._settled.add(old)

    def note_op(self, op_offset: int, highest_half: int) -> None:
        """Note an op record and the highest half offset it names; call in order of the op queue."""
        self._ops.append((op_offset, highest_half))

    def advance(self) -> bool:
        """Move both offsets over what is settled; tell whether either moved."""
        before = (self.half_offset, self.op_offset)
        self.half_offset = self._settled.next_missing(self.half_offset)
        self._settled.drop_below(self.half_offset)
        while self._ops and self._ops[0][1] < self.half_offset:
            self.op_offset = max(self.op_offset, self._ops.popleft()[0] + 1)
        return before != (self.half_offset, self.op_offset)

    def jump(self, offset: int) -> None:
        """Go on at `offset`, because what was below has been deleted."""
        self.half_offset = max(self.half_offset, offset)
        self._settled.drop_below(self.half_offset)
