"""HEART_BEAT 34, UNREGISTER_CLIENT 35, GET_CONSUMER_LIST_BY_GROUP 38, CHECK_CLIENT_CONFIG 46.

Next: broker/services/clients/heartbeats.py, which has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.registry import Client
from roquet.broker.remoting.bodies import body_of, parts_of
from roquet.protocol.bodies.clients import CheckClient, HeartbeatData, encode_consumer_ids
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.client import (
    GetConsumerListByGroupRequest,
    UnregisterClientRequest,
)
from roquet.remoting.router import Peer, Request, Route

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.clients.heartbeats import Clients

BODY_SIZE_MAX = 1 << 20


class ClientAdapter:
    """Answers what clients say of themselves and ask of their groups."""

    def __init__(self, clients: Clients, callers: Callers, clock: Clock) -> None:
        self._clients = clients
        self._callers = callers
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [
            Route((RequestCode.HEART_BEAT,), self.heartbeat, "heartbeat"),
            Route((RequestCode.UNREGISTER_CLIENT,), self.unregister, "client_manage"),
            Route((RequestCode.CHECK_CLIENT_CONFIG,), self.check_config, "client_manage"),
            Route((RequestCode.GET_CONSUMER_LIST_BY_GROUP,), self.members, "consumer_manage"),
        ]

    async def heartbeat(self, request: Request) -> Command:
        """Answer 34: register the groups of a client."""
        command = request.command
        if len(command.body) > BODY_SIZE_MAX:
            text = f"a heartbeat has at most {BODY_SIZE_MAX} bytes"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        data = await parts_of(command, HeartbeatData.of_json, Reason.FAILED, "")
        caller = self._callers.of(request)
        client = Client(
            request.peer,
            data.client_id,
            command.language,
            command.version,
            caller.access_key,
            self._clock.now_ms(),
        )
        resend = await self._clients.heartbeat(data, client, caller)
        return reply_to(
            command,
            ext={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if resend else "false",
            },
        )

    def unregister(self, request: Request) -> Command:
        """Answer 35: take the connection out of the groups named; always a success."""
        header = UnregisterClientRequest.decode(request.command.ext)
        self._clients.unregister(request.peer.key, header.producer_group, header.consumer_group)
        return reply_to(request.command, ext={})

    async def check_config(self, request: Request) -> Command:
        """Answer 46: whether a consumer's subscription can be served."""
        if request.command.body:
            asked = await body_of(request.command, CheckClient.decode, Reason.FAILED, "")
            self._clients.check_subscription(asked, self._callers.of(request))
        return reply_to(request.command)

    def members(self, request: Request) -> Command:
        """Answer 38 with the members' client ids."""
        header = GetConsumerListByGroupRequest.decode(request.command.ext)
        ids = self._clients.members(header.consumer_group, self._callers.of(request))
        return reply_to(request.command, ext={}, body=encode_consumer_ids(ids))

    def peer_closed(self, peer: Peer) -> None:
        """Forget a connection that has ended."""
        self._clients.left(peer.key)
