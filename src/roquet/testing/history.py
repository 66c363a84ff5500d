"""What producers, consumers and readers saw, and whether a message broker may behave so.

A history is a list of events in the order in which they were seen by one recorder. `check` walks it
once (time grows with the number of events) and returns every broken promise:

L1 every acknowledged message is read back at its queue and offset, or was consumed;
L2 nothing is there that was never sent, or was refused, or has another content;
L3 an offset holds one message for ever, offsets of a queue have no gap, and a message sent after
   another was acknowledged comes behind it in the queue;
L4 a message is stored at most as often as it was sent, and consumed again only after a restart of
   its group and not below what was committed;
L5 a committed offset never falls without a reset and never passes what was processed;
L6 a half message is seen only when somebody tried to commit it, and not more often than that was
   tried; a commit that was acknowledged makes it visible, a roll-back keeps it away;
L7 a delayed message is never stored in its topic before its time, and is there in the end;
L8 a message that was acknowledged one by one (pop) is not handed out again;
L9 replicas have the same bytes of the log, and a new master goes on behind every acknowledged
   offset.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from roquet.base.errors import RoquetError
from roquet.testing.history_rules import EVENTS, Event, Prepared, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

VIOLATIONS_MAX = 100

Queue = tuple[str, int]
Place = tuple[str, int, int]


class HistoryError(RoquetError):
    """A ledger that cannot be read, or events that no recorder writes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sent(Event):
    """A send began; a retry of the same message is another one."""

    message: str
    topic: str
    crc: int


@dataclasses.dataclass(frozen=True, slots=True)
class Acked(Event):
    """The broker said SEND_OK."""

    message: str
    topic: str
    queue: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown(Event):
    """The send ended without an answer that says either way: the message may be there or not."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class Failed(Event):
    """The broker refused the send: the message must not be there because of it."""

    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class ReadBack(Event):
    """A reading of the queues begins; its `Found` events follow.

    A complete one shows every queue from its begin; another only a part of each without a gap.
    """

    complete: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Found(Event):
    """A message was read from its queue."""

    topic: str
    queue: int
    offset: int
    message: str
    crc: int


@dataclasses.dataclass(frozen=True, slots=True)
class Consumed(Event):
    """A group processed a message."""

    group: str
    topic: str
    queue: int
    offset: int
    message: str
    crc: int


@dataclasses.dataclass(frozen=True, slots=True)
class Committed(Event):
    """A group's offset was stored; `reset` when somebody asked for another place."""

    group: str
    topic: str
    queue: int
    offset: int
    reset: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Restarted(Event):
    """A consumer of the group, or its broker, started anew: it goes on from what is committed."""

    group: str


_EVENTS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        *(Sent, Acked, Unknown, Failed, ReadBack, Found, Consumed, Committed, Restarted),
        *EVENTS,
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: which rule, and what was seen."""

    rule: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Counts of a history and what is wrong with it (the first hundred findings)."""

    counts: dict[str, int]
    duplicates: int
    violations: list[Violation]


def check(history: Iterable[Event], *, read_back: bool = True) -> Verdict:
    """Check a history; with `read_back` each acknowledged message must be in every reading."""
    checker = _Checker(read_back)
    counts: Counter[str] = Counter()
    for event in history:
        counts[type(event).__name__] += 1
        checker.take(event)
    checker.finish()
    return Verdict(dict(counts), checker.duplicates(), checker.violations)


def append(path: Path, events: Iterable[Event]) -> None:
    """Append events to a ledger file, one JSON line each."""
    with path.open("a", encoding="utf-8") as ledger:
        for event in events:
            fields = dataclasses.asdict(event)  # type: ignore[call-overload]
            ledger.write(json.dumps({"event": type(event).__name__, **fields}) + "\n")


def load(path: Path) -> Iterator[Event]:
    """Read a ledger file; raises HistoryError that names the line which is none."""
    with path.open(encoding="utf-8") as ledger:
        for number, line in enumerate(ledger, 1):
            try:
                fields: dict[str, Any] = json.loads(line)
                yield _EVENTS[fields.pop("event")](**fields)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise HistoryError(f"{path}, line {number}: no event: {error!r}") from error


@dataclasses.dataclass(slots=True)
class _Send:
    """What is known of one message."""

    topic: str
    crc: int
    begun: int
    attempts: int = 1
    refused: int = 0
    places: set[Place] = dataclasses.field(default_factory=set[Place])


@dataclasses.dataclass(slots=True)
class _Progress:
    """How far one group is in one queue."""

    prefix: int
    beyond: set[int] = dataclasses.field(default_factory=set[int])
    committed: int = -1
    epoch_floor: int = -1
    seen: dict[int, int] = dataclasses.field(default_factory=dict[int, int])

    def process(self, offset: int) -> None:
        if offset < self.prefix:
            return
        self.beyond.add(offset)
        while self.prefix in self.beyond:
            self.beyond.remove(self.prefix)
            self.prefix += 1


