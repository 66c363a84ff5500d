"""What tools ask about light topics: 200074 to 200079."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.bodies import light_topics as bodies
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers import light as headers
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.broker.api.pop import LightLag
    from roquet.broker.light.info import LightInfo
    from roquet.broker.remoting.callers import Callers

STORE_TYPE = "default"
"""As Java calls queues in files."""


class LightInfoAdapter:
    """Answers what operators' tools ask about light topics."""

    def __init__(self, info: LightInfo, callers: Callers) -> None:
        self._info = info
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_BROKER_LITE_INFO,), self.broker, "admin"),
            Route((RequestCode.GET_PARENT_TOPIC_INFO,), self.parent, "admin"),
            Route((RequestCode.GET_LITE_TOPIC_INFO,), self.light_topic, "admin"),
            Route((RequestCode.GET_LITE_CLIENT_INFO,), self.client, "admin"),
            Route((RequestCode.GET_LITE_GROUP_INFO,), self.group, "admin"),
            Route((RequestCode.TRIGGER_LITE_DISPATCH,), self.dispatch, "admin"),
        ]

    async def broker(self, request: Request) -> Command:
        """Answer 200074: the counters of the broker."""
        found = await self._info.broker()
        body = bodies.BrokerLight(
            store_type=STORE_TYPE,
            queues_max=found.queues_max,
            queues=found.queues,
            subscriptions=found.subscriptions,
            orders=found.orders,
            queue_tables=found.queue_tables,
            offsets=found.offsets,
            clients=found.clients,
            parents=found.parents,
            groups=found.groups,
        )
        return reply_to(request.command, body=body.encode())

    async def parent(self, request: Request) -> Command:
        """Answer 200075: a parent topic."""
        header = headers.ParentTopicInfoRequest.decode(request.command.ext)
        found = await self._info.parent(header.topic)
        body = bodies.ParentLight(
            topic=found.topic,
            minutes=found.minutes,
            groups=found.groups,
            queues=found.queues,
            light_topics=found.light_topics,
        )
        return reply_to(request.command, body=body.encode())

    async def light_topic(self, request: Request) -> Command:
        """Answer 200076: offsets and subscribers of a light topic."""
        header = headers.LightTopicInfoRequest.decode(request.command.ext)
        found = await self._info.light_topic(header.parent_topic, header.lite_topic)
        body = bodies.LightTopic(
            parent=header.parent_topic,
            name=header.lite_topic,
            subscribers=found.subscribers,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            newest_ms=found.newest_ms,
            is_here=found.is_here,
        )
        return reply_to(request.command, body=body.encode())

    def client(self, request: Request) -> Command:
        """Answer 200077: the subscription of a client."""
        header = headers.LightClientInfoRequest.decode(request.command.ext)
        asked = header.parent_topic, header.group, header.client_id
        found = self._info.client(*asked, header.max_count)
        body = bodies.LightClient(
            parent=header.parent_topic,
            group=header.group,
            client_id=header.client_id,
            asked_ms=found.asked_ms,
            count=found.count,
            queues=found.queues,
        )
        return reply_to(request.command, body=body.encode())

    async def group(self, request: Request) -> Command:
        """Answer 200078: how far a group is behind."""
        header = headers.LightGroupInfoRequest.decode(request.command.ext)
        name, caller = header.lite_topic, self._callers.of(request)
        found = await self._info.group(header.group, name, header.top_k, caller)
        body = bodies.LightGroup(
            group=header.group,
            parent=found.topic,
            name=name,
            total=found.total,
            oldest_ms=found.oldest_ms,
            by_lag=None if name else _lags(found.by_lag),
            by_age=None if name else _lags(found.by_age),
            offsets=found.offsets,
        )
        return reply_to(request.command, body=body.encode())

    async def dispatch(self, request: Request) -> Command:
        """Answer 200079 when all that is there is noted for a client or a group."""
        header = headers.TriggerLightDispatchRequest.decode(request.command.ext)
        await self._info.dispatch(header.group, header.client_id, self._callers.of(request))
        return reply_to(request.command)


def _lags(lags: Sequence[LightLag]) -> list[bodies.Lag]:
    return [bodies.Lag(name=it.name, lag=it.lag, oldest_ms=it.oldest_ms) for it in lags]
