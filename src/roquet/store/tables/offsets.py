"""How far each consumer group is in each queue: `consumerOffset.json` (spec: store §8).

Committed offsets are saved every few seconds; what is lost in a crash is read a second time.
Offsets last pulled are kept for lag figures. A pending reset (server side) hides the committed
offset until the next pull takes it (spec: wire §10.5).

Slaves copy all committed offsets with one answer (43), which has to fit a frame: a slave, ours and
Java's, closes the connection at a longer one and copies no offset any more. So what they take in
that answer is counted, with offsets of 19 digits, and a new one that would not fit is refused.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from roquet.base.errors import TableFull
from roquet.base.limits import ANSWER_SIZE_MAX
from roquet.model.data_version import DataVersion
from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.service.background import give_way
from roquet.service.ratelog import RateLog
from roquet.service.slices import in_slices, write_pieces
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.tables.key_values import TwoRows, TwoTablesCodec
from roquet.store.tables.room import Room, text_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from roquet.base.clock import Clock
    from roquet.store.tables.key_values import KeyValues, TableForm

_Table: TypeAlias = "KeyValues[str, dict[int, int]]"
"""`topic@group` -> queue id -> offset; the inner table is changed in place."""
_Kept: TypeAlias = TwoRows[str, dict[int, int], str, dict[int, int]]

log = logging.getLogger(__name__)

OFFSETS_MAX = 2_000_000
"""Offsets kept, committed ones and those last pulled."""
_OFFSET_SIZE = 36
"""Bytes of an offset in the file, at most."""
_KEY_SIZE = 16
"""Bytes of a topic and group beside their names, each time that they stand in the file."""
_ANSWER_OFFSET_SIZE = 27
"""Bytes of a committed offset in the answer to a slave, at most."""
_ANSWER_KEY_SIZE = 8
FULL = (
    f"the table of offsets is full: it takes no more than {OFFSETS_MAX} entries, and what slaves"
    f" can copy in one answer of {ANSWER_SIZE_MAX} bytes"
)
KEYS_AT_ONCE = 500
"""Topics and groups that are copied or removed before others have their turn."""
OFFSETS_AT_ONCE = 20_000
"""Offsets that are copied before others have their turn."""

VERSION_STEP = 500
"""Changes after which the data version moves (consumerOffsetUpdateVersionStep)."""


class OffsetTable:
    """(group, topic, queue id) -> queue offset of the next message to consume."""

    def __init__(
        self,
        form: TableForm,
        clock: Clock,
        *,
        other_file: TableForm | None = None,
        light_queues: bool = False,
    ) -> None:
        """Begin empty; `load` takes those that were kept.

        RocketMQ has a file of its own for brokers with light queues. `other_file` is what the
        broker wrote before that setting changed: `load` takes the newer of the two.
        """
        encode, pieces = (_encode_light, _light_pieces) if light_queues else (_encode, _file_pieces)
        codec = TwoTablesCodec(_decode, encode, _copied, pieces)
        self._committed, self._pulled = form.two_tables(codec)
        self._other = None if other_file is None else other_file.two_tables(codec)
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())
        self._resets: dict[str, dict[int, int]] = {}
        self._committed_pairs = _Pairs()
        self._pulled_pairs = _Pairs()
        self._room = Room("offsets", OFFSETS_MAX)
        self._answer = Room("offsets that slaves copy", OFFSETS_MAX, ANSWER_SIZE_MAX)
        self._log = RateLog(log, clock)
        self._listeners: list[Callable[[Collection[str]], None]] = []
        self._changes = 0

    def __len__(self) -> int:
        return self._room.entries

    @property
    def version(self) -> DataVersion:
        """Moves every 500 commits, resets and copies, and with every removal."""
        return self._version

    def load(self) -> bool:
        """Take over the durable offsets, if any. Raises Corrupt when no copy is whole."""
        is_there = self._committed.load()
        self._version = self._committed.version or self._version
        if self._other is not None:
            committed, pulled = self._other
            is_other = committed.load()
            if is_other and (not is_there or _age(committed) > _age(self._committed)):
                log.info("consumer offsets come from the file before enableLmq was changed")
                self._committed.replace(committed.rows())
                self._pulled.replace(pulled.rows())
                # So that this file is the newer one from now on.
                self._version = committed.version or self._version
                self._move_version()
            self._other = None
            is_there = is_there or is_other
        self._committed_pairs.begin(self._committed.key_list())
        self._pulled_pairs.begin(self._pulled.key_list())
        self._count_all()
        if not is_there:
            # The next flush writes a file without rows too: one that is missing was removed then.
            self._committed.touch()
        return is_there

    async def persist(self) -> None:
        """Make the offsets durable; returns at once when nothing changed since the last time."""
        await self._committed.flush(self._version)

    async def encoded(self) -> bytes:
        """Return all committed offsets as slaves read them (43), written in slices."""
        version = self._version
        body = ConsumerOffsetBody(offsets=await _copied(self._committed), version=version)
        return b"".join(await write_pieces(body.pieces()))

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Have `listener(groups)` called when a reset of theirs begins or ends."""
        self._listeners.append(listener)

    # --- committed offsets -----------------------------------------------------------------

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, commits: int = 1
    ) -> bool:
        """Remember an offset, also one lower than before: the last of so many commits.

        Returns whether there was room for it: an offset that is known can always be moved.
        """
        key = f"{topic}@{group}"
        queues = self._place(self._committed, key, queue_id)
        if queues is None:
            return False
        if offset < queues.get(queue_id, offset):
            log.warning(
                "group %s goes back in %s queue %d: %d after %d",
                group,
                topic,
                queue_id,
                offset,
                queues[queue_id],
            )
        queues[queue_id] = offset
        self._committed.changed(key)
        self._changed(commits)
        return True

    def advance(
        self, group: str, topic: str, queue_id: int, offset: int, *, begin: int | None = None
    ) -> None:
        """Move a known offset forward; one below `begin` stays, and one that a reset waits for."""
        key = f"{topic}@{group}"
        queues = self._committed.get(key)
        known = None if queues is None else queues.get(queue_id)
        if queues is None or known is None or known >= offset:
            return
        if begin is not None and known < begin:
            return
        if self._resets and queue_id in self._resets.get(key, ()):
            return
        queues[queue_id] = offset
        self._committed.changed(key)
        self._changed(1)

    def set_back(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Lower a known offset to the end of a queue that lost its tail; the caller says so."""
        key = f"{topic}@{group}"
        queues = self._committed.get(key)
        if queues is not None and queues.get(queue_id, offset) > offset:
            queues[queue_id] = offset
            self._committed.changed(key)
            self._changed(1)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset the group continues at: a pending reset, else the committed one."""
        pending = self.pending_reset(group, topic, queue_id)
        if pending is not None:
            return pending
        return self.committed(group, topic, queue_id)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, whatever reset is pending."""
        queues = self._committed.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return a copy of the committed offsets of a group in a topic, by queue id."""
        return dict(self._committed.get(f"{topic}@{group}") or {})

    def pairs(self) -> list[tuple[str, str]]:
        """Return (topic, group) of all that have offsets."""
        return [_split(key) for key in self._committed.key_list()]

    def each_pair(self) -> Iterator[tuple[str, str]]:
        """Yield (topic, group) of all that have offsets by now; the table may change meanwhile."""
        return map(_split, self._committed.key_list())

    def groups(self) -> list[str]:
        """Return the groups that have offsets."""
        return list(self._committed_pairs.topics)

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return list(self._committed_pairs.topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return list(self._committed_pairs.groups.get(topic, ()))

    # --- offsets last pulled ---------------------------------------------------------------

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember the offset that a pull asked for, if there is room for it."""
        key = f"{topic}@{group}"
        queues = self._place(self._pulled, key, queue_id)
        if queues is not None:
            queues[queue_id] = offset
            self._pulled.changed(key, waits=True)

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset last pulled."""
        queues = self._pulled.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    # --- resets by the broker --------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Let the group continue at `offset`; its commits are ignored until a pull took it.

        Raises TableFull when there is no room for it.
        """
        key = f"{topic}@{group}"
        queues = self._place(self._committed, key, queue_id)
        if queues is None:
            raise TableFull(FULL)
        queues[queue_id] = offset
        self._committed.changed(key)
        self._resets.setdefault(key, {})[queue_id] = offset
        self._changed(1)
        self._resets_changed((group,))

    def has_reset(self, group: str) -> bool:
        """Whether any reset of the group waits for its pull."""
        if not self._resets:
            return False
        topics = self._committed_pairs.topics.get(group, ())
        return any(f"{topic}@{group}" in self._resets for topic in topics)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a reset that no pull has taken yet."""
        # Mostly there are none at all, and pops ask several times a queue.
        if not self._resets:
            return None
        return self._resets.get(f"{topic}@{group}", {}).get(queue_id)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and end a pending reset."""
        if not self._resets:
            return None
        queues = self._resets.get(f"{topic}@{group}", {})
        offset = queues.pop(queue_id, None)
        if offset is not None:
            if not queues:
                del self._resets[f"{topic}@{group}"]
            self._resets_changed((group,))
        return offset

    # --- removing --------------------------------------------------------------------------

    async def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets in a topic."""
        groups = {*self.groups_of(topic), *self._pulled_pairs.groups.get(topic, ())}
        await self._remove([f"{topic}@{group}" for group in groups])

    async def remove(self, topic: str, group: str) -> None:
        """Forget a group's offsets in a topic."""
        await self._remove([f"{topic}@{group}"])

    async def remove_group(self, group: str) -> None:
        """Forget a group's offsets in every topic."""
        topics = {*self.topics_of(group), *self._pulled_pairs.topics.get(group, ())}
        await self._remove([f"{topic}@{group}" for topic in topics])

    def copy_group(self, source: str, target: str, topic: str) -> None:
        """Give `target` the committed offsets of `source` in a topic.

        Raises TableFull when there is no room for them; then nothing has changed.
        """
        offsets = self._committed.get(f"{topic}@{source}")
        if offsets:
            key = f"{topic}@{target}"
            known = len(self._committed.get(key) or ())
            entries = len(offsets) - known
            self._answer.take(entries, _answer_size(entries, None if known else key))
            try:
                self._room.take(entries, _OFFSET_SIZE * entries + (0 if known else _key_size(key)))
            except TableFull:
                self._answer.add(-entries, -_answer_size(entries, None if known else key))
                raise
            self._committed.put(key, dict(offsets))
            self._committed_pairs.add(key)
            self._changed(1)

    def export(self) -> ConsumerOffsetBody:
        """Return a copy of the whole table, as the file and other brokers have it."""
        return ConsumerOffsetBody(
            offsets=_all(self._committed), version=self._version, pull_offsets=_all(self._pulled)
        )

    def _place(self, table: _Table, key: str, queue_id: int) -> dict[int, int] | None:
        """Return where the offset of a queue stands; None when there is no room for a new one."""
        queues = table.get(key)
        if queues is not None and queue_id in queues:
            return queues
        size = _OFFSET_SIZE if queues is not None else _OFFSET_SIZE + _key_size(key)
        is_committed = table is self._committed
        answer = _answer_size(1, key if queues is None else None) if is_committed else 0
        if not (self._room.fits(1, size) and self._answer.fits(int(is_committed), answer)):
            self._log.warning("full", f"{FULL}: {key[:300]} queue {queue_id} is not kept")
            return None
        self._room.add(1, size)
        self._answer.add(int(is_committed), answer)
        if queues is not None:
            return queues
        (self._committed_pairs if is_committed else self._pulled_pairs).add(key)
        made: dict[int, int] = {}
        table.put(key, made, waits=True)
        return made

    def _count_all(self) -> None:
        committed, pulled = _all(self._committed), _all(self._pulled)
        count = sum(map(len, committed.values()))
        entries = count + sum(map(len, pulled.values()))
        keys = sum(map(_key_size, (*committed, *pulled)))
        self._room.begin(entries, entries * _OFFSET_SIZE + keys)
        size = sum(_answer_size(0, key) for key in committed)
        self._answer.begin(count, size + _answer_size(count, None))

    async def _remove(self, keys: list[str]) -> None:
        async for key in in_slices(keys, KEYS_AT_ONCE):
            self._resets.pop(key, None)
            committed, pulled = self._committed.delete(key), self._pulled.delete(key)
            for queues in (committed, pulled):
                if queues is not None:
                    self._room.add(-len(queues), -_OFFSET_SIZE * len(queues) - _key_size(key))
            if committed is not None:
                self._answer.add(-len(committed), -_answer_size(len(committed), key))
            self._committed_pairs.remove(key)
            self._pulled_pairs.remove(key)
            self._resets_changed((_split(key)[1],))
        if keys:
            self._committed.touch()
            self._changes += 1
            self._move_version()

    def _resets_changed(self, groups: Collection[str]) -> None:
        for listener in self._listeners:
            listener(groups)

    def _changed(self, changes: int) -> None:
        """Count changes; the data version moves whenever a step of them is full."""
        steps = self._changes // VERSION_STEP
        self._changes += changes
        if self._changes // VERSION_STEP > steps:
            self._move_version()

    def _move_version(self) -> None:
        self._version = self._version.next(self._clock.now_ms())


class _Pairs:
    """Which topics and groups a table has, both ways; in the order in which they came."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, None]] = {}
        """Group -> its topics."""
        self.groups: dict[str, dict[str, None]] = {}
        """Topic -> its groups."""

    def begin(self, keys: Iterable[str]) -> None:
        self.topics, self.groups = {}, {}
        for key in keys:
            self.add(key)

    def add(self, key: str) -> None:
        topic, group = _split(key)
        self.topics.setdefault(group, {})[topic] = None
        self.groups.setdefault(topic, {})[group] = None

    def remove(self, key: str) -> None:
        topic, group = _split(key)
        for table, name, other in ((self.topics, group, topic), (self.groups, topic, group)):
            found = table.get(name)
            if found is not None:
                found.pop(other, None)
                if not found:
                    del table[name]


def _answer_size(entries: int, key: str | None) -> int:
    """Return how many bytes offsets, and their topic and group, take in an answer at most."""
    keys = 0 if key is None else text_size(key) + _ANSWER_KEY_SIZE
    return entries * _ANSWER_OFFSET_SIZE + keys


def _key_size(key: str) -> int:
    """Return how many bytes a topic and group take in the file: there, and among the topics."""
    return 2 * text_size(key) + 2 * _KEY_SIZE


def _split(key: str) -> tuple[str, str]:
    """Return (topic, group) of a table key."""
    topic, _, group = key.partition("@")
    return topic, group


def _age(table: _Table) -> tuple[int, int]:
    """Return what grows with each version of a table."""
    version = table.version or DataVersion()
    return version.counter, version.timestamp


def _all(table: _Table) -> dict[str, dict[int, int]]:
    """Return a copy of a table."""
    return {key: dict(table.get(key) or ()) for key in table.key_list()}


async def _copied(table: _Table) -> dict[str, dict[int, int]]:
    """Return a copy made in slices: each topic and group of it as it was at some moment."""
    copied: dict[str, dict[int, int]] = {}
    left = OFFSETS_AT_ONCE
    for key in table.key_list():
        queues = table.get(key)
        if queues is not None:
            copied[key] = dict(queues)
            left -= len(queues) + OFFSETS_AT_ONCE // KEYS_AT_ONCE // 10
        if left <= 0:
            left = OFFSETS_AT_ONCE
            await give_way()
    return copied


def _decode(data: bytes) -> _Kept:
    body = ConsumerOffsetBody.decode(data, tolerant_size_max=FILE_SIZE_MAX)
    offsets = {key: dict(queues) for key, queues in body.offsets.items()}
    pulled = {key: dict(queues) for key, queues in (body.pull_offsets or {}).items()}
    return TwoRows(offsets, pulled, body.version)


def _body(tables: _Kept) -> ConsumerOffsetBody:
    return ConsumerOffsetBody(
        offsets=tables.first, version=tables.version, pull_offsets=tables.second
    )


def _encode(tables: _Kept) -> bytes:
    return _body(tables).encode_file()


def _encode_light(tables: _Kept) -> bytes:
    return _body(tables).encode_light_file()


def _file_pieces(tables: _Kept) -> Iterator[bytes]:
    return _body(tables).file_pieces()


def _light_pieces(tables: _Kept) -> Iterator[bytes]:
    return _body(tables).light_file_pieces()
