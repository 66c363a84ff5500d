"""Consumer groups: create and change 200 and 225, delete 207, show 352 and 201, forbid 353."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from roquet.broker.api.groups import DeleteGroupRequest, GroupReadableRequest, PutGroup
from roquet.broker.remoting.admin.pages import page_of
from roquet.broker.remoting.bodies import body_of, parts_of
from roquet.broker.remoting.topics import CONFIGS_AT_ONCE, read_changes
from roquet.protocol import fastjson
from roquet.protocol.bodies.groups import (
    GroupTableBody,
    decode_group,
    encode_group,
    groups_of,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    DeleteSubscriptionGroupRequest,
    GetSubscriptionGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)
from roquet.remoting.router import Request, Route
from roquet.service.slices import in_slices, write_body

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.groups import Groups
    from roquet.model.group import SubscriptionGroupConfig


class GroupAdapter:
    """Creates, changes, deletes and shows consumer groups."""

    def __init__(self, groups: Groups, callers: Callers) -> None:
        self._groups = groups
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,), self.create, "admin"),
            Route(
                (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,), self.create_list, "admin"
            ),
            Route((RequestCode.DELETE_SUBSCRIPTIONGROUP,), self.delete, "admin"),
            Route((RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,), self.show_all, "admin"),
            Route((RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,), self.show, "admin"),
            Route((RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,), self.forbid, "admin"),
        ]

    async def create(self, request: Request) -> Command:
        """Answer 200: create a group, or change it."""
        config = await body_of(request.command, decode_group)
        await self._groups.put([_put(config)], self._callers.of(request))
        return reply_to(request.command)

    async def create_list(self, request: Request) -> Command:
        """Answer 225: create or change several groups, all or none."""
        configs = await parts_of(request.command, groups_of)
        wanted = [_put(config) async for config in in_slices(configs, CONFIGS_AT_ONCE)]
        await self._groups.put(wanted, self._callers.of(request))
        return reply_to(request.command)

    async def delete(self, request: Request) -> Command:
        """Answer 207: delete a group, and its offsets when that is asked for."""
        header = DeleteSubscriptionGroupRequest.decode(request.command.ext)
        wanted = DeleteGroupRequest(group=header.group_name, with_offsets=bool(header.clean_offset))
        await self._groups.delete(wanted, self._callers.of(request))
        return reply_to(request.command)

    async def show(self, request: Request) -> Command:
        """Answer 352: one group's configuration."""
        group = GetSubscriptionGroupConfigRequest.decode(request.command.ext).group
        config = await self._groups.get(group, self._callers.of(request))
        return reply_to(request.command, body=encode_group(config))

    async def show_all(self, request: Request) -> Command:
        """Answer 201 with the table, or a page of it: how slaves follow and tools export."""
        listing = self._groups.all(self._callers.of(request))
        table, version = listing.groups, listing.version
        page = page_of(request.command.ext, "groupSeq", "maxGroupNum", version)
        chosen, forbidden = table, listing.forbidden
        if page is not None:
            chosen = dict(itertools.islice(table.items(), *page))
            is_last = page[1] >= len(table)
            # Bits of what is no group belong to no page; the last one has them.
            forbidden = {
                group: topics
                for group, topics in forbidden.items()
                if group in chosen or (is_last and group not in table)
            }
        body = GroupTableBody(groups=chosen, version=version, forbidden=forbidden)
        ext = {"totalGroupNum": str(len(table))}
        written = await write_body(body.encode, len(chosen))
        return reply_to(request.command, ext=ext, body=written)

    async def forbid(self, request: Request) -> Command:
        """Answer 353: whether a group may read a topic, after the change asked for."""
        header = UpdateGroupForbiddenRequest.decode(request.command.ext)
        wanted = GroupReadableRequest(
            group=header.group, topic=header.topic, readable=header.readable
        )
        readable = await self._groups.readable(wanted, self._callers.of(request))
        answer = {"group": header.group, "readable": readable, "topic": header.topic}
        # An empty remark instead of none is what 5.5.0 answers here.
        return reply_to(request.command, remark="", body=fastjson.java(answer))


def _put(config: SubscriptionGroupConfig) -> PutGroup:
    return PutGroup(config=config, changes=read_changes(config.attributes))
