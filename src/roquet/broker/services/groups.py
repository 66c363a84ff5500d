"""Consumer groups: create and change, delete, show, and what they may not read."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import RoquetError
from roquet.broker.api.groups import GroupListing
from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.attributes import GROUP_ATTRIBUTES, LIGHT_BIND_TOPIC
from roquet.protocol import names
from roquet.service.slices import in_slices
from roquet.store.tables.groups import FORBIDDEN_SUBSCRIPTION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.groups import DeleteGroupRequest, GroupReadableRequest, PutGroup
    from roquet.broker.metrics.stats import BrokerStats
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

_COUNT_MAX = 65_535
CHECKED_AT_ONCE = 200
"""Groups of a list that are checked before others have their turn."""


class Groups:
    """Creates, changes, deletes and shows consumer groups."""

    def __init__(
        self, groups: GroupTable, offsets: OffsetTable, stats: BrokerStats, deletions: Deletions
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats
        self._deletions = deletions

    async def put(self, requests: Sequence[PutGroup], caller: Caller) -> None:
        """Create or change groups, all or none; they are durable when this returns.

        Raises Refusal.
        """
        del caller
        checked = [self._checked(request) async for request in in_slices(requests, CHECKED_AT_ONCE)]
        await self._groups.put_in_slices(checked)
        await self._groups.persist()

    async def delete(self, request: DeleteGroupRequest, caller: Caller) -> None:
        """Delete a group, and its offsets when that is asked for.

        When a table cannot be written, the group stays as it was: raises RoquetError, OSError.
        """
        name = request.group
        forbidden = dict(self._groups.all_forbidden().get(name) or {})
        known = self._groups.remove(name)
        # The offsets of a group of light topics go in any case: they are of no other use.
        is_light = known is not None and LIGHT_BIND_TOPIC in known.attributes
        offsets: dict[str, dict[int, int]] = {}
        undo: Callable[[], None] | None = None
        try:
            if request.with_offsets or is_light:
                # With its offsets: whoever takes the name gets the messages in flight anyway.
                undo = self._deletions.group(name)
                topics = self._offsets.topics_of(name)
                offsets = {topic: dict(self._offsets.queues(name, topic)) for topic in topics}
                await self._offsets.remove_group(name)
                await self._offsets.persist()
                await self._deletions.persist()
            await self._groups.persist()
        except (RoquetError, OSError):
            if undo is not None:
                undo()
            for topic, queues in offsets.items():
                for queue_id, offset in queues.items():
                    if self._offsets.committed(name, topic, queue_id) is None:
                        self._offsets.commit(name, topic, queue_id, offset)
            if known is not None and self._groups.get(name) is None:
                self._groups.put(known)
                for topic, bits in forbidden.items():
                    self._groups.set_forbidden(name, topic, bits)
            raise
        self._stats.forget_group(name)
        log.info("group %s was deleted by %s", name, caller.address)

    async def get(self, group: str, caller: Caller) -> SubscriptionGroupConfig:
        """Return one group, creating it first where that is allowed. Raises Refusal.

        Proxies and dashboards look a group up before its first consumer comes.
        """
        del caller
        before = self._groups.version
        config = self._groups.find(group)
        if self._groups.version != before:
            await self._groups.persist()
        if config is None:
            raise Refusal(Reason.UNKNOWN_GROUP, f"No group in this broker. group: {group}")
        return config

    def all(self, caller: Caller) -> GroupListing:
        """Return all groups."""
        del caller
        return GroupListing(
            groups=self._groups.all(),
            version=self._groups.version,
            forbidden=self._groups.all_forbidden(),
        )

    async def readable(self, request: GroupReadableRequest, caller: Caller) -> bool:
        """Return whether a group may read a topic, after the change asked for. Raises Refusal."""
        del caller
        bits = self._groups.forbidden(request.group, request.topic)
        if request.readable is not None:
            wrong = names.check_group(request.group) or names.check_topic(request.topic)
            if wrong is not None:
                raise Refusal(Reason.INVALID_ARGUMENT, wrong)
            bits &= ~FORBIDDEN_SUBSCRIPTION
            bits |= 0 if request.readable else FORBIDDEN_SUBSCRIPTION
            self._groups.set_forbidden(request.group, request.topic, bits)
            await self._groups.persist()
        return not bits & FORBIDDEN_SUBSCRIPTION

    def _checked(self, request: PutGroup) -> SubscriptionGroupConfig:
        config = request.config
        wrong = names.check_group(config.name) or _wrong_numbers(config)
        if wrong is not None:
            raise Refusal(Reason.INVALID_ARGUMENT, wrong)
        known = self._groups.get(config.name)
        current = None if known is None else known.attributes
        try:
            attributes = GROUP_ATTRIBUTES.altered(current, request.changes)
        except ValueError as error:
            raise Refusal(Reason.FAILED, str(error)) from error
        return dataclasses.replace(config, attributes=attributes)


def _wrong_numbers(config: SubscriptionGroupConfig) -> str | None:
    if not 0 <= config.retry_queues <= _COUNT_MAX:
        return f"retryQueueNums {config.retry_queues} is not within 0..{_COUNT_MAX}"
    if not -1 <= config.retry_max_times <= _COUNT_MAX:
        return f"retryMaxTimes {config.retry_max_times} is not within -1..{_COUNT_MAX}"
    return None
