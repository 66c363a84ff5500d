"""Topics: UPDATE_AND_CREATE_TOPIC 17 and 18, delete 215, show 351 and 21, the system's own 305."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.topics import PutTopic
from roquet.broker.remoting.admin.pages import NOT_SET, page_of
from roquet.broker.remoting.bodies import parts_of
from roquet.model.attributes import AttributeChange, changes_of, parse_change
from roquet.model.data_version import DataVersion
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol.bodies.topics import (
    TopicTableBody,
    encode_topic,
    encode_topic_list,
    topic_configs_of,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetTopicConfigRequest,
)
from roquet.remoting.router import Request, Route
from roquet.service.slices import in_slices, write_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.topics import Topics

CONFIGS_AT_ONCE = 1_000
"""Configurations of a list that are taken before others have their turn."""


class TopicAdapter:
    """Creates, changes, deletes and shows topics."""

    def __init__(self, topics: Topics, callers: Callers) -> None:
        self._topics = topics
        self._callers = callers

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
        """Answer 17: create a topic, or change it."""
        # Java goes on without these two, whatever its header says.
        given = {"defaultTopic": "", "order": "false", **(request.command.ext or {})}
        header = CreateTopicRequest.decode(given)
        kind = header.topic_filter_type
        if kind not in set(FilterType):
            raise Refusal(Reason.FAILED, f"topicFilterType = [{kind[:80]}] value invalid")
        config = TopicConfig(
            name=header.topic,
            read_queues=header.read_queue_nums,
            write_queues=header.write_queue_nums,
            perm=header.perm,
            filter_type=FilterType(kind),
            sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        wanted = PutTopic(config=config, changes=parse_attributes(header.attributes))
        await self._topics.put([wanted], self._callers.of(request))
        return reply_to(request.command, remark=NOT_SET)

    async def create_list(self, request: Request) -> Command:
        """Answer 18: create or change several topics, all or none."""
        configs = await parts_of(request.command, topic_configs_of)
        wanted = [
            PutTopic(config=config, changes=read_changes(config.attributes))
            async for config in in_slices(configs, CONFIGS_AT_ONCE)
        ]
        await self._topics.put(wanted, self._callers.of(request))
        return reply_to(request.command, remark=NOT_SET)

    async def delete(self, request: Request) -> Command:
        """Answer 215: delete a topic with its queues and offsets."""
        topic = DeleteTopicRequest.decode({"topic": "", **(request.command.ext or {})}).topic
        await self._topics.delete(topic, self._callers.of(request))
        return reply_to(request.command)

    def show(self, request: Request) -> Command:
        """Answer 351: one topic's configuration."""
        topic = GetTopicConfigRequest.decode(request.command.ext).topic
        config = self._topics.get(topic, self._callers.of(request))
        return reply_to(request.command, body=encode_topic(config))

    async def show_all(self, request: Request) -> Command:
        """Answer 21 with the table, or a page of it: how slaves follow and tools export."""
        listing = self._topics.all(self._callers.of(request))
        table, version = listing.topics, listing.version
        page = page_of(request.command.ext, "topicSeq", "maxTopicNum", version)
        chosen = table if page is None else dict(itertools.islice(table.items(), *page))
        body = TopicTableBody(topics=chosen, version=version, mapping_version=DataVersion())
        ext = {"totalTopicNum": str(len(table))}
        written = await write_body(body.encode, len(chosen))
        return reply_to(request.command, ext=ext, body=written)

    async def system_topics(self, request: Request) -> Command:
        """Answer 305 with the topics that belong to the broker itself."""
        found = await self._topics.system(self._callers.of(request))
        return reply_to(request.command, body=encode_topic_list(found))


def parse_attributes(text: str | None) -> list[AttributeChange]:
    """Read `+key=value,-key`. Raises Refusal."""
    changes: dict[str, AttributeChange] = {}
    for item in (text or "").split(","):
        if not item:
            continue
        signed, _, value = item.partition("=")
        try:
            change = parse_change(signed, value)
        except ValueError as error:
            raise Refusal(Reason.FAILED, str(error)) from error
        if signed in changes:
            raise Refusal(Reason.FAILED, f"key duplication: {signed[:80]}")
        changes[signed] = change
    return list(changes.values())


def read_changes(attributes: Mapping[str, str]) -> list[AttributeChange]:
    """Read the attributes of a written configuration. Raises Refusal."""
    try:
        return changes_of(attributes)
    except ValueError as error:
        raise Refusal(Reason.FAILED, str(error)) from error
