"""What a lake's catalog comes to: which parts count, and where each queue goes on. Pure.

Invariant: the summary of some commits, added to that of others, is the summary of all of them, in
any order. So each checkpoint has that of its commits in its note, and a reader adds up notes
instead of lines: a lake of 10,000 commits of 2,000 queues has 20,000,000 lines, and 100 notes of
2,000 queues each.

A part that replaces others has their offsets, so the end of a queue is that of any line of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

ADD: Final = "add"


class Part(NamedTuple):
    """A part's place."""

    topic: str
    day: str
    part: str


class Held(NamedTuple):
    """A queue of the source, as a lake names it."""

    topic: str
    broker: str
    queue: int


class _Line(msgspec.Struct):
    """What is asked of a line; those that remove a part have no queue."""

    op: str
    topic: str
    day: str
    part: str
    brokerName: str = ""  # noqa: N815  (names of the files)
    queueId: int = 0  # noqa: N815
    toOffset: int = -1  # noqa: N815
    files: int = 0


_LINES: Final = msgspec.json.Decoder(_Line)


class Summary:
    """Parts and ends of the lines that were added."""

    def __init__(self) -> None:
        """Begin with no line."""
        self._added: set[Part] = set()
        self._gone: set[Part] = set()
        self._files: dict[Part, int] = {}
        self._ends: dict[Held, int] = {}

    def parts(self) -> set[Part]:
        """Return the parts that count: added, and neither removed nor retired."""
        return self._added - self._gone

    def ever(self) -> set[Part]:
        """Return all parts that were added, also those that count no longer."""
        return set(self._added)

    def ends(self) -> dict[Held, int]:
        """Return the offset after the last that was ever archived, by queue."""
        return dict(self._ends)

    def files(self, place: Part) -> int:
        """Return how many files a part has; 0 when no line says so: earlier releases did not."""
        return self._files.get(place, 0)

    def add_part(self, op: str, place: Part, files: int = 0) -> None:
        """Take what a line does to a part."""
        (self._added if op == ADD else self._gone).add(place)
        if files:
            self._files[place] = files

    def add_end(self, queue: Held, end: int) -> None:
        """Take the end of a queue in one line, or in many."""
        self._ends[queue] = max(end, self._ends.get(queue, 0))

    def add_lines(self, text: str) -> None:
        """Take the lines of a commit. Raises ValueError when they are damaged."""
        for it in _LINES.decode_lines(text):
            self.add_part(it.op, Part(it.topic, it.day, it.part), it.files)
            if it.op == ADD:
                if it.toOffset < 0 or not it.brokerName:
                    raise ValueError(f"{it.part} is added without a queue or an end")
                self.add_end(Held(it.topic, it.brokerName, it.queueId), it.toOffset)

    def add(self, other: Summary) -> None:
        """Take all of another summary."""
        self._added |= other._added
        self._gone |= other._gone
        self._files |= other._files
        for queue, end in other._ends.items():
            self.add_end(queue, end)

    def to_json(self) -> dict[str, Any]:
        """Return what a note keeps."""
        return {
            "added": sorted(self._added),
            "gone": sorted(self._gone),
            "files": [[*place, count] for place, count in sorted(self._files.items())],
            "ends": [[*queue, end] for queue, end in sorted(self._ends.items())],
        }


def from_json(found: Any) -> Summary:
    """Read what a note keeps. Raises ValueError, TypeError, KeyError when it is damaged."""
    made = Summary()
    for op, name in ((ADD, "added"), ("gone", "gone")):
        for place in _rows(found[name]):
            made.add_part(op, Part(*map(str, place)))
    # Notes of earlier releases have none.
    for topic, day, part, count in _rows(found.get("files", [])):
        made.add_part(ADD, Part(str(topic), str(day), str(part)), int(count))
    for topic, broker, queue, end in _rows(found["ends"]):
        made.add_end(Held(str(topic), str(broker), int(queue)), int(end))
    return made


def _rows(found: Any) -> Iterable[list[Any]]:
    if not isinstance(found, list):
        raise TypeError(f"a list is expected, not {type(found).__name__}")
    return cast("list[list[Any]]", found)
