"""Checkpoints in memory and the acknowledgements that they met. Pure: no I/O, times are arguments.

Invariant: the committed offset of a group and queue never passes a checkpoint that is neither
acknowledged whole nor stored together with the acknowledgements that it met. Each queue has a list
of what was popped, in order; only its head leaves, and takes the committed offset along. So what a
crash takes from memory is popped again. While there is a list, the committed offset is where its
head begins: one that is lower was set by somebody, and the group goes on there.

A checkpoint leaves in one of two ways: acknowledged whole it is forgotten; otherwise it is *due*
after a while, its record is stored, then those of its acknowledgements. While that happens it takes
further acknowledgements: it goes only when the last of them is stored.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.broker.pop.buffer.rules import BufferConfig
    from roquet.protocol.pop.records import MergeKey, PopCheckpoint

Key = tuple[str, str, int]
"""(topic read, group, queue id)."""

SLACK_MS = 1500
"""What must be left of the time in the buffer for a checkpoint or an acknowledgement to enter."""
RETRY_MS = 1000
"""Before another try to store what the store did not take."""
BACK_MS = 1000
"""A clock that goes back further makes everything due: times in memory mean nothing any more."""
_SPARE = 1024
"""Times of checkpoints that have left which the list of times keeps at most beside the others."""


@dataclasses.dataclass(slots=True, eq=False)
class Buffered:
    """A checkpoint of the buffer, or how far a queue was read without one (`checkpoint` None)."""

    key: Key
    next_offset: int
    """Where the queue goes on behind it."""
    checkpoint: PopCheckpoint | None = None
    revive_queue: int = 0
    acked: int = 0
    """Messages that are acknowledged: bit i for message i."""
    stored: int = 0
    """Messages whose acknowledgement is stored."""
    is_stored: bool = False
    """Whether the checkpoint is stored."""
    is_busy: bool = False
    """Whether the checkpoint is being stored: its record may be in the log already."""
    is_dropped: bool = False
    """Whether nobody needs it any more: its topic or group is gone."""
    name: MergeKey | None = None
    """What acknowledgements find the checkpoint by."""

    @property
    def is_done(self) -> bool:
        """Whether nothing of it is left in memory alone."""
        if self.checkpoint is None or self.is_dropped:
            return True
        if self.is_busy:
            return False
        if self.is_stored:
            return self.acked == self.stored
        return self.acked == (1 << self.checkpoint.count) - 1

    def unstored(self) -> list[int]:
        """Return the bits of acknowledgements that are in memory alone."""
        assert self.checkpoint is not None
        rest = self.acked & ~self.stored
        return [bit for bit in range(self.checkpoint.count) if rest >> bit & 1]


class MergeBuffer:
    """The checkpoints, by merge key, by queue and by time."""

    def __init__(self, rules: BufferConfig, commit: Callable[[Key, int | None, int], None]) -> None:
        """`commit(key, begin, offset)` is called when a group's offset may move.

        `begin` is where it stands unless somebody has set it; None: where that is, is not known.
        """
        self._rules = rules
        self._commit = commit
        self._by_key: dict[MergeKey, Buffered] = {}
        self._queues: dict[Key, collections.deque[Buffered]] = {}
        self._times: list[tuple[int, int, Buffered]] = []
        self._turn = 0
        self._is_loose = False
        self._last_ms = 0
        self.merged_acks = 0
        """Acknowledgements taken."""
        self.unsaved = 0
        """Checkpoints that were acknowledged whole and never stored."""

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def has_queues(self) -> bool:
        """Whether a queue goes on elsewhere than the committed offset says."""
        return bool(self._queues)

    @property
    def offsets(self) -> int:
        """The entries of all lists: what stands before committed offsets."""
        return sum(map(len, self._queues.values()))

    @property
    def times(self) -> int:
        """The times kept, of checkpoints that have left as well."""
        return len(self._times)

    def follow(self, rules: BufferConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules
        times = [it for _, _, it in self._times]
        self._times = []
        for entry in times:
            self._schedule(entry)

    def clear(self) -> None:
        """Forget everything: what was not stored is popped again by the committed offset."""
        self._is_loose = False
        self._by_key.clear()
        self._queues.clear()
        self._times.clear()

    # --- pops -----------------------------------------------------------------------------------

    def add(
        self, checkpoint: PopCheckpoint, revive_queue: int, next_offset: int, now_ms: int
    ) -> bool:
        """Take a checkpoint whose queue goes on at `next_offset`; False: it must be stored."""
        rules = self._rules
        if (
            not rules.enabled
            or checkpoint.revive_ms - now_ms < rules.margin_ms + SLACK_MS
            or len(self._by_key) >= rules.checkpoints_max
        ):
            return False
        name = checkpoint.merge_key
        key = name[:3]
        # An empty list is entered with its first checkpoint.
        queue = self._queues.get(key) or collections.deque[Buffered]()
        if len(queue) >= rules.queue_max:
            return False
        assert name not in self._by_key, "whoever adds asks `knows` before"
        assert not queue or next_offset >= queue[-1].next_offset, "pops go forward"
        entry = Buffered(key, next_offset, checkpoint, revive_queue, name=name)
        self._by_key[name] = entry
        if not queue:
            self._queues[key] = queue
        queue.append(entry)
        self._schedule(entry)
        return True

    def admits(self, keys: Sequence[Key], revive_ms: int, now_ms: int) -> bool | None:
        """Tell whether `add` would take a checkpoint of each of these queues; None: of some."""
        rules = self._rules
        if not rules.enabled or revive_ms - now_ms < rules.margin_ms + SLACK_MS:
            return False
        left = rules.checkpoints_max - len(self._by_key)
        if left <= 0:
            return False
        has_room = [len(self._queues.get(key, ())) < rules.queue_max for key in keys]
        return True if all(has_room) and len(keys) <= left else None

    @property
    def may_repeat(self) -> bool:
        """Whether a queue may go on where a checkpoint in memory began.

        It goes on behind all of its list: only checkpoints without a list can be met again.
        """
        return self._is_loose

    def knows(self, checkpoint: PopCheckpoint) -> bool:
        """Tell whether one with the same name is here: they could not be told apart."""
        return self.knows_key(checkpoint.merge_key)

    def knows_key(self, key: MergeKey) -> bool:
        """Tell it of a checkpoint with a certain name."""
        return bool(self._by_key) and key in self._by_key

    def passed(self, key: Key, next_offset: int, begin: int | None = None) -> None:
        """Note that a queue was read up to an offset, with nothing to keep in memory.

        The group's offset moves there when everything popped before has left. `begin` is where the
        read began, for those who have waited since.
        """
        queue = self._queues.get(key)
        if queue is None:
            self._commit(key, begin, next_offset)
            return
        last = queue[-1]
        if last.checkpoint is None:
            last.next_offset = max(last.next_offset, next_offset)
        else:
            queue.append(Buffered(key, next_offset))

    def position(self, key: Key) -> int | None:
        """Return where a queue goes on; None: where the committed offset says."""
        queue = self._queues.get(key)
        return None if queue is None else queue[-1].next_offset

    def is_set_back(self, key: Key, committed: int) -> bool:
        """Tell whether somebody has lowered the committed offset of a queue with a list."""
        queue = self._queues.get(key)
        return queue is not None and committed < _begin(queue[0])

    def forget_offsets(self, key: Key) -> None:
        """Let a queue begin elsewhere; its checkpoints stay, and move no offset any more."""
        self._is_loose |= self._queues.pop(key, None) is not None

    # --- acknowledgements -----------------------------------------------------------------------

    def ack(self, merge_key: MergeKey, offsets: Sequence[int], now_ms: int) -> bool:
        """Take acknowledgements for a checkpoint; False: they must be stored."""
        entry = self._open(merge_key, now_ms)
        if entry is None:
            return False
        checkpoint = entry.checkpoint
        assert checkpoint is not None
        for offset in offsets:
            bit = checkpoint.index_of(offset)
            if bit >= 0:
                entry.acked |= 1 << bit
        self.merged_acks += len(offsets)
        if entry.is_done:
            self.unsaved += 1
            self._leave(entry)
        return True

    def ack_each(self, merge_key: MergeKey, offsets: Sequence[int], now_ms: int) -> int:
        """Take acknowledgements one by one; return how many, the rest of them must be stored."""
        entry = self._open(merge_key, now_ms)
        if entry is None or entry.checkpoint is None:
            return 0
        index_of = entry.checkpoint.index_of
        taken = 0
        for offset in offsets:
            taken += 1
            bit = index_of(offset)
            if bit >= 0:
                entry.acked |= 1 << bit
            if entry.is_done:
                self.unsaved += 1
                self._leave(entry)
                break
        self.merged_acks += taken
        return taken

    # --- what has to be stored ------------------------------------------------------------------

    def due_in_ms(self, now_ms: int) -> int | None:
        """Return when the next checkpoint has to be stored; None: there is none."""
        self._check_clock(now_ms)
        while self._times and self._times[0][2].is_done:
            heapq.heappop(self._times)
        return max(0, self._times[0][0] - now_ms) if self._times else None

    def take_due(self, now_ms: int, most: int) -> list[Buffered]:
        """Take checkpoints that have to be stored now; `settled` says what became of each."""
        self._check_clock(now_ms)
        return self._take(most, lambda due_ms: due_ms <= now_ms)

    def take_queue(self, key: Key) -> list[Buffered]:
        """Take all checkpoints of a queue, whenever they are due."""
        taken = [it for it in self._queues.get(key, ()) if not it.is_done]
        for entry in taken:
            self._begin(entry)
        gone = set(map(id, taken))
        self._times = [it for it in self._times if id(it[2]) not in gone]
        heapq.heapify(self._times)
        return taken

    def take_all(self, most: int) -> list[Buffered]:
        """Take checkpoints, the oldest first, whenever they are due."""
        return self._take(most, lambda _: True)

    def checkpoint_stored(self, entry: Buffered) -> None:
        """Note that the record of a checkpoint is in the log."""
        assert entry.is_busy
        entry.is_stored = True

    def ack_stored(self, entry: Buffered, bits: Sequence[int]) -> None:
        """Note that acknowledgements of a stored checkpoint are in the log."""
        assert entry.is_stored, "a checkpoint goes before its acknowledgements"
        for bit in bits:
            entry.stored |= 1 << bit

    def drop(self, entry: Buffered) -> None:
        """Give a checkpoint up: its topic or group is gone."""
        entry.is_dropped = True

    def settled(self, entry: Buffered, now_ms: int) -> None:
        """End an attempt to store a checkpoint; what is not stored has another one later."""
        assert entry.is_busy
        entry.is_busy = False
        if entry.is_done:
            self._leave(entry)
        else:
            self._push(entry, now_ms + RETRY_MS)

    # --- parts of these -------------------------------------------------------------------------

    def _open(self, merge_key: MergeKey, now_ms: int) -> Buffered | None:
        """Return the checkpoint that acknowledgements are for, if it still takes some."""
        entry = self._by_key.get(merge_key)
        if entry is None or entry.is_stored:
            return None
        checkpoint, rules = entry.checkpoint, self._rules
        assert checkpoint is not None
        if not rules.enabled or checkpoint.revive_ms - now_ms < rules.margin_ms + SLACK_MS:
            return None
        return None if now_ms - checkpoint.pop_time_ms > rules.stay_ms - SLACK_MS else entry

    def _take(self, most: int, is_due: Callable[[int], bool]) -> list[Buffered]:
        taken: list[Buffered] = []
        while self._times and len(taken) < most and is_due(self._times[0][0]):
            entry = heapq.heappop(self._times)[2]
            if not entry.is_done:
                self._begin(entry)
                taken.append(entry)
        return taken

    def _begin(self, entry: Buffered) -> None:
        assert not entry.is_busy, "one attempt at a time"
        entry.is_busy = True

    def _schedule(self, entry: Buffered) -> None:
        checkpoint, rules = entry.checkpoint, self._rules
        assert checkpoint is not None
        due_ms = min(checkpoint.pop_time_ms + rules.stay_ms, checkpoint.revive_ms - rules.margin_ms)
        self._push(entry, due_ms if rules.enabled else 0)

    def _push(self, entry: Buffered, due_ms: int) -> None:
        if len(self._times) > 2 * len(self._by_key) + _SPARE:
            self._times = [it for it in self._times if not it[2].is_done]
            heapq.heapify(self._times)
        self._turn += 1
        heapq.heappush(self._times, (due_ms, self._turn, entry))

    def _leave(self, entry: Buffered) -> None:
        """Forget a checkpoint, and move the group's offset as far as its list allows."""
        assert entry.name is not None, "it has a checkpoint"
        del self._by_key[entry.name]
        self._is_loose = self._is_loose and bool(self._by_key)
        queue = self._queues.get(entry.key)
        if queue is None or queue[0] is not entry:
            return
        offset, begin = None, _begin(entry)
        while queue and queue[0].is_done:
            offset = queue.popleft().next_offset
        if not queue:
            del self._queues[entry.key]
        assert offset is not None
        self._commit(entry.key, begin, offset)

    def _check_clock(self, now_ms: int) -> None:
        if now_ms < self._last_ms - BACK_MS:
            self._times = [(0, turn, entry) for _, turn, entry in self._times]
            heapq.heapify(self._times)
        self._last_ms = now_ms


def _begin(head: Buffered) -> int:
    """Return where the first entry of a list begins."""
    assert head.checkpoint is not None, "what was passed leaves with the checkpoint before it"
    return head.checkpoint.start_offset
