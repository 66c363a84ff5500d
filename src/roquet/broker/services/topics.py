"""Topics: create and change, delete, show, and which are the system's own.

Spec: broker (b) "Admin processor", wire §16 and §19; limits B14 of the reliability page.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.topics import PutTopic, TopicListing
from roquet.model.attributes import LIGHT, MESSAGE_TYPE, TOPIC_ATTRIBUTES
from roquet.model.topic import TopicConfig
from roquet.protocol import names
from roquet.service.slices import in_slices
from roquet.store.marks import deleted
from roquet.store.results import StoreFault
from roquet.store.tables.topics import is_path_safe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.metrics.stats import BrokerStats
    from roquet.model.attributes import AttributeChange
    from roquet.store.store import MessageStore
    from roquet.store.tables.deletions import Begun, Deletions
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

QUEUES_MAX = 65_535
PERM_MAX = 15
CHECKED_AT_ONCE = 200
"""Topics of a list that are checked before others have their turn."""
NEVER = -1
"""The log's end at the last deletion of a topic that was not deleted before."""
NAMES_AT_ONCE = 5_000
"""Names that are looked at before others have their turn."""


class Topics:
    """Creates, changes, deletes and shows topics."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        store: MessageStore,
        stats: BrokerStats,
        deletions: Deletions,
        *,
        allow_mixed: bool = False,
        clear_retry_topics: bool = True,
        remove_lights: Callable[[str], Awaitable[None]] | None = None,
        deleted: Callable[[str], None] | None = None,
    ) -> None:
        """`allow_mixed` is enableMixedMessageType, the other clearRetryTopicWhenDeleteTopic.

        `remove_lights(topic)` removes the light topics of a parent; `deleted` is called with each
        topic that is gone.
        """
        self._remove_lights = remove_lights
        self._deleted = deleted
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._deletions = deletions
        self._allow_mixed = allow_mixed
        self._clear_retry_topics = clear_retry_topics

    async def put(self, requests: Sequence[PutTopic], caller: Caller) -> None:
        """Create or change topics, all or none; they are durable when this returns.

        Raises Refusal.
        """
        del caller
        checked = [self._checked(request) async for request in in_slices(requests, CHECKED_AT_ONCE)]
        await self._topics.put_in_slices(checked)
        await self._topics.persist()

    async def delete(self, topic: str, caller: Caller) -> None:
        """Delete a topic with its queues and offsets, and the retry topics made for it by pop.

        Raises Refusal.
        """
        if not topic.strip():
            raise Refusal(Reason.INVALID_ARGUMENT, "The specified topic is blank.")
        self._refuse_system(topic)
        if not is_path_safe(topic):
            raise Refusal(Reason.INVALID_ARGUMENT, names.check_topic(topic) or "not a name")
        doomed = [topic]
        if self._clear_retry_topics:
            groups = self._offsets.groups_of(topic)
            retries = [f"%RETRY%{g}{mark}{topic}" for g in groups for mark in ("_", "+")]
            doomed += [name for name in retries if self._topics.get(name) is not None]
        known = self._topics.get(topic)
        is_parent = known is not None and known.attributes.get(MESSAGE_TYPE) == LIGHT
        ends = deleted.log_ends(self._store)
        self._deletions.begin(topic, {name: ends.get(name, NEVER) for name in doomed})
        await self._deletions.persist()
        try:
            for name in doomed:
                await self._delete_queues(name)
                await self._forget(name)
                log.info("topic %s was deleted by %s", name, caller.address)
        except StoreFault:
            await self._end(topic)
            raise
        if is_parent and self._remove_lights is not None:
            await self._remove_lights(topic)
        await self._topics.persist()
        await self._offsets.persist()
        # Only now: a topic that is still there after a crash has its messages in flight.
        await self._end(topic)

    async def start(self) -> None:
        """Finish the deletions that a kill interrupted when the queues were gone: a part's start.

        What cannot be finished is tried again by the next start.
        """
        for topic, begun in self._deletions.begun.items():
            try:
                await self._finish(topic, begun)
            except (StoreFault, RoquetError, OSError) as error:
                log.warning("the deletion of topic %s is not finished: %s", topic, error)

    async def stop(self) -> None:
        """Nothing to release."""

    async def _finish(self, topic: str, begun: Begun) -> None:
        ends = deleted.log_ends(self._store)
        gone = {name for name, end in begun.ends.items() if ends.get(name, NEVER) != end}
        # A topic that somebody made again meanwhile keeps what it has.
        renewed = {name for name in gone if self._has_messages(name)}
        for name in begun.ends if gone else ():
            if name not in gone and topic not in renewed:
                await self._delete_queues(name)
            elif name in gone:
                # The pops that it ends were made before it began.
                self._deletions.adopt(self._deletions.news({name: begun.at_ms}, {}))
            if name not in renewed and topic not in renewed:
                self._topics.remove(name)
                await self._forget(name)
                log.warning("the deletion of topic %s, which a kill interrupted, is done", name)
        if gone and not renewed and self._remove_lights is not None:
            await self._remove_lights(topic)
        await self._topics.persist()
        await self._offsets.persist()
        await self._end(topic)

    async def _forget(self, name: str) -> None:
        """Forget what is known of a topic beside its configuration and its queues."""
        await self._offsets.remove_topic(name)
        self._stats.forget_topic(name)
        if self._deleted is not None:
            self._deleted(name)

    async def _end(self, topic: str) -> None:
        self._deletions.end(topic)
        await self._deletions.persist()

    def _has_messages(self, name: str) -> bool:
        config = self._topics.get(name)
        queues = 0 if config is None else max(config.read_queues, config.write_queues)
        return any(self._store.max_offset(name, queue_id) for queue_id in range(queues))

    async def _delete_queues(self, name: str) -> None:
        """Delete a topic and its queues; when the store cannot, the topic stays as it was."""
        config, undo = self._topics.get(name), self._deletions.topic(name)
        self._topics.remove(name)
        try:
            await deleted.delete(self._store, name)
        except StoreFault:
            undo()
            if config is not None and self._topics.get(name) is None:
                self._topics.put(config)
            raise

    def get(self, topic: str, caller: Caller) -> TopicConfig:
        """Return one topic. Raises Refusal(UNKNOWN_TOPIC)."""
        del caller
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"No topic in this broker. topic: {topic}")
        return config

    def all(self, caller: Caller) -> TopicListing:
        """Return all topics, the system's own included."""
        del caller
        return TopicListing(topics=self._topics.all(), version=self._topics.version)

    async def system(self, caller: Caller) -> list[str]:
        """Return the names of the topics that belong to the broker itself, in order."""
        del caller
        known = in_slices(self._topics.all(), NAMES_AT_ONCE)
        kept = [name async for name in known if self._topics.is_system(name)]
        # The fixed names are listed whether or not anything has been stored under them.
        return sorted(names.SYSTEM_TOPICS.union(kept))

    def _checked(self, request: PutTopic) -> TopicConfig:
        config = request.config
        wrong = names.check_topic(config.name) or _wrong_numbers(config)
        if wrong is not None:
            raise Refusal(Reason.INVALID_ARGUMENT, wrong)
        self._refuse_system(config.name)
        if self._topics.is_light(config.name):
            raise Refusal(Reason.FORBIDDEN, f"{config.name} is a light queue: it needs no topic")
        attributes = self._altered(config.name, request.changes)
        if attributes.get(MESSAGE_TYPE) == "MIXED" and not self._allow_mixed:
            raise Refusal(Reason.INVALID_ARGUMENT, "MIXED message type is not supported.")
        if attributes.get(MESSAGE_TYPE) == LIGHT and not self._topics.has_light_queues:
            # RocketMQ takes it, and its messages then reach nobody.
            text = "light topics need enableLmq=true and enableMultiDispatch=true"
            raise Refusal(Reason.INVALID_ARGUMENT, f"LITE message type is not supported: {text}")
        return TopicConfig(
            name=config.name,
            read_queues=config.read_queues,
            write_queues=config.write_queues,
            perm=config.perm,
            filter_type=config.filter_type,
            sys_flag=config.sys_flag,
            order=config.order,
            attributes=attributes,
        )

    def _altered(self, name: str, changes: Sequence[AttributeChange]) -> dict[str, str]:
        """Return a topic's attributes after changes."""
        known = self._topics.get(name)
        current = None if known is None else known.attributes
        try:
            return TOPIC_ATTRIBUTES.altered(current, changes)
        except ValueError as error:
            raise Refusal(Reason.FAILED, str(error)) from error

    def _refuse_system(self, topic: str) -> None:
        if self._topics.is_system(topic):
            raise Refusal(
                Reason.INVALID_ARGUMENT,
                f"The topic[{topic}] is conflict with system topic.",
            )


def _wrong_numbers(config: TopicConfig) -> str | None:
    for what, number in (("read", config.read_queues), ("write", config.write_queues)):
        # A topic without queues takes no message and gives none: so it is closed without a loss.
        if not 0 <= number <= QUEUES_MAX:
            return f"{what} queue number {number} is not within 0..{QUEUES_MAX}"
    if not 0 <= config.perm <= PERM_MAX:
        return f"perm {config.perm} is not within 0..{PERM_MAX}"
    return None
