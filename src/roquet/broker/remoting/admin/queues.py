"""Looking into a consume queue (321)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.broker.api.admin import UnitsRequest
from roquet.broker.remoting.admin.pages import NOT_SET
from roquet.protocol import fastjson
from roquet.protocol.bodies.clients import subscription_json
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import QueryConsumeQueueRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.queues import QueueUnits


class QueueUnitAdapter:
    """Shows units of a queue."""

    def __init__(self, units: QueueUnits, callers: Callers) -> None:
        self._units = units
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [Route((RequestCode.QUERY_CONSUME_QUEUE,), self.show, "admin")]

    async def show(self, request: Request) -> Command:
        """Return units from an index on."""
        header = QueryConsumeQueueRequest.decode(request.command.ext)
        topic, group = header.topic or "", header.consumer_group
        wanted = UnitsRequest(
            topic=topic,
            queue_id=header.queue_id,
            index=header.index,
            count=header.count,
            group=group,
        )
        found = self._units.show(wanted, self._callers.of(request))
        if found.units is None:
            # Nothing is wrong with the question, so the code is that of an answer.
            nothing = f"Index {header.index} of {header.queue_id}@{topic} is not exist!"
            return reply_to(request.command, remark=nothing)
        subscription = found.subscription
        asked: dict[str, Any] = {}
        if group:
            # A group that filters by tags alone has no filter data: Java prints null.
            offline = f"{group}@{topic} is not online!"
            asked["filterData"] = offline if subscription is None else "null"
        answer = {
            **asked,
            "maxQueueIndex": found.max_index,
            "minQueueIndex": found.min_index,
            "queueData": found.units,
            "subscriptionData": None if subscription is None else subscription_json(subscription),
        }
        return reply_to(request.command, remark=NOT_SET, body=fastjson.java(answer))
