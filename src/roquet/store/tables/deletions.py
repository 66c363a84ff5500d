"""When topics and groups were deleted: `roquetDeletions.json`.

A name may be used again, and its queues begin at offset 0 once more. Handles and checkpoints of
pops from before name messages of the former topic, or deliveries of the former group: they settle
nothing of the new ones, and bring nothing of them back. The time of the pop tells them apart.

Invariant: nothing that was popped after a deletion counts as popped before. So a deletion that lies
ahead of the clock, which was set back since, is forgotten: then messages may come twice, as they do
without this file, but none is lost.

A deletion takes several files, and a kill may come between any two. So it is noted as begun before
the first of them, with what the log says of the topic until then: when the log says something else
at the next start, the queues are gone, and the rest is done then. A deletion that did not get that
far has not happened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import Corrupt, RoquetError
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.base.clock import Clock
    from roquet.store.tables.files import JsonFile

log = logging.getLogger(__name__)

KEPT_MS = 8 * 24 * 3_600_000
"""No checkpoint waits longer for its acknowledgements and its next try."""
NAMES_MAX = 100_000
"""Names of each kind that are known; of more the oldest are forgotten."""
FILE_SIZE_MAX = 64 * 1024 * 1024


class Times(NamedTuple):
    """Names of both kinds with the Unix milliseconds of their deletion."""

    topics: dict[str, int]
    groups: dict[str, int]


class Begun(NamedTuple):
    """A deletion that has begun."""

    at_ms: int
    """Unix milliseconds."""
    ends: dict[str, int]
    """The topic and its retry topics, each with the log's end at its last deletion before."""


class Deletions:
    """Knows which pops are of a former topic or group."""

    def __init__(self, file: JsonFile | None, clock: Clock) -> None:
        """Without a file a start knows nothing."""
        self._file = file
        self._clock = clock
        self._topics: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._begun: dict[str, Begun] = {}
        self._changes = 0
        self._saved = 0
        self._began_ms = clock.now_ms()
        self._listener: Callable[[], None] | None = None

    @property
    def version(self) -> str:
        """Another text whenever another deletion is known, also after another start."""
        return f"{self._began_ms}.{self._changes}"

    def listen(self, listener: Callable[[], None]) -> None:
        """Have the only listener called in the step in which a deletion is noted."""
        self._listener = listener

    def load(self) -> None:
        """Take over what is durable; when it is damaged, begin without and say so."""
        if self._file is None:
            return
        try:
            found = self._file.load(_decode)
        except Corrupt as error:
            log.warning("messages of topics that were made again may come twice: %s", error)
            return
        if found is not None:
            self._topics, self._groups, self._begun = found

    async def persist(self) -> None:
        """Make the deletions durable; returns at once when none has changed.

        Nobody's deletion fails with this file: that it cannot be saved is only said.
        """
        if self._file is None:
            return
        async with self._file.writing:
            changes = self._changes
            if self._saved == changes:
                return
            tables: dict[str, object] = {
                "groups": dict(self._groups),
                "topics": dict(self._topics),
            }
            if self._begun:
                tables["begun"] = {name: begun._asdict() for name, begun in self._begun.items()}
            try:
                await self._file.save(lambda: fastjson.pretty(tables))
            except (OSError, RoquetError) as error:
                log.warning("when topics and groups were deleted is not saved: %s", error)
                return
            self._saved = changes

    @property
    def begun(self) -> dict[str, Begun]:
        """What has begun and not ended, by topic."""
        return dict(self._begun)

    def begin(self, topic: str, ends: Mapping[str, int]) -> None:
        """Note that a topic's deletion begins; `ends` as in `Begun`."""
        self._begun[topic] = Begun(self._clock.now_ms(), dict(ends))
        self._changes += 1

    def end(self, topic: str) -> None:
        """Note that a topic's deletion is over, done or refused."""
        if self._begun.pop(topic, None) is not None:
            self._changes += 1

    def topic(self, name: str) -> Callable[[], None]:
        """Note that a topic, or the queue of a light topic, is being deleted.

        Returns what takes it back when it could not be.
        """
        before = self._topics.get(name)
        self._note(self._topics, name)

        def undo() -> None:
            self._topics = self._without(self._topics, name, before)

        return undo

    def group(self, name: str) -> Callable[[], None]:
        """Note that a group is being deleted, with its offsets; returns what takes it back."""
        before = self._groups.get(name)
        self._note(self._groups, name)

        def undo() -> None:
            self._groups = self._without(self._groups, name, before)

        return undo

    def covers(self, topic: str, group: str, pop_time_ms: int) -> bool:
        """Tell whether topic or group were deleted after a pop."""
        if not self._topics and not self._groups:
            return False
        self.look()
        latest = max(self._topics.get(topic, -1), self._groups.get(group, -1))
        return pop_time_ms <= latest

    def latest_ms(self) -> int:
        """Return the time of the latest deletion of any name, Unix milliseconds; -1 without one."""
        self.look()
        ends = (next(reversed(table.values()), -1) for table in (self._topics, self._groups))
        return max(ends)

    def export(self) -> Times:
        """Return a copy of all that is known."""
        return Times(dict(self._topics), dict(self._groups))

    def news(self, topics: Mapping[str, int], groups: Mapping[str, int]) -> Times:
        """Return those of another broker's deletions that are later than what is known here."""
        return Times(_later(topics, self._topics), _later(groups, self._groups))

    def adopt(self, news: Times) -> None:
        """Take over deletions that another broker has made."""
        self._topics = _latest({**self._topics, **news.topics})
        self._groups = _latest({**self._groups, **news.groups})
        self._changes += 1

    def look(self) -> None:
        """Forget deletions ahead of the clock, and those that are too old to matter."""
        now_ms = self._clock.now_ms()
        for table in (self._topics, self._groups):
            # Deletions stand in the order of their times: only the ends can be out of the span.
            while table and (last := next(reversed(table.items())))[1] > now_ms:
                self._drop(table, last[0])
            while table and (first := next(iter(table.items())))[1] < now_ms - KEPT_MS:
                self._drop(table, first[0])

    def _note(self, table: dict[str, int], name: str) -> None:
        self.look()
        table.pop(name, None)
        table[name] = self._clock.now_ms()
        self._changes += 1
        if len(table) > NAMES_MAX:
            self._drop(table, next(iter(table)))
        if self._listener is not None:
            self._listener()

    def _without(self, table: dict[str, int], name: str, before: int | None) -> dict[str, int]:
        self._changes += 1
        table.pop(name, None)
        return table if before is None else _latest({**table, name: before})

    def _drop(self, table: dict[str, int], name: str) -> None:
        del table[name]
        self._changes += 1


def _decode(data: bytes) -> tuple[dict[str, int], dict[str, int], dict[str, Begun]]:
    source = fastjson.read_object(data, tolerant_size_max=FILE_SIZE_MAX)
    topics, groups = (_times(fields.obj(source, kind)) for kind in ("topics", "groups"))
    rows = fields.obj(source, "begun")
    return topics, groups, {name: _begun(fields.obj(rows, name)) for name in rows}


def _begun(source: Mapping[str, object]) -> Begun:
    ends = fields.obj(source, "ends")
    return Begun(fields.i64(source, "at_ms"), {name: fields.i64(ends, name) for name in ends})


def _times(source: Mapping[str, object]) -> dict[str, int]:
    return _latest({name: fields.i64(source, name) for name in source})


def _latest(times: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(times.items(), key=lambda pair: pair[1])[-NAMES_MAX:])


def _later(times: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    return {name: at_ms for name, at_ms in times.items() if at_ms > known.get(name, -1)}
