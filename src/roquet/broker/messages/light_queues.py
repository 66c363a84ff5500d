"""Whether a message may be put into the light queues (LMQ) that it names.

The core gives the offsets, under the log's lock, and refuses names that cannot be (spec: store
§5.4), and messages that would make a light queue too many: it alone counts those that are made
by the messages of one append. Here the sender hears why, also of a message that is delayed first;
a message that was accepted before and is delivered now gets its queues in any case, after the
removal of one that is being removed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.light import light_queues, light_topics
from roquet.service.slices import in_slices
from roquet.store.results import PutResult, PutStatus
from roquet.store.settings import LIGHT_QUEUES_MAX

if TYPE_CHECKING:
    from roquet.store.results import Draft
    from roquet.store.settings import StoreConfig
    from roquet.store.tables.offsets import OffsetTable


log = logging.getLogger(__name__)

LOOKS_AT_ONCE = 200
"""Offsets that are looked at before others have their turn."""


class Queues(Protocol):
    """The light queues of the store."""

    def light_queues(self) -> int:
        """Return how many there are."""
        ...

    def knows_light_queue(self, name: str) -> bool:
        """Tell whether a light queue is one of these."""
        ...


class LightQueues:
    """The rules of messages that name light queues, while the broker has such queues."""

    def __init__(self, queues: Queues, settings: StoreConfig) -> None:
        self._queues = queues
        self._settings = settings
        self.leaving: set[str] = set()
        """Queues that are being removed: no message is acknowledged for them meanwhile."""

    def follow(self, settings: StoreConfig) -> None:
        """Go by other settings from now on."""
        self._settings = settings

    def refusal(self, draft: Draft, *, is_new: bool) -> PutResult | None:
        """Return why a draft cannot be stored; only a new one can be one too many."""
        # A delayed message gets its light queues when it is delivered: it is judged here already.
        waits = names.is_waiting_room(draft.topic)
        if not (waits or light_queues.is_given(draft.topic)):
            return None
        try:
            wanted = light_queues.named(draft.properties)
        except ValueError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, why=str(error))
        if is_new:
            return self._new_refused(draft, wanted)
        # One that waits in another topic is delivered a moment later, into the queue's next life.
        return None if waits else self._leaving(wanted)

    def _leaving(self, wanted: list[str]) -> PutResult | None:
        if self.leaving.isdisjoint(wanted):
            return None
        return PutResult(PutStatus.OS_PAGE_CACHE_BUSY, why="the light topic is being removed")

    def _new_refused(self, draft: Draft, wanted: list[str]) -> PutResult | None:
        """Return why a new message cannot go to the queues that it names."""
        other = light_topics.wrong_parent(_topic_of(draft), wanted)
        if other is not None:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, why=f"{other!r} is of another topic")
        if (busy := self._leaving(wanted)) is not None:
            return busy
        most = LIGHT_QUEUES_MAX
        if self._settings.light_quota:
            most = self._settings.light_queues_max
        if self._queues.light_queues() + len(wanted) <= most:
            return None
        fresh = {name for name in wanted if not self._queues.knows_light_queue(name)}
        if not fresh or self._queues.light_queues() + len(fresh) <= most:
            return None
        return PutResult(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)


def _topic_of(draft: Draft) -> str:
    """Return the topic that a message is sent to; a half message waits in another by now."""
    waits = names.is_waiting_room(draft.topic)
    return draft.properties.get(props.REAL_TOPIC, draft.topic) if waits else draft.topic


class KeptQueues(Protocol):
    """What is asked of the message store."""

    def knows_light_queue(self, name: str) -> bool:
        """Tell whether a light queue exists, or goes on where it ended."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is still there."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message that is in a queue."""
        ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message, those that are not in the queue yet counted."""
        ...


class LightOffsets:
    """Forgets offsets of consumers in light queues that have gone with their last message.

    Invariant: no offset lies behind the end of a light topic's queue. A name that comes again
    begins at 0, and messages before an offset of its earlier life would reach nobody.
    """

    def __init__(self, queues: KeptQueues, offsets: OffsetTable) -> None:
        self._queues = queues
        self._offsets = offsets

    async def start(self) -> None:
        """Repair what a kill, or an earlier master, left behind, before anybody sends or pops."""
        await self.forget()
        async for topic, group in in_slices(self._offsets.pairs(), LOOKS_AT_ONCE):
            if names.is_lmq(topic) and light_topics.split(topic) is not None:
                self._check(topic, group)
        await self._offsets.persist()

    async def stop(self) -> None:
        """Need nothing."""

    def _check(self, topic: str, group: str) -> None:
        place = topic, light_topics.QUEUE_ID
        offset = self._offsets.committed(group, *place)
        end = max(self._queues.max_offset(*place), self._queues.next_offset(*place))
        if offset is None or offset <= end:
            return
        # Whether the queue is a new one, or lost its end with the old master, nobody knows.
        begin = max(0, self._queues.min_offset(*place))
        log.warning("group %s begins %s at %d: %d is behind its end", group, topic, begin, offset)
        self._offsets.commit(group, *place, begin)

    async def forget(self) -> None:
        """Do it now: the action of a timer. A queue of that name begins at 0 if it comes again."""
        gone: set[str] = set()
        async for topic, _ in in_slices(self._offsets.each_pair(), LOOKS_AT_ONCE):
            if topic in gone or not names.is_lmq(topic) or self._queues.knows_light_queue(topic):
                continue
            gone.add(topic)
            await self._offsets.remove_topic(topic)
