"""Consumer groups: create and change (200, 225), delete (207), show (352, 201), forbid (353)."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.broker.processors.admin.common import CHECKED_AT_ONCE, body_of, page_of, parts_of
from roquet.protocol import fastjson, names
from roquet.protocol.bodies.groups import (
    GroupTableBody,
    decode_group,
    encode_group,
    groups_of,
)
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    DeleteSubscriptionGroupRequest,
    GetSubscriptionGroupConfigRequest,
    UpdateGroupForbiddenRequest,
)
from roquet.remoting.router import Request, Route
from roquet.service.slices import in_slices, write_body
from roquet.store.groups import FORBIDDEN_SUBSCRIPTION

if TYPE_CHECKING:
    from roquet.broker.stats import BrokerStats
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.store.groups import GroupTable
    from roquet.store.offsets import OffsetTable

log = logging.getLogger(__name__)

_COUNT_MAX = 65_535


class GroupAdmin:
    """Creates, changes, deletes and shows consumer groups."""

    def __init__(self, groups: GroupTable, offsets: OffsetTable, stats: BrokerStats) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

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
        """Create a group, or change it; the answer is sent when the table is durable."""
        await self._put([await body_of(request.command, decode_group)])
        return reply_to(request.command)

    async def create_list(self, request: Request) -> Command:
        """Create or change several groups, all or none."""
        await self._put(await parts_of(request.command, groups_of))
        return reply_to(request.command)

    async def delete(self, request: Request) -> Command:
        """Delete a group, and its offsets when that is asked for."""
        header = DeleteSubscriptionGroupRequest.decode(request.command.ext)
        self._groups.remove(header.group_name)
        self._stats.forget_group(header.group_name)
        if header.clean_offset:
            await self._offsets.remove_group(header.group_name)
            await self._offsets.persist()
        await self._groups.persist()
        log.info("group %s was deleted by %s", header.group_name, request.peer.address)
        return reply_to(request.command)

    async def show(self, request: Request) -> Command:
        """Return one group's configuration, creating the group first where that is allowed.

        Proxies and dashboards look a group up before its first consumer comes.
        """
        group = GetSubscriptionGroupConfigRequest.decode(request.command.ext).group
        before = self._groups.version
        config = self._groups.find(group)
        if self._groups.version != before:
            await self._groups.persist()
        if config is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker. group: {group}",
            )
        return reply_to(request.command, body=encode_group(config))

    async def show_all(self, request: Request) -> Command:
        """Return the table, whole or a page of it: how slaves follow and tools export."""
        table = self._groups.all()
        version = self._groups.version
        page = page_of(request.command.ext, "groupSeq", "maxGroupNum", version)
        chosen = table if page is None else dict(itertools.islice(table.items(), *page))
        body = GroupTableBody(
            groups=chosen, version=version, forbidden=self._groups.all_forbidden()
        )
        ext = {"totalGroupNum": str(len(table))}
        written = await write_body(body.encode, len(chosen))
        return reply_to(request.command, ext=ext, body=written)

    async def forbid(self, request: Request) -> Command:
        """Say whether a group may read a topic, after changing that when `readable` is given."""
        header = UpdateGroupForbiddenRequest.decode(request.command.ext)
        bits = self._groups.forbidden(header.group, header.topic)
        if header.readable is not None:
            wrong = names.check_group(header.group) or names.check_topic(header.topic)
            if wrong is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, wrong)
            bits &= ~FORBIDDEN_SUBSCRIPTION
            bits |= 0 if header.readable else FORBIDDEN_SUBSCRIPTION
            self._groups.set_forbidden(header.group, header.topic, bits)
            await self._groups.persist()
        answer = {
            "group": header.group,
            "readable": not bits & FORBIDDEN_SUBSCRIPTION,
            "topic": header.topic,
        }
        # An empty remark instead of none is what 5.5.0 answers here.
        return reply_to(request.command, remark="", body=fastjson.java(answer))

    async def _put(self, configs: list[SubscriptionGroupConfig]) -> None:
        async for config in in_slices(configs, CHECKED_AT_ONCE):
            wrong = names.check_group(config.name) or _wrong_numbers(config)
            if wrong is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, wrong)
        await self._groups.put_in_slices(configs)
        await self._groups.persist()


def _wrong_numbers(config: SubscriptionGroupConfig) -> str | None:
    if not 0 <= config.retry_queues <= _COUNT_MAX:
        return f"retryQueueNums {config.retry_queues} is not within 0..{_COUNT_MAX}"
    if not -1 <= config.retry_max_times <= _COUNT_MAX:
        return f"retryMaxTimes {config.retry_max_times} is not within -1..{_COUNT_MAX}"
    return None
