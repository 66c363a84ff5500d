"""How far each consumer group is in each queue: `consumerOffset.json` (spec: store §8).

Committed offsets are saved every few seconds; what is lost in a crash is read a second time.
Offsets last pulled are kept for lag figures. A pending reset (server side) hides the committed
offset until the next pull takes it (spec: wire §10.5).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.model.data_version import DataVersion
from roquet.protocol.bodies.offsets import ConsumerOffsetBody
from roquet.store.files import FILE_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from roquet.base.clock import Clock
    from roquet.store.files import JsonFile

log = logging.getLogger(__name__)

VERSION_STEP = 500
"""Commits after which the data version moves (consumerOffsetUpdateVersionStep)."""


class OffsetTable:
    """(group, topic, queue id) -> queue offset of the next message to consume."""

    def __init__(self, file: JsonFile, clock: Clock) -> None:
        """Begin empty; `load` takes the file's offsets."""
        self._file = file
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._listeners: list[Callable[[Collection[str]], None]] = []
        self._changes = 0
        self._saved_changes = 0

    @property
    def version(self) -> DataVersion:
        """Moves every 500 commits and with every removal."""
        return self._version

    def load(self) -> None:
        """Take over the file's offsets. Raises Corrupt when neither it nor its copy is whole."""
        table = self._file.load(_decode)
        if table is None:
            return
        self._version = table.version or self._version
        self._committed = {key: dict(queues) for key, queues in table.offsets.items()}
        self._pulled = {key: dict(queues) for key, queues in (table.pull_offsets or {}).items()}

    async def persist(self) -> None:
        """Make the offsets durable; returns at once when nothing changed since the last time."""
        async with self._file.writing:
            changes = self._changes
            if self._saved_changes != changes:
                await self._file.save(self.export().encode_file)
                self._saved_changes = changes

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Have `listener(groups)` called when a reset of theirs begins or ends."""
        self._listeners.append(listener)

    # --- committed offsets -----------------------------------------------------------------

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, commits: int = 1
    ) -> None:
        """Remember an offset, also one lower than before: the last of so many commits."""
        queues = self._committed.setdefault(f"{topic}@{group}", {})
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
        steps = self._changes // VERSION_STEP
        self._changes += commits
        if self._changes // VERSION_STEP > steps:
            self._move_version()

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset the group continues at: a pending reset, else the committed one."""
        pending = self.pending_reset(group, topic, queue_id)
        if pending is not None:
            return pending
        return self.committed(group, topic, queue_id)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, whatever reset is pending."""
        return self._committed.get(f"{topic}@{group}", {}).get(queue_id)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return a copy of the committed offsets of a group in a topic, by queue id."""
        return dict(self._committed.get(f"{topic}@{group}", {}))

    def pairs(self) -> list[tuple[str, str]]:
        """Return (topic, group) of all that have offsets."""
        return [_split(key) for key in self._committed]

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        return [topic for topic, other in map(_split, self._committed) if other == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in a topic."""
        return [group for other, group in map(_split, self._committed) if other == topic]

    # --- offsets last pulled ---------------------------------------------------------------

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember the offset that a pull asked for."""
        self._pulled.setdefault(f"{topic}@{group}", {})[queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset last pulled."""
        return self._pulled.get(f"{topic}@{group}", {}).get(queue_id)

    # --- resets by the broker --------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Let the group continue at `offset`; its commits are ignored until a pull took it."""
        self._resets.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self._committed.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self._changes += 1
        self._resets_changed((group,))

    def has_reset(self, group: str) -> bool:
        """Whether any reset of the group waits for its pull."""
        return any(_split(key)[1] == group for key in self._resets)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a reset that no pull has taken yet."""
        return self._resets.get(f"{topic}@{group}", {}).get(queue_id)

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and end a pending reset."""
        queues = self._resets.get(f"{topic}@{group}", {})
        offset = queues.pop(queue_id, None)
        if offset is not None:
            if not queues:
                del self._resets[f"{topic}@{group}"]
            self._resets_changed((group,))
        return offset

    # --- removing --------------------------------------------------------------------------

    def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets in a topic."""
        self._remove([key for key in self._keys() if _split(key)[0] == topic])

    def remove_group(self, group: str) -> None:
        """Forget a group's offsets in every topic."""
        self._remove([key for key in self._keys() if _split(key)[1] == group])

    def copy_group(self, source: str, target: str, topic: str) -> None:
        """Give `target` the committed offsets of `source` in a topic."""
        offsets = self._committed.get(f"{topic}@{source}")
        if offsets:
            self._committed[f"{topic}@{target}"] = dict(offsets)
            self._changes += 1

    def export(self) -> ConsumerOffsetBody:
        """Return a copy of the whole table, as the file and other brokers have it."""
        return ConsumerOffsetBody(
            offsets={key: dict(queues) for key, queues in self._committed.items()},
            version=self._version,
            pull_offsets={key: dict(queues) for key, queues in self._pulled.items()},
        )

    def _keys(self) -> set[str]:
        return {*self._committed, *self._pulled, *self._resets}

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            self._committed.pop(key, None)
            self._pulled.pop(key, None)
            self._resets.pop(key, None)
        self._resets_changed({_split(key)[1] for key in keys})
        if keys:
            self._changes += 1
            self._move_version()

    def _resets_changed(self, groups: Collection[str]) -> None:
        for listener in self._listeners:
            listener(groups)

    def _move_version(self) -> None:
        self._version = self._version.next(self._clock.now_ms())


def _split(key: str) -> tuple[str, str]:
    """Return (topic, group) of a table key."""
    topic, _, group = key.partition("@")
    return topic, group


def _decode(data: bytes) -> ConsumerOffsetBody:
    return ConsumerOffsetBody.decode(data, tolerant_size_max=FILE_SIZE_MAX)
