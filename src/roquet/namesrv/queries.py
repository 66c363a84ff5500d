"""What clients and operators ask: routes, clusters, topic lists, members of a group."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.namesrv import views
from roquet.namesrv.kv import ORDER_TOPICS
from roquet.protocol import fastjson
from roquet.protocol.bodies.routes import encode_member_group, encode_route, wants_standard
from roquet.protocol.bodies.topics import encode_topic_list, topic_list_body
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import reply_to
from roquet.protocol.headers import namesrv as headers
from roquet.protocol.registration import departed
from roquet.remoting.router import Handler, Route
from roquet.service.background import give_way
from roquet.service.slices import write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roquet.base.clock import Clock
    from roquet.namesrv.config import Settings
    from roquet.namesrv.kv import KeyValues
    from roquet.namesrv.table import RouteTable
    from roquet.protocol.command import Command
    from roquet.remoting.router import Request

CLIENT_LANE = "client"
LANE = "default"
TOPICS_AT_ONCE = 10_000
"""Topics that are looked at or written before others have their turn."""
ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"
NOT_SET = "not set any response code"
"""The remark with which 5.5.0 says yes to code 901."""
NO_ROUTE = (
    "No topic route info in name server for the topic: {}"
    "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class Queries:
    """Handlers that change nothing."""

    def __init__(
        self, table: RouteTable, settings: Settings, order: KeyValues, clock: Clock
    ) -> None:
        """Answer from `table`; the order of topics is in `order`."""
        self._table = table
        self._settings = settings
        self._order = order
        self._clock = clock
        self._started_ms = clock.steady_ms()

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        rows: dict[RequestCode, Handler] = {
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.members,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._by_flag(views.is_unit),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._by_flag(views.has_unit_subscribers),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._by_flag(
                views.has_unit_subscribers_only
            ),
        }
        return [
            Route((RequestCode.GET_ROUTEINFO_BY_TOPIC,), self.route, CLIENT_LANE),
            *(Route((code,), handler, LANE) for code, handler in rows.items()),
        ]

    def route(self, request: Request) -> Command:
        """Say where a topic's queues are (105)."""
        command = request.command
        config = self._settings.now
        age_ms = self._clock.steady_ms() - self._started_ms
        if config.need_wait_for_service and age_ms < config.wait_seconds_for_service * 1000:
            raise Refused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        # Java answers a request without topic as one for the topic "null".
        header = headers.GetRouteInfoRequest.decode({"topic": "null", **(command.ext or {})})
        found = views.route(self._table, header.topic, acting_master=config.support_acting_master)
        left = self._left(command, header.topic)
        if found is None:
            remark = NO_ROUTE.format(header.topic)
            return reply_to(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark, ext=left)
        if config.order_message_enable:
            order = self._order.get(ORDER_TOPICS, header.topic)
            found = dataclasses.replace(found, order_topic_conf=order)
        strict = wants_standard(command.version, header.accept_standard_json_only)
        ext = command.ext or {}
        if ext.get(ZONE_MODE, "").lower() == "true" and ext.get(ZONE_NAME):
            # Java writes the answer anew here, always in the older form.
            found, strict = views.in_zone(found, ext[ZONE_NAME]), False
        return reply_to(command, ext=left, body=encode_route(found, standard=strict))

    def _left(self, command: Command, topic: str) -> dict[str, str] | None:
        """Return the field about brokers that left for those who ask, None for others."""
        keep_ms = self._settings.now.departed_keep_ms
        if not departed.asked(command.ext) or not keep_ms:
            return None
        self._table.departed.expire(self._clock.steady_ms() - keep_ms)
        here = self._table.topics.get(topic, {})
        return departed.told(it for it in self._table.departed.of(topic) if it not in here)

    def clusters(self, request: Request) -> Command:
        """Show all clusters and brokers (106)."""
        return reply_to(request.command, body=views.clusters(self._table).encode())

    def members(self, request: Request) -> Command:
        """Show the addresses under a broker name (901)."""
        header = headers.GetBrokerMemberGroupRequest.decode(request.command.ext)
        addresses = views.members(self._table, header.broker_name)
        body = encode_member_group(header.cluster_name, header.broker_name, addresses)
        return reply_to(request.command, remark=NOT_SET, body=body)

    async def all_topics(self, request: Request) -> Command:
        """List every topic (206)."""
        if not self._settings.now.enable_all_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
        gone: Iterable[str] = ()
        if departed.asked(request.command.ext) and self._settings.now.departed_keep_ms:
            gone = self._table.departed.topics()
        return await self._listed(request, lambda topics: topics, gone)

    async def topics_of_cluster(self, request: Request) -> Command:
        """List the topics of a cluster (224)."""
        self._check_lists()
        header = headers.GetTopicsByClusterRequest.decode(request.command.ext)
        cluster = header.cluster
        return await self._listed(
            request, lambda topics: views.topics_of_cluster(self._table, cluster, topics)
        )

    def system_topics(self, request: Request) -> Command:
        """List cluster and broker names, and one broker that knows the rest (304)."""
        found = views.system_names(self._table)
        body = encode_topic_list(found.names, found.broker_address)
        return reply_to(request.command, body=body)

    def _by_flag(self, wanted: Callable[[int], bool]) -> Handler:
        async def handler(request: Request) -> Command:
            self._check_lists()
            return await self._listed(
                request, lambda topics: views.topics_by_flag(self._table, wanted, topics)
            )

        return handler

    async def _listed(
        self,
        request: Request,
        choose: Callable[[Iterable[str]], Iterable[str]],
        more: Iterable[str] = (),
    ) -> Command:
        """Answer with the topics that `choose` chooses, in slices: there may be a million."""
        topics = list(self._table.topics)
        topics += [topic for topic in more if topic not in self._table.topics]
        if len(topics) <= fastjson.SORTED_MAX:
            topics.sort()
        chosen: list[str] = []
        for at in range(0, len(topics), TOPICS_AT_ONCE):
            chosen += choose(topics[at : at + TOPICS_AT_ONCE])
            await give_way()
        rows = await write_rows(map(fastjson.quoted, chosen), TOPICS_AT_ONCE)
        return reply_to(request.command, body=topic_list_body(rows))

    def _check_lists(self) -> None:
        if not self._settings.now.enable_topic_list:
            raise Refused(ResponseCode.SYSTEM_ERROR, "disable")
