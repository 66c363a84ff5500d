"""The rules of a history beyond plain queues: transactions, delays, pop and replicas (L6 to L9)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Event:
    """Something that somebody saw."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared(Event):
    """A half message of a transaction was sent; whether it was stored does not matter."""

    message: str
    topic: str
    crc: int


@dataclasses.dataclass(frozen=True, slots=True)
class Ended(Event):
    """A transaction is about to be ended, or, `sure`, the broker has said that it took notice."""

    message: str
    commit: bool
    sure: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Delayed(Event):
    """A message that was sent is for later: not before `due_ms` (Unix), `sure` when SEND_OK."""

    message: str
    due_ms: int
    sure: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered(Event):
    """A delayed message was seen in its topic, where it was stored at `at_ms` (Unix)."""

    message: str
    at_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class PopAcked(Event):
    """A group's acknowledgement of one message was taken."""

    group: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Popped(Event):
    """A group was handed one message."""

    group: str
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Replica(Event):
    """The checksum of a range of a broker's log, both brokers at rest."""

    broker: str
    begin: int
    end: int
    crc: int


@dataclasses.dataclass(frozen=True, slots=True)
class FailedOver(Event):
    """Another broker is master; the next offset that it gives in a queue."""

    topic: str
    queue: int
    next_offset: int


EVENTS: tuple[type[Event], ...] = (
    Prepared,
    Ended,
    Delayed,
    Delivered,
    PopAcked,
    Popped,
    Replica,
    FailedOver,
)


@dataclasses.dataclass(slots=True)
class _Half:
    """What is known of one transaction."""

    commits: int = 0
    committed: bool = False
    rolled_back: bool = False


@dataclasses.dataclass(slots=True)
class _Late:
    """What is known of one delayed message."""

    due_ms: int
    sure: bool
    delivered: bool = False


class Rules:
    """Walks with the checker; `broken(rule, text)` is told of each broken promise."""

    def __init__(self, broken: Callable[[str, str], None]) -> None:
        """Know nothing yet."""
        self._broken = broken
        self._halves: dict[str, _Half] = {}
        self._late: dict[str, _Late] = {}
        self._popped: set[tuple[str, str]] = set()
        self._replicas: dict[tuple[int, int], tuple[str, int]] = {}
        self._acked: Counter[tuple[str, int]] = Counter()

    def handlers(self) -> Mapping[type[Event], Callable[[Any], None]]:
        """Return what takes which event."""
        return {
            Prepared: self._prepared,
            Ended: self._ended,
            Delayed: self._delayed,
            Delivered: self._delivered,
            PopAcked: self._pop_acked,
            Popped: self._pop,
            Replica: self._replica,
            FailedOver: self._failed_over,
        }

    def judges(self, message: str) -> bool:
        """Tell whether it is judged here how often a message may be there.

        A delayed one may come again after a kill: how far delivery is is saved now and then.
        """
        return message in self._halves or message in self._late

    def seen(self, message: str) -> None:
        """Note that a message was found at a place where it was not known before."""
        half = self._halves.get(message)
        if half is None:
            return
        if half.commits == 0:
            self._broken("L6", f"{message} is visible, but nobody has committed it")
        if half.rolled_back:
            self._broken("L6", f"{message} is visible, but was rolled back")

    def acknowledged(self, queue: tuple[str, int], offset: int) -> None:
        """Note that an offset was given to an acknowledged message."""
        self._acked[queue] = max(self._acked[queue], offset + 1)

    def finish(self, seen: Mapping[str, int]) -> None:
        """Judge what only the end shows; `seen` says at how many places each message is."""
        for message, half in self._halves.items():
            places = seen.get(message, 0)
            if half.committed and not places:
                self._broken("L6", f"{message} was committed and is not visible")
            if places > max(1, half.commits):
                self._broken(
                    "L6", f"{message}, committed {half.commits} times, is there {places} times"
                )
        for message, late in self._late.items():
            if late.sure and not late.delivered:
                self._broken("L7", f"{message}, due at {late.due_ms}, never came")

    def _prepared(self, event: Prepared) -> None:
        self._halves.setdefault(event.message, _Half())

    def _ended(self, event: Ended) -> None:
        half = self._halves.setdefault(event.message, _Half())
        if event.commit:
            half.commits += not event.sure
            half.committed |= event.sure
        else:
            half.rolled_back |= event.sure

    def _delayed(self, event: Delayed) -> None:
        known = self._late.setdefault(event.message, _Late(event.due_ms, event.sure))
        known.due_ms = min(known.due_ms, event.due_ms)
        known.sure |= event.sure

    def _delivered(self, event: Delivered) -> None:
        late = self._late.get(event.message)
        if late is None:
            self._broken("L7", f"{event.message} was delivered as delayed and is not")
            return
        late.delivered = True
        if event.at_ms < late.due_ms:
            early = late.due_ms - event.at_ms
            self._broken("L7", f"{event.message} came {early} ms early, at {event.at_ms}")

    def _pop_acked(self, event: PopAcked) -> None:
        self._popped.add((event.group, event.message))

    def _pop(self, event: Popped) -> None:
        if (event.group, event.message) in self._popped:
            self._broken("L8", f"{event.group} got {event.message} after acknowledging it")

    def _replica(self, event: Replica) -> None:
        place = (event.begin, event.end)
        broker, crc = self._replicas.setdefault(place, (event.broker, event.crc))
        if crc != event.crc:
            self._broken("L9", f"{broker} and {event.broker} differ in {place} of the log")

    def _failed_over(self, event: FailedOver) -> None:
        known = self._acked[event.topic, event.queue]
        if event.next_offset < known:
            where = f"{event.topic}-{event.queue}"
            self._broken(
                "L9", f"the new master would use offset {event.next_offset} of {where} again"
            )
