"""Clients: who is connected (203, 204, 328, 345), and questions passed on to them (307, 309, 223).

A question goes to the client over the connection of its heartbeats, with the fields of its header
and no others: protocol/headers/relayed.py says why. Its answer comes back as it is. Next:
broker/services/admin/connections.py, which has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.broker.api.admin import DirectRequest
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.admin.pages import NOT_SET
from roquet.protocol import fastjson
from roquet.protocol.bodies.clients import (
    encode_producer_connections,
    encode_producer_table,
    subscription_json,
)
from roquet.protocol.bodies.offsets import decode_consumer_status, encode_consumer_status
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.admin import (
    ConsumeMessageDirectlyResultRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetProducerConnectionListRequest,
    QuerySubscriptionByConsumerRequest,
)
from roquet.protocol.headers.client import GetConsumerStatusRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.clients.registry import Client
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.admin.connections import Connections
    from roquet.model.queue import MessageQueue

ASK_S = 10.0
"""How long a client has to answer a question passed on to it."""
ASK_STATUS_S = 5.0


class ConnectionAdapter:
    """Answers who is connected, and passes questions on."""

    def __init__(self, connections: Connections, callers: Callers, broker_name: str) -> None:
        self._connections = connections
        self._callers = callers
        self._broker_name = broker_name

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_CONSUMER_CONNECTION_LIST,), self.consumers, "admin"),
            Route((RequestCode.GET_PRODUCER_CONNECTION_LIST,), self.producers, "admin"),
            Route((RequestCode.GET_ALL_PRODUCER_INFO,), self.all_producers, "admin"),
            Route((RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,), self.subscription, "admin"),
            Route((RequestCode.GET_CONSUMER_RUNNING_INFO,), self.running_info, "admin"),
            Route((RequestCode.CONSUME_MESSAGE_DIRECTLY,), self.consume_directly, "admin"),
            Route((RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,), self.status, "admin"),
        ]

    def consumers(self, request: Request) -> Command:
        """Return a group's members and what they subscribe to."""
        name = GetConsumerConnectionListRequest.decode(request.command.ext).consumer_group
        body = self._connections.consumers(name, self._callers.of(request))
        return reply_to(request.command, body=body.encode())

    def producers(self, request: Request) -> Command:
        """Return the members of a producer group."""
        name = GetProducerConnectionListRequest.decode(request.command.ext).producer_group
        found = self._connections.producers(name, self._callers.of(request))
        return reply_to(request.command, body=encode_producer_connections(found))

    def all_producers(self, request: Request) -> Command:
        """Return every producer by group."""
        found = self._connections.all_producers(self._callers.of(request))
        return reply_to(request.command, body=encode_producer_table(found))

    def subscription(self, request: Request) -> Command:
        """Return what a group subscribes to of a topic."""
        header = QuerySubscriptionByConsumerRequest.decode(request.command.ext)
        caller = self._callers.of(request)
        found = self._connections.subscription(header.group, header.topic or "", caller)
        answer = {
            "group": header.group,
            "subscriptionData": None if found is None else subscription_json(found),
            "topic": header.topic,
        }
        return reply_to(request.command, body=fastjson.java(answer))

    async def running_info(self, request: Request) -> Command:
        """Return what a consumer says of itself."""
        header = GetConsumerRunningInfoRequest.decode(request.command.ext)
        group, caller = header.consumer_group, self._callers.of(request)
        client = self._connections.member(group, header.client_id, caller)
        question = Command(request.command.code, header.encode(), language="JAVA")
        return await self._pass_on(request.command, client, group, question)

    async def consume_directly(self, request: Request) -> Command:
        """Have one consumer process one stored message now, and return how that went."""
        header = ConsumeMessageDirectlyResultRequest.decode(request.command.ext)
        wanted = DirectRequest(
            group=header.consumer_group,
            client_id=header.client_id or "",
            topic=header.topic or "",
            message_id=header.msg_id or "",
        )
        found = await self._connections.direct(wanted, self._callers.of(request))
        ext = header.encode()
        ext["brokerName"] = self._broker_name
        if found.topic_sys_flag is not None:
            ext["topicSysFlag"] = str(found.topic_sys_flag)
        if found.group_sys_flag is not None:
            ext["groupSysFlag"] = str(found.group_sys_flag)
        question = Command(request.command.code, ext, found.record, language="JAVA")
        return await self._pass_on(request.command, found.client, header.consumer_group, question)

    async def status(self, request: Request) -> Command:
        """Return where each member of a group is, as the members themselves say."""
        header = GetConsumerStatusRequest.decode(request.command.ext)
        caller = self._callers.of(request)
        by_client: dict[str, dict[MessageQueue, int]] = {}
        for client in self._connections.members(header.group, header.client_addr, caller):
            question = Command(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                {"topic": header.topic, "group": header.group},
                language="JAVA",
            )
            try:
                answer = await client.peer.call(question, ASK_STATUS_S)
                if answer.code == ResponseCode.SUCCESS and client.client_id:
                    by_client[client.client_id] = decode_consumer_status(answer.body)[0]
            except (Unreachable, OutcomeUnknown, fastjson.JsonError):
                continue
        body = encode_consumer_status({}, by_client)
        return reply_to(request.command, remark=NOT_SET, body=body)

    async def _pass_on(
        self, asked: Command, client: Client, group: str, question: Command
    ) -> Command:
        """Ask the client and return its answer: such answers have no fields."""
        who = f"consumer <{group}> <{client.client_id}>"
        try:
            answer = await client.peer.call(question, ASK_S)
        except OutcomeUnknown as error:
            raise Refusal(Reason.CLIENT_TIMEOUT, f"{who} Timeout: {error}") from error
        except Unreachable as error:
            raise Refusal(Reason.FAILED, f"invoke {who} Exception: {error}") from error
        return reply_to(asked, answer.code, remark=answer.remark, body=answer.body)
