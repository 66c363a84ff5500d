"""Topics: create and change (17, 18), delete (215), show (351, 21), the system's own (305).

Spec: broker (b) "Admin processor", wire §16 and §19; limits B14 of the reliability page.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.broker.processors.admin.common import CHECKED_AT_ONCE, NOT_SET, page_of, parts_of
from roquet.model.data_version import DataVersion
from roquet.model.topic import MESSAGE_TYPES, FilterType, TopicConfig
from roquet.protocol import names
from roquet.protocol.bodies.topics import (
    TopicTableBody,
    encode_topic,
    encode_topic_list,
    topic_configs_of,
)
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetTopicConfigRequest,
)
from roquet.remoting.router import Request, Route
from roquet.service.slices import in_slices, write_body
from roquet.store.topics import is_path_safe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.broker.stats import BrokerStats
    from roquet.store.offsets import OffsetTable
    from roquet.store.store import MessageStore
    from roquet.store.topics import TopicTable

log = logging.getLogger(__name__)

QUEUES_MAX = 65_535
PERM_MAX = 15
NAMES_AT_ONCE = 5_000
"""Names that are looked at before others have their turn."""

_ATTRIBUTES: Mapping[str, tuple[bool, frozenset[str]]] = {
    "message.type": (True, MESSAGE_TYPES),
    "queue.type": (False, frozenset({"SimpleCQ"})),
    "cleanup.policy": (False, frozenset({"DELETE"})),
}
"""Attribute -> (whether it may change later, values that this broker has)."""
_PLANNED = {
    ("queue.type", "BatchCQ"): "batch consume queues",
    ("queue.type", "RocksDBCQ"): "consume queues in RocksDB",
    ("cleanup.policy", "COMPACTION"): "compacted topics",
    ("lite.topic.expiration", ""): "lite topics",
}
"""Attributes and values of RocketMQ 5.5.0 that this broker lacks -> the feature they belong to."""


class TopicAdmin:
    """Creates, changes, deletes and shows topics."""

    def __init__(
        self,
        topics: TopicTable,
        offsets: OffsetTable,
        store: MessageStore,
        stats: BrokerStats,
        *,
        allow_mixed: bool = False,
        clear_retry_topics: bool = True,
    ) -> None:
        """`allow_mixed` is enableMixedMessageType, the other clearRetryTopicWhenDeleteTopic."""
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._stats = stats
        self._allow_mixed = allow_mixed
        self._clear_retry_topics = clear_retry_topics

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.UPDATE_AND_CREATE_TOPIC,), self.create, "admin"),
            Route((RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,), self.create_list, "admin"),
            Route((RequestCode.DELETE_TOPIC_IN_BROKER,), self.delete, "admin"),
            Route((RequestCode.GET_ALL_TOPIC_CONFIG,), self.show_all, "admin"),
            Route((RequestCode.GET_TOPIC_CONFIG,), self.show, "admin"),
            Route((RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,), self.system_topics, "admin"),
        ]

    async def create(self, request: Request) -> Command:
        """Create a topic, or change it; the answer is sent when the table is durable."""
        # Java goes on without these two, whatever its header says.
        given = {"defaultTopic": "", "order": "false", **(request.command.ext or {})}
        header = CreateTopicRequest.decode(given)
        kind = header.topic_filter_type
        if kind not in set(FilterType):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{kind[:80]}] value invalid"
            )
        config = TopicConfig(
            name=header.topic,
            read_queues=header.read_queue_nums,
            write_queues=header.write_queue_nums,
            perm=header.perm,
            filter_type=FilterType(kind),
            sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        changes = parse_attributes(header.attributes)
        self._topics.put(self._checked(config, changes))
        await self._topics.persist()
        return reply_to(request.command, remark=NOT_SET)

    async def create_list(self, request: Request) -> Command:
        """Create or change several topics, all or none, with one write of the table."""
        configs = await parts_of(request.command, topic_configs_of)
        checked: list[TopicConfig] = []
        async for config in in_slices(configs, CHECKED_AT_ONCE):
            changes = {f"+{key}": value for key, value in config.attributes.items()}
            checked.append(self._checked(config, changes))
        await self._topics.put_in_slices(checked)
        await self._topics.persist()
        return reply_to(request.command, remark=NOT_SET)

    async def delete(self, request: Request) -> Command:
        """Delete a topic with its queues and offsets, and the retry topics made for it by pop."""
        topic = DeleteTopicRequest.decode({"topic": "", **(request.command.ext or {})}).topic
        if not topic.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        self._refuse_system(topic)
        if not is_path_safe(topic):
            raise Refused(ResponseCode.INVALID_PARAMETER, names.check_topic(topic) or "not a name")
        doomed = [topic]
        if self._clear_retry_topics:
            groups = self._offsets.groups_of(topic)
            retries = [f"%RETRY%{g}{mark}{topic}" for g in groups for mark in ("_", "+")]
            doomed += [name for name in retries if self._topics.get(name) is not None]
        for name in doomed:
            self._topics.remove(name)
            await self._offsets.remove_topic(name)
            self._stats.forget_topic(name)
            await asyncio.to_thread(self._store.native.delete_topic, name)
            log.info("topic %s was deleted by %s", name, request.peer.address)
        await self._topics.persist()
        await self._offsets.persist()
        return reply_to(request.command)

    def show(self, request: Request) -> Command:
        """Return one topic's configuration."""
        topic = GetTopicConfigRequest.decode(request.command.ext).topic
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return reply_to(request.command, body=encode_topic(config))

    async def show_all(self, request: Request) -> Command:
        """Return the table, whole or a page of it: how slaves follow and tools export."""
        table = self._topics.all()
        page = page_of(request.command.ext, "topicSeq", "maxTopicNum", self._topics.version)
        chosen = table if page is None else dict(itertools.islice(table.items(), *page))
        body = TopicTableBody(
            topics=chosen, version=self._topics.version, mapping_version=DataVersion()
        )
        ext = {"totalTopicNum": str(len(table))}
        written = await write_body(body.encode, len(chosen))
        return reply_to(request.command, ext=ext, body=written)

    async def system_topics(self, request: Request) -> Command:
        """Return the topics that belong to the broker itself."""
        known = in_slices(self._topics.all(), NAMES_AT_ONCE)
        kept = [name async for name in known if self._topics.is_system(name)]
        # The fixed names are listed whether or not anything has been stored under them.
        found = sorted(names.SYSTEM_TOPICS.union(kept))
        return reply_to(request.command, body=encode_topic_list(found))

    def _checked(self, config: TopicConfig, changes: Mapping[str, str]) -> TopicConfig:
        wrong = names.check_topic(config.name) or _wrong_numbers(config)
        if wrong is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, wrong)
        self._refuse_system(config.name)
        attributes = self._altered(config.name, changes)
        if attributes.get("message.type") == "MIXED" and not self._allow_mixed:
            raise Refused(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
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

    def _altered(self, name: str, changes: Mapping[str, str]) -> dict[str, str]:
        """Return a topic's attributes after changes `+key` -> value and `-key` -> "" ."""
        known = self._topics.get(name)
        attributes = {} if known is None else dict(known.attributes)
        for signed, value in changes.items():
            key = signed[1:]
            problem = _wrong_attribute(key, value, removes=signed[0] == "-")
            if problem is None and known is None and signed[0] == "-":
                problem = f"only add attribute is supported while creating topic. key: {key}"
            if problem is None and known is not None and not _may_change(key):
                problem = f"attempt to update an unchangeable attribute. key: {key}"
            if problem is not None:
                raise Refused(ResponseCode.SYSTEM_ERROR, problem)
            if signed[0] == "-":
                attributes.pop(key, None)
            else:
                attributes[key] = value
        return attributes

    def _refuse_system(self, topic: str) -> None:
        if self._topics.is_system(topic):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{topic}] is conflict with system topic.",
            )


