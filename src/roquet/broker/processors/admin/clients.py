"""Clients: who is connected (203, 204, 328, 345), and questions passed on to them (307, 309, 223).

A question goes to the client over the connection of its heartbeats; the client's answer comes back
as it is. Clients that are too old to know the question are named, not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl.accounts import Perm
from roquet.acl.needs import topic as topic_need
from roquet.acl.rights import EVERYBODY
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.broker.processors.admin.common import NOT_SET
from roquet.protocol import fastjson
from roquet.protocol.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerInfo,
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
from roquet.protocol.message_id import parse_offset_id
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.acl.rights import Rights
    from roquet.broker.proof import ProvenMessages
    from roquet.broker.registry import Client, ConsumerGroup, Registry
    from roquet.broker.state import Identity
    from roquet.model.queue import MessageQueue
    from roquet.store.groups import GroupTable
    from roquet.store.store import MessageStore
    from roquet.store.topics import TopicTable

ASK_S = 10.0
"""How long a client has to answer a question passed on to it."""
ASK_STATUS_S = 5.0

_KNOWS_STATUS = 28
_KNOWS_RUNNING_INFO = 62


class ClientAdmin:
    """Answers who is connected, and passes questions on."""

    def __init__(
        self,
        registry: Registry,
        topics: TopicTable,
        groups: GroupTable,
        store: MessageStore,
        *,
        identity: Identity,
        messages: ProvenMessages,
        rights: Rights = EVERYBODY,
    ) -> None:
        self._messages = messages
        self._rights = rights
        self._registry = registry
        self._topics = topics
        self._groups = groups
        self._store = store
        self._identity = identity

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
        group = self._registry.consumer(name)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        consuming = group.consuming
        body = ConsumerConnection(
            connections=tuple(_connection(member.client) for member in group.members.values()),
            consume_type=consuming.consume_type,
            message_model=consuming.model,
            consume_from_where=consuming.from_where,
            subscriptions=group.subscriptions,
        )
        return reply_to(request.command, body=body.encode())

    def producers(self, request: Request) -> Command:
        """Return the members of a producer group."""
        name = GetProducerConnectionListRequest.decode(request.command.ext).producer_group
        members = self._registry.producers(name)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = encode_producer_connections(_connection(member.client) for member in members)
        return reply_to(request.command, body=body)

    def all_producers(self, request: Request) -> Command:
        """Return every producer by group."""
        table = {
            name: [
                ProducerInfo(
                    client_id=member.client.client_id or "",
                    remote_ip=f"/{member.client.peer.address}",
                    language=member.client.language,
                    version=member.client.version,
                    last_update=member.client.heard_at_ms,
                )
                for member in self._registry.producers(name)
            ]
            for name in self._registry.producer_groups
        }
        return reply_to(request.command, body=encode_producer_table(table))

    def subscription(self, request: Request) -> Command:
        """Return what a group subscribes to of a topic."""
        header = QuerySubscriptionByConsumerRequest.decode(request.command.ext)
        found = self._registry.subscription(header.group, header.topic or "")
        answer = {
            "group": header.group,
            "subscriptionData": None if found is None else subscription_json(found),
            "topic": header.topic,
        }
        return reply_to(request.command, body=fastjson.java(answer))

    async def running_info(self, request: Request) -> Command:
        """Return what a consumer says of itself."""
        header = GetConsumerRunningInfoRequest.decode(request.command.ext)
        client = self._client(header.consumer_group, header.client_id)
        return await self._pass_on(request.command, client, header.consumer_group)

    async def consume_directly(self, request: Request) -> Command:
        """Have one consumer process one stored message now, and return how that went."""
        header = ConsumeMessageDirectlyResultRequest.decode(request.command.ext)
        client = self._client(header.consumer_group, header.client_id or "")
        ext = dict(request.command.ext or {})
        ext["brokerName"] = self._identity.name
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.sys_flag)
        group = self._groups.find(header.consumer_group)
        if group is not None:
            ext["groupSysFlag"] = str(group.sys_flag)
        message = await self._message(request, header.msg_id or "")
        question = Command(request.command.code, ext, message, language="JAVA")
        return await self._pass_on(request.command, client, header.consumer_group, question)

    async def status(self, request: Request) -> Command:
        """Return where each member of a group is, as the members themselves say."""
        header = GetConsumerStatusRequest.decode(request.command.ext)
        group = self._registry.consumer(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        by_client: dict[str, dict[MessageQueue, int]] = {}
        for client in self._asked(group, header.client_addr):
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

    def _asked(self, group: ConsumerGroup, client_id: str | None) -> list[Client]:
        clients = [member.client for member in group.members.values()]
        for client in clients:
            if client.version < _KNOWS_STATUS:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR,
                    "the client does not support this feature. version="
                    f"{client.version}, client={client.client_id}",
                )
        if client_id:
            return [client for client in clients if client.client_id == client_id]
        return clients

    def _client(self, group_name: str, client_id: str) -> Client:
        group = self._registry.consumer(group_name)
        member = None if group is None else group.member_with_id(client_id)
        if member is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online"
            )
        if member.client.version < _KNOWS_RUNNING_INFO:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{member.client.version}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        return member.client

    async def _pass_on(
        self, asked: Command, client: Client, group: str, question: Command | None = None
    ) -> Command:
        """Ask the client the same question and return its answer as it is."""
        forward = question or Command(asked.code, asked.ext, asked.body, language="JAVA")
        try:
            answer = await client.peer.call(forward, ASK_S)
        except OutcomeUnknown as error:
            raise Refused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client.client_id}> Timeout: {error}",
            ) from error
        except Unreachable as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client.client_id}> Exception: {error}",
            ) from error
        return reply_to(asked, answer.code, remark=answer.remark, ext=answer.ext, body=answer.body)

    async def _message(self, request: Request, message_id: str) -> bytes:
        """Return the stored record that a message id of this broker names."""
        try:
            _, offset = parse_offset_id(message_id)
        except ValueError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from error
        record = await self._messages.record(offset)
        data = None if record is None else self._store.read(offset, record.size)
        if record is None or data is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no message has the id {message_id[:80]}")
        caller = self._rights.caller(request.command, request.peer.address)
        self._rights.require(caller, [topic_need(record.topic, Perm.SUB)])
        return data


def _connection(client: Client) -> Connection:
    return Connection(
        client_id=client.client_id or "",
        client_address=client.peer.address,
        language=client.language,
        version=client.version,
    )
