"""Who is connected, and which client answers a question that an operator has for it.

Questions go to a client over the connection of its heartbeats; clients that are too old to know a
question are named, not asked. How they are asked is the front's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.admin import Direct
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.access import Access
from roquet.protocol import versions
from roquet.protocol.bodies.clients import Connection, ConsumerConnection, ProducerInfo
from roquet.protocol.messages.message_id import parse_offset_id

if TYPE_CHECKING:
    from roquet.broker.api.admin import DirectRequest
    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.registry import Client, Registry
    from roquet.broker.messages.proof import ProvenMessages
    from roquet.model.subscription import SubscriptionData
    from roquet.store.store import MessageStore
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.topics import TopicTable


class Connections:
    """Knows who is connected."""

    def __init__(
        self,
        registry: Registry,
        topics: TopicTable,
        groups: GroupTable,
        store: MessageStore,
        *,
        messages: ProvenMessages,
        access: Access | None = None,
    ) -> None:
        self._messages = messages
        self._access = access or Access()
        self._registry = registry
        self._topics = topics
        self._groups = groups
        self._store = store

    def consumers(self, name: str, caller: Caller) -> ConsumerConnection:
        """Return a group's members and what they subscribe to. Raises Refusal."""
        del caller
        group = self._registry.consumer(name)
        if group is None:
            raise Refusal(Reason.CLIENT_OFFLINE, f"the consumer group[{name}] not online")
        consuming = group.consuming
        return ConsumerConnection(
            connections=tuple(_connection(member.client) for member in group.members.values()),
            consume_type=consuming.consume_type,
            message_model=consuming.model,
            consume_from_where=consuming.from_where,
            subscriptions=group.subscriptions,
        )

    def producers(self, name: str, caller: Caller) -> list[Connection]:
        """Return the members of a producer group. Raises Refusal."""
        del caller
        members = self._registry.producers(name)
        if not members:
            raise Refusal(Reason.FAILED, f"the producer group[{name}] not exist")
        return [_connection(member.client) for member in members]

    def all_producers(self, caller: Caller) -> dict[str, list[ProducerInfo]]:
        """Return every producer by group."""
        del caller
        return {
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

    def subscription(self, group: str, topic: str, caller: Caller) -> SubscriptionData | None:
        """Return what a group subscribes to of a topic."""
        del caller
        return self._registry.subscription(group, topic)

    # --- whom to ask -----------------------------------------------------------------------------

    def member(self, group_name: str, client_id: str, caller: Caller) -> Client:
        """Return the consumer that can tell of itself. Raises Refusal."""
        del caller
        group = self._registry.consumer(group_name)
        member = None if group is None else group.member_with_id(client_id)
        if member is None:
            text = f"The Consumer <{group_name}> <{client_id}> not online"
            raise Refusal(Reason.FAILED, text)
        if member.client.version < versions.V3_1_8_SNAPSHOT:
            raise Refusal(
                Reason.FAILED,
                f"The Consumer <{client_id}> Version <{member.client.version}> too low to "
                "finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        return member.client

    async def direct(self, request: DirectRequest, caller: Caller) -> Direct:
        """Return what a consumer is given to process one message now. Raises Refusal."""
        client = self.member(request.group, request.client_id, caller)
        topic = self._topics.get(request.topic)
        group = self._groups.find(request.group)
        return Direct(
            client=client,
            record=await self._record(request.message_id, caller),
            topic_sys_flag=None if topic is None else topic.sys_flag,
            group_sys_flag=None if group is None else group.sys_flag,
        )

    def members(self, name: str, client_id: str | None, caller: Caller) -> list[Client]:
        """Return the members of a group, or one of them, that tell how far they are.

        Raises Refusal when nobody is online, or a member does not know the question.
        """
        del caller
        group = self._registry.consumer(name)
        if group is None:
            text = f"No Any Consumer online in the consumer group: [{name}]"
            raise Refusal(Reason.FAILED, text)
        clients = [member.client for member in group.members.values()]
        for client in clients:
            if client.version < versions.V3_0_7_SNAPSHOT:
                raise Refusal(
                    Reason.FAILED,
                    "the client does not support this feature. version="
                    f"{client.version}, client={client.client_id}",
                )
        if client_id:
            return [client for client in clients if client.client_id == client_id]
        return clients

    async def _record(self, message_id: str, caller: Caller) -> bytes:
        """Return the stored record that a message id of this broker names."""
        try:
            _, offset = parse_offset_id(message_id)
        except ValueError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, f"msgId: {error}") from error
        record = await self._messages.record(offset)
        data = None if record is None else self._store.read(offset, record.size)
        if record is None or data is None:
            raise Refusal(Reason.FAILED, f"no message has the id {message_id[:80]}")
        self._access.require_message(caller, record)
        return data


def _connection(client: Client) -> Connection:
    return Connection(
        client_id=client.client_id or "",
        client_address=client.peer.address,
        language=client.language,
        version=client.version,
    )
