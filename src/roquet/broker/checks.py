"""Checks that sends and pulls share: names, permissions, topics and groups that come to be.

Texts are what 5.5.0 answers; clients and their users search for them (spec: broker (b), wire §9.1).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, TableFull
from roquet.model.topic import READ_WRITE, TopicConfig
from roquet.protocol import names
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.state import BrokerState, Identity
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.store.groups import GroupTable
    from roquet.store.topics import TopicTable

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a send names: where to, and what to do when there is no such topic."""

    topic: str
    queue_id: int
    template: str
    template_queues: int
    sys_flag: int
    producer: str


class SendChecks:
    """Whether a message may be sent to a topic (spec: broker (b) "Send", step 4 and 5)."""

    def __init__(
        self, topics: TopicTable, state: BrokerState, identity: Identity, clock: Clock
    ) -> None:
        self._topics = topics
        self._state = state
        self._identity = identity
        self._clock = clock

    async def topic_for(self, target: Target) -> TopicConfig:
        """Return the topic, created first where that is allowed. Raises Refused."""
        config = self.known_topic(target)
        if config is None:
            config = await self._create(target)
            check_queue(config, target.queue_id, target.producer)
        return config

    def known_topic(self, target: Target) -> TopicConfig | None:
        """Return the topic if it may take messages at once. Raises Refused.

        None is for one that has to be created, or made durable, before that.
        """
        self._check_time()
        config = self._topics.get(target.topic)
        if config is not None and config.order and not self._state.is_writable:
            self.refuse_sending()
        refusal = _refusal(target.topic)
        if refusal is not None:
            raise Refused(*refusal)
        if config is not None:
            check_queue(config, target.queue_id, target.producer)
            if not self._topics.is_durable(target.topic):
                return None
        return config

    async def ensure_topic(self, name: str, queues: int) -> TopicConfig:
        """Return a topic that the broker itself needs, creating it when missing."""
        config = self._topics.ensure(name, queues, READ_WRITE)
        await self._topics.persist()
        return config

    def refuse_sending(self, what: str = "sending message") -> None:
        """Raise the refusal of a broker that does not take such messages."""
        raise Refused(
            ResponseCode.NO_PERMISSION, f"the broker[{self._identity.ip}] {what} is forbidden"
        )

    def _check_time(self) -> None:
        opens_ms = self._state.accept_sends_from_ms
        if self._clock.now_ms() < opens_ms:
            opens = dt.datetime.fromtimestamp(opens_ms / 1000, dt.UTC).astimezone()
            text = f"{opens:%Y-%m-%d %H:%M:%S},{opens_ms % 1000:03d}"
            raise Refused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text}")

    def _made(self, target: Target) -> TopicConfig | None:
        config = self._topics.create_by_send(
            target.topic, target.template, target.template_queues, target.sys_flag
        )
        if config is None and names.is_retry(target.topic):
            config = self._topics.ensure(target.topic, 1, READ_WRITE, target.sys_flag)
        return config

    async def _create(self, target: Target) -> TopicConfig:
        try:
            config = self._topics.get(target.topic) or self._made(target)
        except TableFull as full:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, str(full)) from full
        if config is not None:
            await self._topics.persist()
            # Somebody may have deleted it meanwhile.
            config = self._topics.get(target.topic)
        if config is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{target.topic}] not exist, apply first please!{FAQ}",
            )
        return config


def check_queue(config: TopicConfig, queue_id: int, producer: str) -> None:
    """Raise Refused when a topic has no such queue."""
    queues = max(config.read_queues, config.write_queues)
    if queue_id >= queues:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, topic[{config.name}] has {queues}"
            f" queues Producer: {producer}",
        )


def _refusal(topic: str) -> tuple[int, str] | None:
    """Return why a name is not sent to; most names come again and again."""
    return _known_refusal(topic) if len(topic) <= names.RETRY_TOPIC_LENGTH_MAX else _judge(topic)


def _judge(topic: str) -> tuple[int, str] | None:
    fault = names.check_topic(topic)
    if fault is not None:
        return ResponseCode.INVALID_PARAMETER, fault
    fault = names.check_may_send(topic)
    if fault is not None:
        return ResponseCode.NO_PERMISSION, fault
    return None


_known_refusal = functools.lru_cache(maxsize=4096)(_judge)


def group_for(groups: GroupTable, name: str) -> SubscriptionGroupConfig:
    """Return a group, created first where that is allowed. Raises Refused(26)."""
    config = groups.find(name)
    if config is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group [{name}] does not exist{FAQ}",
        )
    return config
