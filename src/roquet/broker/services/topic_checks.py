"""Checks that sends and pulls share: names, permissions, topics and groups that come to be.

Texts are what 5.5.0 answers; clients and their users search for them (spec: broker (b), wire §9.1).
"""

from __future__ import annotations

import datetime as dt
import functools
from typing import TYPE_CHECKING, NoReturn

from roquet.base.errors import TableFull
from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.topic import READ_WRITE, TOPIC_SYS_FLAG_UNIT, TopicConfig
from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.api.send import Target
    from roquet.broker.state import BrokerState, Identity
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


_NAMES_IT = "a message of another topic names it in property INNER_MULTI_DISPATCH"


class SendChecks:
    """Whether a message may be sent to a topic (spec: broker (b) "Send", step 4 and 5)."""

    def __init__(
        self, topics: TopicTable, state: BrokerState, identity: Identity, clock: Clock
    ) -> None:
        self._topics = topics
        self._state = state
        self._identity = identity
        self._clock = clock

    async def topic_for(self, target: Target, producer: str) -> TopicConfig:
        """Return the topic, created first where that is allowed. Raises Refusal.

        `producer` is the `ip:port` that a refusal names.
        """
        config = self.known_topic(target, producer)
        if config is None:
            config = await self._create(target)
            check_queue(config, target.queue_id, producer)
        return config

    def known_topic(self, target: Target, producer: str) -> TopicConfig | None:
        """Return the topic if it may take messages at once. Raises Refusal.

        None is for one that has to be created, or made durable, before that.
        """
        opens_ms = self._state.accept_sends_from_ms
        if opens_ms and self._clock.now_ms() < opens_ms:
            self._refuse_until(opens_ms)
        topic = target.topic
        config = self._topics.get(topic)
        if config is not None and config.order and not self._state.is_writable:
            self.refuse_sending()
        # Most names come again and again.
        is_short = len(topic) <= names.RETRY_TOPIC_LENGTH_MAX
        refusal = _known_refusal(topic) if is_short else _refusal(topic)
        if refusal is None and self._topics.is_light(topic):
            refusal = Reason.FORBIDDEN, f"{topic} is a light queue: {_NAMES_IT}"
        if refusal is not None:
            raise Refusal(*refusal)
        if config is not None:
            check_queue(config, target.queue_id, producer)
            if not self._topics.is_durable(topic):
                return None
        return config

    async def ensure_topic(self, name: str, queues: int) -> TopicConfig:
        """Return a topic that the broker itself needs, creating it when missing."""
        config = self._topics.ensure(name, queues, READ_WRITE)
        await self._topics.persist()
        return config

    def refuse_sending(self, what: str = "sending message") -> None:
        """Raise the refusal of a broker that does not take such messages."""
        raise Refusal(Reason.FORBIDDEN, f"the broker[{self._identity.ip}] {what} is forbidden")

    def _refuse_until(self, opens_ms: int) -> NoReturn:
        opens = dt.datetime.fromtimestamp(opens_ms / 1000, dt.UTC).astimezone()
        text = f"{opens:%Y-%m-%d %H:%M:%S},{opens_ms % 1000:03d}"
        raise Refusal(Reason.FAILED, f"broker unable to service, until {text}")

    def _made(self, target: Target) -> TopicConfig | None:
        config = self._topics.create_by_send(
            target.topic, target.template, target.template_queues, _topic_flag(target)
        )
        if config is None and names.is_retry(target.topic):
            config = self._topics.ensure(target.topic, 1, READ_WRITE, _topic_flag(target))
        return config

    async def _create(self, target: Target) -> TopicConfig:
        try:
            config = self._topics.get(target.topic) or self._made(target)
        except TableFull as full:
            raise Refusal(Reason.UNKNOWN_TOPIC, str(full)) from full
        if config is not None:
            await self._topics.persist()
            # Somebody may have deleted it meanwhile.
            config = self._topics.get(target.topic)
        if config is None:
            raise Refusal(
                Reason.UNKNOWN_TOPIC,
                f"topic[{target.topic}] not exist, apply first please!{FAQ}",
            )
        return config


def _topic_flag(target: Target) -> int:
    return TOPIC_SYS_FLAG_UNIT if target.is_unit else 0


def check_queue(config: TopicConfig, queue_id: int, producer: str) -> None:
    """Raise Refusal when a topic has no such queue."""
    queues = max(config.read_queues, config.write_queues)
    if queue_id >= queues:
        raise Refusal(
            Reason.INVALID_ARGUMENT,
            f"request queueId[{queue_id}] is illegal, topic[{config.name}] has {queues}"
            f" queues Producer: {producer}",
        )


def _refusal(topic: str) -> tuple[Reason, str] | None:
    """Return why a name is not sent to."""
    fault = names.check_topic(topic)
    if fault is not None:
        return Reason.INVALID_ARGUMENT, fault
    fault = names.check_may_send(topic)
    if fault is not None:
        return Reason.FORBIDDEN, fault
    return None


_known_refusal = functools.lru_cache(maxsize=4096)(_refusal)


def group_for(groups: GroupTable, name: str) -> SubscriptionGroupConfig:
    """Return a group, created first where that is allowed. Raises Refusal(UNKNOWN_GROUP)."""
    config = groups.find(name)
    if config is None:
        raise Refusal(
            Reason.UNKNOWN_GROUP,
            f"subscription group [{name}] does not exist{FAQ}",
        )
    return config
