"""Looking into a consume queue (321)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.base.errors import Refused
from roquet.broker.processors.admin.common import NOT_SET
from roquet.protocol import fastjson
from roquet.protocol import properties as props
from roquet.protocol.bodies.clients import subscription_json
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import QueryConsumeQueueRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.registry import Registry
    from roquet.model.subscription import SubscriptionData
    from roquet.store.store import MessageStore
    from roquet.store.topics import TopicTable

COUNT_MAX = 256


class QueueAdmin:
    """Shows units of a queue, and whether a group would get them."""

    def __init__(self, topics: TopicTable, registry: Registry, store: MessageStore) -> None:
        self._topics = topics
        self._registry = registry
        self._store = store

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [Route((RequestCode.QUERY_CONSUME_QUEUE,), self.show, "admin")]

    async def show(self, request: Request) -> Command:
        """Return units from an index on."""
        header = QueryConsumeQueueRequest.decode(request.command.ext)
        topic = header.topic or ""
        known = self._topics.get(topic) is not None and header.queue_id >= 0
        end = self._store.max_offset(topic, header.queue_id) if known else 0
        if end == 0:
            # RocketMQ has no file for a queue before its first message.
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{header.queue_id}@{topic} is not exist!",
            )
        if header.index < 0 or header.count <= 0:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"index {header.index} or count {header.count} is out of range",
            )
        group = header.consumer_group
        subscription = self._registry.subscription(group, topic) if group else None
        if header.index >= end:
            # Nothing is wrong with the question, so the code is that of an answer.
            nothing = f"Index {header.index} of {header.queue_id}@{topic} is not exist!"
            return reply_to(request.command, remark=nothing)
        count = min(header.count, COUNT_MAX)
        asked: dict[str, Any] = {}
        if group:
            # A group that filters by tags alone has no filter data: Java prints null.
            offline = f"{group}@{topic} is not online!"
            asked["filterData"] = offline if subscription is None else "null"
        units = self._store.units(topic, header.queue_id, header.index, count)
        answer = {
            **asked,
            "maxQueueIndex": end,
            "minQueueIndex": self._store.min_offset(topic, header.queue_id),
            "queueData": [self._unit(unit, subscription) for unit in units],
            "subscriptionData": None if subscription is None else subscription_json(subscription),
        }
        return reply_to(request.command, remark=NOT_SET, body=fastjson.java(answer))

    def _unit(
        self, unit: tuple[int, int, int], subscription: SubscriptionData | None
    ) -> dict[str, Any]:
        physical, size, code = unit
        shown: dict[str, Any] = {
            # Without a subscription there is nothing to judge by: false, as Java says.
            "eval": subscription is not None and subscription.takes_code(code),
            "physicOffset": physical,
            "physicSize": size,
            "tagsCode": code,
        }
        record = self._store.record(physical, size)
        if record is None:
            shown["msg"] = "message not in the log any more"
        elif subscription is not None:
            tag = props.read(record.properties).get(props.TAGS)
            shown["eval"] = shown["eval"] and subscription.takes_tag(tag)
        return shown