def parse_attributes(text: str | None) -> dict[str, str]:
    """Read `+key=value,-key` into {"+key": value, "-key": ""}. Raises Refused."""
    changes: dict[str, str] = {}
    for item in (text or "").split(","):
        if not item:
            continue
        signed, _, value = item.partition("=")
        if signed[:1] not in ("+", "-") or len(signed) < 2 or signed in changes:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"kv string format wrong: {item[:80]!r}, should be +key=value or -key",
            )
        changes[signed] = value
    return changes


def _wrong_numbers(config: TopicConfig) -> str | None:
    for what, number in (("read", config.read_queues), ("write", config.write_queues)):
        # A topic without queues takes no message and gives none: so it is closed without a loss.
        if not 0 <= number <= QUEUES_MAX:
            return f"{what} queue number {number} is not within 0..{QUEUES_MAX}"
    if not 0 <= config.perm <= PERM_MAX:
        return f"perm {config.perm} is not within 0..{PERM_MAX}"
    return None


def _may_change(key: str) -> bool:
    return key == "topic.reserve.time" or _ATTRIBUTES[key][0]


def _wrong_attribute(key: str, value: str, *, removes: bool) -> str | None:
    if key == "topic.reserve.time":
        good = removes or (value.isascii() and value.isdigit() and len(value) <= 18)
        return None if good else f"value is not a number. key: {key}"
    feature = _PLANNED.get((key, "")) or _PLANNED.get((key, value))
    if feature is not None:
        return f"not supported by this broker yet: {feature} ({key}={value[:80]})"
    if key not in _ATTRIBUTES:
        return f"unsupported key: {key[:80]}"
    if not removes and value not in _ATTRIBUTES[key][1]:
        return f"value is not in set: {sorted(_ATTRIBUTES[key][1])}"
    return None
