"""Committed offsets: reset (222), clone (314), compare (308), hand to slaves (43, 45).

Next: broker/services/admin/offsets.py, which has the rules.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.broker.api.admin import CloneRequest, ResetRequest
from roquet.broker.services.admin.offsets import (
    OFFSETS_AT_ONCE,
    QUEUES_AT_ONCE,
)
from roquet.protocol.bodies.fields import QueueText
from roquet.protocol.bodies.offsets import correction_offsets_body, queue_offsets_body
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import CloneGroupOffsetRequest, QueryCorrectionOffset
from roquet.protocol.headers.client import ResetOffsetRequest
from roquet.protocol.headers.offset import DELETIONS, DELETIONS_SINCE, HAS_LIGHT_OFFSETS
from roquet.remoting.router import Request, Route
from roquet.service.slices import write_rows

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.offsets import OffsetAdmin


class OffsetAdminAdapter:
    """Changes and shows the offsets of groups."""

    def __init__(self, offsets: OffsetAdmin, callers: Callers, broker_name: str) -> None:
        self._offsets = offsets
        self._callers = callers
        self._broker_name = broker_name

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
        given = request.command.ext or {}
        header = ResetOffsetRequest.decode({"isForce": "false", **given})
        one = "queueId" in given and header.queue_id >= 0
        wanted = ResetRequest(
            topic=header.topic,
            group=header.group,
            queue_id=header.queue_id if one else None,
            offset=None if header.offset == -1 else header.offset,
            time_ms=header.timestamp,
        )
        targets = await self._offsets.reset(wanted, self._callers.of(request))
        text = QueueText(header.topic, self._broker_name)
        rows = (f"{text.of(queue_id)}:{offset}" for queue_id, offset in targets.items())
        body = queue_offsets_body(await write_rows(rows, QUEUES_AT_ONCE))
        return reply_to(request.command, body=body)

    async def clone(self, request: Request) -> Command:
        """Give one group the offsets of another, in one topic or all of them."""
        header = CloneGroupOffsetRequest.decode(request.command.ext)
        wanted = CloneRequest(
            source=header.src_group,
            target=header.dest_group,
            topic=header.topic if header.topic and header.topic.strip() else None,
            is_offline=bool(header.offline),
        )
        await self._offsets.clone(wanted, self._callers.of(request))
        return reply_to(request.command)

    async def correction(self, request: Request) -> Command:
        """Return per queue the least offset of all groups that are not behind one group."""
        header = QueryCorrectionOffset.decode(request.command.ext)
        ignored = set((header.filter_groups or "").split(","))
        caller = self._callers.of(request)
        least = await self._offsets.correction(header.topic, header.compare_group, ignored, caller)
        rows = (f"{queue_id}:{least[queue_id]}" for queue_id in sorted(least))
        body = correction_offsets_body(await write_rows(rows, OFFSETS_AT_ONCE))
        return reply_to(request.command, body=body)

    async def export(self, request: Request) -> Command:
        """Return every committed offset, or what was deleted: how slaves follow."""
        caller = self._callers.of(request)
        asked = request.command.ext or {}
        if DELETIONS in asked:
            ext = {DELETIONS: "true"}
            if DELETIONS_SINCE in asked:
                ext[DELETIONS_SINCE] = self._offsets.deletions_version(caller)
                if ext[DELETIONS_SINCE] == asked[DELETIONS_SINCE]:
                    return reply_to(request.command, ext=ext)
            listed = await asyncio.to_thread(self._offsets.deletions(caller).encode)
            return reply_to(request.command, ext=ext, body=listed)
        # Before the offsets: what is deleted while they are read is another list.
        ext = {HAS_LIGHT_OFFSETS: "true", DELETIONS: self._offsets.deletions_version(caller)}
        return reply_to(request.command, ext=ext, body=await self._offsets.encoded(caller))

    def export_delays(self, request: Request) -> Command:
        """Return how far the delivery of delayed messages is: how slaves follow."""
        body = self._offsets.delays(self._callers.of(request)).encode()
        return reply_to(request.command, body=body)
