"""What the port says of topics: their real brokers and queues, at the proxy's address alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, Unreachable
from roquet.model.route import MASTER_ID, BrokerData, TopicRoute
from roquet.model.topic import Perm
from roquet.protocol.bodies.routes import decode_route, encode_route, wants_standard
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, bytes_of, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.namesrv import GetRouteInfoRequest
from roquet.proxy.remoting.brokers import can_be_topic
from roquet.proxy.remoting.limits import REQUEST_S, ROUTE, ROUTE_FIELDS_MAX
from roquet.proxy.remoting.lookups import Lookup
from roquet.remoting.router import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.client._cluster.name_servers import NameServers
    from roquet.proxy.remoting.brokers import Brokers
    from roquet.proxy.remoting.sessions import Sessions
    from roquet.remoting.router import Request

_SIGNATURE = "Signature"


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """What name servers are asked. Signed requests are asked as they came, fields and all."""

    topic: str
    fields: tuple[tuple[str, str], ...] = ()
    version: int = 0
    language: str = ""


class Routes:
    """Answers 105. A service."""

    def __init__(
        self,
        name_servers: NameServers,
        brokers: Brokers,
        sessions: Sessions,
        own_address: Callable[[], str],
        clock: Clock,
    ) -> None:
        """Ask these name servers, without an account of the proxy's; `own_address` is told."""
        self._name_servers = name_servers
        self._brokers = brokers
        self._sessions = sessions
        self._own_address = own_address
        # A client that hears of no route asks again after 30 s: it must not hear so of a topic
        # that has just been made.
        self._known = Lookup[_Question, TopicRoute]("route", self._ask, clock, unknown_ms=0)

    async def start(self) -> None:
        """Be ready to be asked."""
        await self._known.start()

    async def stop(self) -> None:
        """End what is being asked."""
        await self._known.stop()

    def routes(self) -> list[Route]:
        """Return the row of the request table."""
        return [Route((RequestCode.GET_ROUTEINFO_BY_TOPIC,), self.route, ROUTE)]

    async def route(self, request: Request) -> Command:
        """Say where a topic's queues are (105): with every broker, at the proxy."""
        command = request.command
        # Java's name server answers a request without topic as one for the topic "null".
        header = GetRouteInfoRequest.decode({"topic": "null", **(command.ext or {})})
        route = await self._known.get(_question(header.topic, command))
        session = self._sessions.of(request.peer)
        session.remember({broker.broker_name for broker in route.brokers})
        standard = wants_standard(command.version, header.accept_standard_json_only)
        shown = through(route, self._own_address())
        return reply_to(command, body=encode_route(shown, standard=standard))

    async def _ask(self, question: _Question) -> TopicRoute:
        if question.fields:
            command = Command(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                dict(question.fields),
                language=question.language,
                version=question.version,
            )
        else:
            header = GetRouteInfoRequest(topic=question.topic, accept_standard_json_only=True)
            command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
        answer = await self._name_servers.ask(command, REQUEST_S)
        try:
            route = decode_route(answer.body)
        except JsonError as error:
            raise Unreachable(f"a name server's route cannot be read: {error}") from error
        self._brokers.learn(route)
        return route


def _question(topic: str, command: Command) -> _Question:
    ext = command.ext or {}
    if not can_be_topic(topic):
        text = f"no topic has a name of {len(topic)} characters"
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, text)
    if _SIGNATURE not in ext:
        return _Question(topic)
    size = bytes_of(command) - len(command.body)
    if size > ROUTE_FIELDS_MAX:
        text = f"a question for a route has {size} bytes of fields: it may have {ROUTE_FIELDS_MAX}"
        raise Refused(ResponseCode.INVALID_PARAMETER, text)
    # The signature stands for the account: what one may see is not shown to another.
    return _Question(topic, tuple(sorted(ext.items())), command.version, command.language)


def through(route: TopicRoute, own_address: str) -> TopicRoute:
    """Return a route by which everything goes to the proxy.

    Brokers without a master, whose queues can be read alone, are shown so: a client cannot see it
    by the addresses any more.
    """
    readable = {broker.broker_name for broker in route.brokers if broker.master is None}
    return dataclasses.replace(
        route,
        brokers=tuple(
            BrokerData(
                cluster=broker.cluster,
                broker_name=broker.broker_name,
                addresses={MASTER_ID: own_address},
            )
            for broker in route.brokers
            if broker.addresses
        ),
        queues=tuple(
            dataclasses.replace(queues, perm=int(queues.perm & ~Perm.WRITE))
            if queues.broker_name in readable
            else queues
            for queues in route.queues
        ),
        filter_servers={},
    )
