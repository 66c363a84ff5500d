"""Committed offsets behind the end of a queue: it lost its tail, or its log, or is a copy of less.

New messages would get offsets that such a group has passed already, and never reach it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.protocol import names
from roquet.protocol.light import light_topics
from roquet.protocol.pop.topics import REVIVE_GROUP
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 200
"""Topics and groups that are looked at before others have their turn."""
GROUPS_SHOWN = 10
_EMPTY, _TAIL, _COPY = "empty_log", "lost_tail", "copy"
_TEXTS = {
    _EMPTY: "the log is empty",
    _TAIL: "the log lost its tail",
    _COPY: "the log is a copy that lacks what groups had read at its master",
}


class RecoveredStore(Protocol):
    """What is asked of the message store."""

    @property
    def may_lack_end(self) -> bool:
        """Whether the last run was killed, recovery mended something, or the log is empty."""
        ...

    def end_offset(self) -> int:
        """Return the offset behind the last record of the log."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message that is in a queue."""
        ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets."""
        ...


class LostEnds:
    """Sets committed offsets back to the ends of their queues when a broker begins to lead.

    A start after a stop in order pays nothing, unless the log was a slave's: what groups committed
    at its master may be ahead of what it copied. Light topics have a rule of their own
    (`LightOffsets`), and offsets of topics that do not exist stay.
    """

    def __init__(
        self,
        store: RecoveredStore,
        topics: TopicTable,
        offsets: OffsetTable,
        *,
        is_slave: Callable[[], bool],
        was_slave: Callable[[], bool],
    ) -> None:
        """`was_slave` tells at the start whether the last run copied a master's log."""
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._is_slave = is_slave
        self._was_slave = was_slave
        self.set_back: dict[str, int] = dict.fromkeys((_EMPTY, _TAIL, _COPY), 0)
        """Offsets that were set back since the start, by the reason."""

    async def start(self) -> None:
        """Do it durably, before anybody sends, pulls or pops. Raises StoreFault."""
        # A slave's offsets come from its master, and may be ahead of what it has copied.
        if not self._is_slave() and (self._store.may_lack_end or self._was_slave()):
            await self._mend(_TAIL if self._store.may_lack_end else _COPY)

    async def mend(self) -> None:
        """Do it durably, now that a copied log is this broker's own. Raises StoreFault, OSError."""
        await self._mend(_COPY)

    async def _mend(self, why: str) -> None:
        why = why if self._store.end_offset() else _EMPTY
        count, shown = 0, dict[str, str]()
        async for topic, group in in_slices(self._offsets.pairs(), LOOKS_AT_ONCE):
            # Redelivery has a rule of its own for what it has settled.
            if group == REVIVE_GROUP or not self._concerns(topic):
                continue
            for queue_id, offset in self._offsets.queues(group, topic).items():
                end = self._end(topic, queue_id)
                if offset <= end:
                    continue
                self._offsets.set_back(group, topic, queue_id, end)
                count += 1
                if group not in shown and len(shown) < GROUPS_SHOWN:
                    shown[group] = f"{group} in {topic} queue {queue_id} from {offset} to {end}"
        if count:
            self.set_back[why] += count
            await self._offsets.persist()
            log.warning(
                "%s: %d committed offsets were set back to the ends of their queues; first of"
                " them: %s",
                _TEXTS[why],
                count,
                ", ".join(shown.values()),
            )

    async def stop(self) -> None:
        """Need nothing."""

    def _concerns(self, topic: str) -> bool:
        if names.is_lmq(topic):
            return light_topics.split(topic) is None
        return self._topics.get(topic) is not None

    def _end(self, topic: str, queue_id: int) -> int:
        store = self._store
        return max(store.max_offset(topic, queue_id), store.next_offset(topic, queue_id), 0)