class _Checker:
    def __init__(self, read_back: bool) -> None:
        self.violations: list[Violation] = []
        self._read_back = read_back
        self._now = 0
        self._sends: dict[str, _Send] = {}
        self._holds: dict[Place, str] = {}
        self._acks: dict[Queue, tuple[list[int], list[int]]] = {}
        self._acked: dict[Place, str] = {}
        self._consumed: set[str] = set()
        self._progress: dict[tuple[str, Queue], _Progress] = {}
        self._epochs: Counter[str] = Counter()
        self._due: dict[Place, str] | None = None
        self._was_complete = False
        self._round: dict[Queue, list[int]] = defaultdict(list)
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            Sent: self._sent,
            Acked: self._ack,
            Unknown: lambda _: None,
            Failed: self._failed,
            ReadBack: self._reading,
            Found: self._found,
            Consumed: self._consume,
            Committed: self._commit,
            Restarted: self._restart,
        }
        rules = Rules(self._broken)
        self._rules = rules
        self._handlers |= rules.handlers()

    def take(self, event: Event) -> None:
        self._now += 1
        if isinstance(event, Prepared):
            # It may never be seen, but if so, then as it was sent.
            self._sent(Sent(event.message, event.topic, event.crc))
        self._handlers[type(event)](event)

    def finish(self) -> None:
        self._end_reading()
        seen = {name: len(send.places) for name, send in self._sends.items() if send.places}
        self._rules.finish(seen)
        for message, send in self._sends.items():
            if len(send.places) > send.attempts and not self._rules.judges(message):
                self._broken("L4", f"{message} sent {send.attempts} times is at {send.places}")
            if send.places and send.refused >= send.attempts:
                self._broken("L2", f"{message} was refused and is at {send.places}")
        if not self._was_complete:
            for place, message in self._acked.items():
                if message not in self._consumed:
                    self._broken("L1", f"{message} acknowledged at {place} was never seen again")

    def duplicates(self) -> int:
        return sum(max(0, len(send.places) - 1) for send in self._sends.values())

    def _broken(self, rule: str, text: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(rule, text))

    def _sent(self, event: Sent) -> None:
        known = self._sends.get(event.message)
        if known is None:
            self._sends[event.message] = _Send(event.topic, event.crc, self._now)
        elif (known.topic, known.crc) != (event.topic, event.crc):
            raise HistoryError(f"two different messages have the name {event.message}")
        else:
            known.attempts += 1

    def _failed(self, event: Failed) -> None:
        self._sends[event.message].refused += 1

    def _ack(self, event: Acked) -> None:
        place = (event.topic, event.queue, event.offset)
        send = self._sends.get(event.message)
        if send is None:
            raise HistoryError(f"{event.message} was acknowledged before it was sent")
        self._seen(event.message, send.crc, place)
        self._acked[place] = event.message
        self._rules.acknowledged((event.topic, event.queue), event.offset)
        times, offsets = self._acks.setdefault((event.topic, event.queue), ([], []))
        times.append(self._now)
        offsets.append(max(event.offset, offsets[-1] if offsets else -1))

    def _seen(self, message: str, crc: int, place: Place) -> None:
        """Note that a message is at a place, whoever says so."""
        send = self._sends.get(message)
        if send is None:
            self._broken("L2", f"{message} at {place} was never sent")
            return
        if send.crc != crc or send.topic != place[0]:
            self._broken("L2", f"{message} at {place} is not what was sent")
        held = self._holds.setdefault(place, message)
        if held != message:
            self._broken("L3", f"{place} held {held} and now {message}")
        if place in send.places:
            return
        send.places.add(place)
        self._rules.seen(message)
        times, offsets = self._acks.get(place[:2], ([], []))
        before = bisect.bisect_left(times, send.begun)
        if before and place[2] <= offsets[before - 1]:
            text = f"{message} at {place} was sent after offset {offsets[before - 1]} was there"
            self._broken("L3", text)

    def _reading(self, event: ReadBack) -> None:
        self._end_reading()
        self._due = dict(self._acked) if self._read_back and event.complete else {}
        self._was_complete |= event.complete
        self._round.clear()

    def _found(self, event: Found) -> None:
        if self._due is None:
            raise HistoryError("a message was found before any reading began")
        place = (event.topic, event.queue, event.offset)
        self._seen(event.message, event.crc, place)
        self._due.pop(place, None)
        self._round[event.topic, event.queue].append(event.offset)

    def _end_reading(self) -> None:
        for place, message in (self._due or {}).items():
            self._broken("L1", f"{message} acknowledged at {place} was not read back")
        for queue, offsets in self._round.items():
            offsets.sort()
            for low, high in itertools.pairwise(offsets):
                if high != low + 1:
                    self._broken("L3", f"{queue}: offset {high} was read after {low}")

    def _consume(self, event: Consumed) -> None:
        queue = (event.topic, event.queue)
        self._seen(event.message, event.crc, (*queue, event.offset))
        self._consumed.add(event.message)
        progress = self._progress.setdefault((event.group, queue), _Progress(event.offset))
        epoch = self._epochs[event.group]
        last = progress.seen.get(event.offset)
        where = f"{event.group} consumed {event.message} at {queue} {event.offset}"
        if last == epoch:
            self._broken("L4", f"{where} twice without a restart")
        elif last is not None and event.offset < progress.epoch_floor:
            self._broken("L4", f"{where} again, below {progress.epoch_floor} committed before")
        progress.seen[event.offset] = epoch
        progress.process(event.offset)

    def _commit(self, event: Committed) -> None:
        queue = (event.topic, event.queue)
        known = self._progress.get((event.group, queue))
        progress = known or _Progress(event.offset)
        self._progress[event.group, queue] = progress
        where = f"{event.group} at {queue} committed {event.offset}"
        if event.reset:
            progress.prefix = event.offset
            progress.beyond.clear()
            progress.epoch_floor = min(progress.epoch_floor, event.offset)
        elif event.offset < progress.committed:
            self._broken("L5", f"{where} after {progress.committed}")
        if known and event.offset > progress.prefix:
            self._broken("L5", f"{where}, but {progress.prefix} is not processed")
        progress.committed = event.offset

    def _restart(self, event: Restarted) -> None:
        self._epochs[event.group] += 1
        for (group, _), progress in self._progress.items():
            if group == event.group:
                progress.epoch_floor = progress.committed
