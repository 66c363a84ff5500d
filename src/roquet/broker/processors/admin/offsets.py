"""Committed offsets: reset (222), clone (314), compare (308), hand to slaves (43, 45).

A reset needs no client: the broker keeps the new offset as pending, hides the committed one, and
the next pull takes it (spec: wire §10.5).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.broker.processors.admin.common import QUEUES_AT_ONCE
from roquet.protocol.bodies.fields import QueueText
from roquet.protocol.bodies.offsets import correction_offsets_body, queue_offsets_body
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import CloneGroupOffsetRequest, QueryCorrectionOffset
from roquet.protocol.headers.client import ResetOffsetRequest
from roquet.remoting.router import Request, Route
from roquet.service.background import give_way
from roquet.service.slices import in_slices, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.registry import Registry
    from roquet.broker.state import BrokerState, Identity
    from roquet.protocol.bodies.offsets import DelayOffsetBody
    from roquet.store.groups import GroupTable
    from roquet.store.offsets import OffsetTable
    from roquet.store.store import MessageStore
    from roquet.store.topics import TopicTable

log = logging.getLogger(__name__)

_NEVER = 2**63 - 1
OFFSETS_AT_ONCE = 2_000
"""Offsets of the table that are looked at before others have their turn."""


class OffsetAdmin:
    """Changes and shows the offsets of groups."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        registry: Registry,
        store: MessageStore,
        *,
        identity: Identity,
        state: BrokerState,
        delay_offsets: Callable[[], DelayOffsetBody],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._registry = registry
        self._store = store
        self._identity = identity
        self._state = state
        self._delay_offsets = delay_offsets

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,), self.reset, "admin"),
            Route((RequestCode.CLONE_GROUP_OFFSET,), self.clone, "admin"),
            Route((RequestCode.QUERY_CORRECTION_OFFSET,), self.correction, "admin"),
            Route((RequestCode.GET_ALL_CONSUMER_OFFSET,), self.export, "admin"),
            Route((RequestCode.GET_ALL_DELAY_OFFSET,), self.export_delays, "admin"),
        ]

    async def reset(self, request: Request) -> Command:
        """Let a group go on at another place in one queue or all queues of a topic."""
        header = ResetOffsetRequest.decode({"isForce": "false", **(request.command.ext or {})})
        if self._state.is_slave:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        topic, group = header.topic, header.group
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if self._groups.get(group) is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        one = "queueId" in (request.command.ext or {}) and header.queue_id >= 0
        if one and header.queue_id >= max(config.read_queues, config.write_queues):
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"topic {topic} has no queue {header.queue_id}"
            )
        if one and header.offset is not None and header.offset != -1:
            targets = {header.queue_id: self._in_range(topic, header.queue_id, header.offset)}
        else:
            queue_ids = (header.queue_id,) if one else range(config.write_queues)
            targets = {
                q: self._at(topic, q, header.timestamp)
                async for q in in_slices(queue_ids, QUEUES_AT_ONCE)
            }
        async for queue_id, offset in in_slices(targets.items(), QUEUES_AT_ONCE):
            self._offsets.reset(group, topic, queue_id, offset)
            if len(targets) <= QUEUES_AT_ONCE:
                log.info("group %s goes on at %d in %s queue %d", group, offset, topic, queue_id)
        if len(targets) > QUEUES_AT_ONCE:
            log.info("group %s goes on elsewhere in %d queues of %s", group, len(targets), topic)
        await self._offsets.persist()
        text = QueueText(topic, self._identity.name)
        rows = (f"{text.of(queue_id)}:{offset}" for queue_id, offset in targets.items())
        body = queue_offsets_body(await write_rows(rows, QUEUES_AT_ONCE))
        return reply_to(request.command, body=body)

    async def clone(self, request: Request) -> Command:
        """Give one group the offsets of another, in one topic or all of them."""
        header = CloneGroupOffsetRequest.decode(request.command.ext)
        one = header.topic and header.topic.strip()
        topics = [header.topic] if one else self._offsets.topics_of(header.src_group)
        member = self._registry.consumer(header.src_group)
        async for topic in in_slices(topics, QUEUES_AT_ONCE):
            if topic is None or self._topics.get(topic) is None:
                continue
            if not header.offline and member is not None and topic not in member.subscriptions:
                continue
            self._offsets.copy_group(header.src_group, header.dest_group, topic)
        await self._offsets.persist()
        return reply_to(request.command)

    async def correction(self, request: Request) -> Command:
        """Return per queue the least offset of all groups that are not behind one group."""
        header = QueryCorrectionOffset.decode(request.command.ext)
        ignored = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(header.topic):
            if group not in ignored:
                queues = self._offsets.queues(group, header.topic)
                async for queue_id, offset in in_slices(queues.items(), OFFSETS_AT_ONCE):
                    least[queue_id] = min(offset, least.get(queue_id, _NEVER))
                await give_way()
        compared = self._offsets.queues(header.compare_group, header.topic)
        async for queue_id, offset in in_slices(compared.items(), OFFSETS_AT_ONCE):
            if least.get(queue_id, _NEVER) > offset:
                least[queue_id] = _NEVER
        rows = (f"{queue_id}:{least[queue_id]}" for queue_id in sorted(least))
        body = correction_offsets_body(await write_rows(rows, OFFSETS_AT_ONCE))
        return reply_to(request.command, body=body)

    async def export(self, request: Request) -> Command:
        """Return every committed offset: how slaves follow."""
        body = await self._offsets.encoded()
        return reply_to(request.command, body=body)

    def export_delays(self, request: Request) -> Command:
        """Return how far the delivery of delayed messages is: how slaves follow."""
        return reply_to(request.command, body=self._delay_offsets().encode())

    def _in_range(self, topic: str, queue_id: int, offset: int) -> int:
        low = self._store.min_offset(topic, queue_id)
        high = self._store.max_offset(topic, queue_id)
        if (low >= 0 and offset < low) or offset > high + 1:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return offset

    def _at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return max(0, self._store.max_offset(topic, queue_id))
        return max(0, self._store.offset_by_time(topic, queue_id, timestamp))
