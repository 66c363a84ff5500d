"""GET_CONSUMER_LIST_BY_GROUP 38: the client ids that members share the queues among."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.protocol.bodies.clients import encode_consumer_ids
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.client import GetConsumerListByGroupRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.registry import Registry

LANE = "consumer_manage"


class Consumers:
    """Answers who is in a consumer group."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [Route((RequestCode.GET_CONSUMER_LIST_BY_GROUP,), self.consumer_list, LANE)]

    def consumer_list(self, request: Request) -> Command:
        """Answer 38 with the members' client ids."""
        header = GetConsumerListByGroupRequest.decode(request.command.ext)
        known = self._registry.consumer(header.consumer_group)
        ids = [] if known is None else known.client_ids
        if not ids:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}"
            )
        return reply_to(request.command, ext={}, body=encode_consumer_ids(ids))
