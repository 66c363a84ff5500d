"""How a replay is cut into waves, so that it can go on where it stopped. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from roquet.spark.jobs.storage.catalog import Entry

VERSION: Final = 1
NAMED_MAX: Final = 5
"""Brokers that a line names."""
RATE_SECONDS: Final = 2
"""How long a rate may be exceeded before the replay waits."""


class Origin(NamedTuple):
    """A queue of the archive."""

    topic: str
    broker: str
    queue: int


class Place(NamedTuple):
    """A queue of the topic that gets the messages."""

    broker: str
    queue: int


class Slice(NamedTuple):
    """Offsets of one queue that were stored on one day. `end` is the one after the last."""

    topic: str
    day: str
    broker: str
    queue: int
    begin: int
    end: int

    @property
    def origin(self) -> Origin:
        """The queue that it is of."""
        return Origin(self.topic, self.broker, self.queue)


Wave = list[Slice]


def wave_rows(limit: int, rate: int | None) -> int:
    """Return how many offsets a wave has at most."""
    return limit if rate is None else max(1, min(limit, RATE_SECONDS * rate))


def waves(entries: Iterable[Entry], rows: int) -> list[Wave]:
    """Cut what a lake holds into waves of at most `rows` offsets, day after day.

    Queues of a day go on together, each in the order of its offsets.
    """
    pieces: list[tuple[str, int, Slice]] = []
    begun: dict[tuple[str, str, str, int], int] = {}
    for it in sorted(entries, key=lambda it: (it.place.day, it.from_offset)):
        key = (it.place.topic, it.place.day, it.broker, it.queue)
        first = begun.setdefault(key, it.from_offset)
        for begin in range(it.from_offset, it.to_offset, rows):
            end = min(begin + rows, it.to_offset)
            turn = (begin - first) // rows
            pieces.append((it.place.day, turn, Slice(*key, begin, end)))
    found: list[Wave] = []
    room = 0
    for _, _, piece in sorted(pieces):
        size = piece.end - piece.begin
        if size > room:
            found.append([])
            room = rows
        found[-1].append(piece)
        room -= size
    return found


def places(
    targets: Mapping[Origin, str], held: Mapping[str, Collection[Place]]
) -> dict[Origin, Place]:
    """Return where each queue goes, given its target topic and the queues that topics have.

    It keeps broker and number where the topic has them, the broker at least where it has that one.
    A queue goes to one other, so messages of a queue stay in their order.
    """
    found: dict[Origin, Place] = {}
    for origin, target in targets.items():
        every = sorted(held[target])
        mine = [it for it in every if it.broker == origin.broker] or every
        same = Place(origin.broker, origin.queue)
        if same in mine:
            found[origin] = same
            continue
        numbers = sorted({it.queue for it in mine})
        number = numbers[origin.queue % len(numbers)]
        having = [it for it in mine if it.queue == number]
        found[origin] = having[number % len(having)]
    return found


def merged(targets: Mapping[Origin, str], found: Mapping[Origin, Place]) -> list[str]:
    """Return a line for each topic whose queues do not all keep broker and number."""
    lines: list[str] = []
    for target in sorted(set(targets.values())):
        mine = {it: found[it] for it, topic in targets.items() if topic == target}
        moved = [it for it, to in mine.items() if (it.broker, it.queue) != to]
        shared = len(set(mine.values()))
        if not moved and shared == len(mine):
            continue
        brokers = sorted({it.broker for it, to in mine.items() if it.broker != to.broker})
        why = f"; it has no broker {', '.join(brokers[:NAMED_MAX])}" if brokers else ""
        verb = "are merged into" if shared < len(mine) else "go to"
        lines.append(
            f"{target}: {len(mine):,} queues of the archive {verb} {shared:,},"
            f" {len(moved):,} of them change broker or number{why}"
        )
    return lines


def to_text(options: Mapping[str, object], planned: Iterable[Wave]) -> str:
    """Return a plan as it is kept."""
    return json.dumps({"version": VERSION, "options": dict(options), "waves": list(planned)})


def from_text(text: str, options: Mapping[str, object]) -> list[Wave]:
    """Read a plan. Raises UsageError when it was made with other options."""
    try:
        found = json.loads(text)
        version, made = found["version"], found["options"]
        planned = [[Slice(*it) for it in wave] for wave in found["waves"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"the plan of this replay cannot be read: {error}") from error
    if version != VERSION:
        raise UsageError(f"the plan of this replay is of version {version}, not {VERSION}")
    if made != dict(options):
        differ = sorted(name for name in {*made, *options} if made.get(name) != options.get(name))
        raise UsageError(
            f"this replay was begun with other options ({', '.join(differ)}); another `run` begins"
            " anew"
        )
    return planned
