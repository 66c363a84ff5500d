"""Which messages of a request are new, by the numbers that its producer gives them. Pure.

Invariant: in a queue, the messages of a producer's epoch have the numbers 0, 1, 2 ... without a
gap, in this order, each once. So one entry a producer is enough: its latest epoch, the next number,
and the chain of digests, which says what all numbers before stand for.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.messages.sequences import EXPIRY_MS, START, Stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

PRODUCERS_MAX: Final = 10_000
"""Producers of a queue that are remembered; another one is refused until one of them expires."""


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What a request says of its messages."""

    producer: str
    epoch: int
    first: int
    before: bytes
    """The chain in front of the first message."""
    links: Sequence[bytes]
    """The chain behind each message."""
    owner: str = ""
    """The account that sends them, as `protocol.messages.sequences.owner_of` names it."""

    def link(self, count: int) -> bytes:
        """Return the chain behind the first `count` messages."""
        return self.links[count - 1] if count else self.before

    def stamp(self, index: int) -> Stamp:
        """Return the stamp of a message, by its place in the request."""
        return Stamp(self.producer, self.epoch, self.first + index, self.links[index], self.owner)


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """How far a producer has come."""

    epoch: int
    next: int
    chain: bytes
    end: int
    """Where the record of its last message ends in the log."""
    stored_ms: int
    """When that message was stored, Unix milliseconds."""
    owner: str = ""
    """The account whose producer it is; empty: of whoever goes on with it."""

    def is_of_another(self, owner: str) -> bool:
        """Tell whether the producer belongs to another account than this one."""
        return bool(self.owner and owner) and self.owner != owner


class Producers:
    """The producers of one queue."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self.highest = -1
        """The highest queue offset of a message of theirs."""

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._entries)

    def get(self, producer: str, now_ms: int) -> Entry | None:
        """Return what is known of a producer; what has expired is not."""
        entry = self._entries.get(producer)
        if entry is not None and entry.stored_ms < now_ms - EXPIRY_MS:
            del self._entries[producer]
            return None
        return entry

    def judge(self, claim: Claim, now_ms: int) -> int:
        """Return how many of the messages are stored already: the first ones of the request.

        Raises Refusal for messages that do not continue what is stored.
        """
        entry = self.get(claim.producer, now_ms)
        if entry is None:
            self._check_room(now_ms)
        elif claim.epoch < entry.epoch:
            raise _contradiction(
                f"epoch {claim.epoch} of producer {claim.producer} is over: it has begun"
                f" {entry.epoch}"
            )
        is_begun = entry is not None and entry.epoch == claim.epoch
        known = entry.next if entry is not None and is_begun else 0
        chain = entry.chain if entry is not None and is_begun else START
        if claim.first > known:
            raise _contradiction(
                f"message {claim.first} of producer {claim.producer}, epoch {claim.epoch}, would"
                f" leave a gap: the queue has {known} of them"
            )
        if claim.first == 0 and claim.before != START:
            raise _contradiction("the chain begins with zeros")
        stored = known - claim.first
        if stored > len(claim.links):
            # The chain of that moment is not kept: the producer compares that of now.
            return len(claim.links)
        if claim.link(stored) != chain:
            raise _contradiction(
                f"the first {known} messages of producer {claim.producer}, epoch {claim.epoch},"
                " were others: they are stored, and these are not the same"
            )
        return stored

    def note(self, stamp: Stamp, *, end: int, queue_offset: int, stored_ms: int) -> None:
        """Remember a message that is in the log; an earlier one changes nothing."""
        self.highest = max(self.highest, queue_offset)
        entry = self._entries.get(stamp.producer)
        place = (stamp.epoch, stamp.number + 1)
        if entry is None or place > (entry.epoch, entry.next):
            self._entries[stamp.producer] = Entry(*place, stamp.chain, end, stored_ms, stamp.owner)

    def _check_room(self, now_ms: int) -> None:
        if len(self._entries) < PRODUCERS_MAX:
            return
        for name in list(self._entries):
            self.get(name, now_ms)
        if len(self._entries) >= PRODUCERS_MAX:
            raise Refusal(
                Reason.FAILED,
                f"the queue remembers {PRODUCERS_MAX} producers already, which is the limit",
            )


def _contradiction(text: str) -> Refusal:
    return Refusal(Reason.ILLEGAL_OPERATION, text)
