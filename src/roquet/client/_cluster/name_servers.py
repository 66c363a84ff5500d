"""The name servers: ask one, go on to the next when it does not answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._cluster.requests import DEFAULT_TIMEOUT_S, ask, request
from roquet.protocol import names
from roquet.protocol.bodies import routes
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.namesrv import GetRouteInfoRequest
from roquet.remoting.other_servers import WrongServer, no_name_server, why_no_frames
from roquet.remoting.tls import TlsMismatch

if TYPE_CHECKING:
    import random

    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command
    from roquet.remoting.client import Client


class NameServers:
    """A list of name servers, any of which knows everything."""

    def __init__(self, client: Client, addresses: tuple[str, ...], rng: random.Random) -> None:
        """Begin with any of them, so that clients spread."""
        self._client = client
        self._addresses = list(addresses)
        rng.shuffle(self._addresses)
        self._proven: set[str] = set()
        """Those that have answered as a name server does."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, the one in use first."""
        return tuple(self._addresses)

    def use(self, addresses: tuple[str, ...]) -> None:
        """Ask these from now on; the one in use stays first if it is among them."""
        current = self._addresses[:1]
        self._addresses = [it for it in current if it in addresses]
        self._addresses += [it for it in addresses if it not in self._addresses]
        self._proven.intersection_update(addresses)

    async def ask(self, command: Command, timeout_s: float = DEFAULT_TIMEOUT_S) -> Command:
        """Ask until one answers. Raises Refused, or Unreachable when none could be asked.

        What is raised for servers that are no name servers is a WrongServer, which says so.
        """
        errors: list[RoquetError] = []
        for address in tuple(self._addresses):
            try:
                answer = await ask(self._client, address, command, timeout_s)
            except Refused as refusal:
                if refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    self._proven.add(address)
                if address in self._proven or await self._knows_routes(address, command):
                    raise
                errors.append(no_name_server(address))
            except (Unreachable, OutcomeUnknown) as error:
                errors.append(await self._explained(address, error))
            else:
                self._proven.add(address)
                return answer
            if self._addresses[0] == address:
                self._addresses.append(self._addresses.pop(0))
        raise _none_of(errors)

    async def _knows_routes(self, address: str, command: Command) -> bool:
        """Tell whether a server that does not know a command knows what every name server does."""
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return False
        try:
            await ask(self._client, address, _route_request(names.AUTO_CREATE_TOPIC))
        except Refused as refusal:
            return refusal.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        except (Unreachable, OutcomeUnknown):
            pass  # not to be told now
        return True

    async def _explained(self, address: str, error: RoquetError) -> RoquetError:
        """Return why an address does not answer; one that never did may be another server's."""
        if address in self._proven or not isinstance(error, OutcomeUnknown):
            text = str(error)
            return error if address in text else type(error)(f"{address}: {text}")
        return await asyncio.to_thread(why_no_frames, address) or error

    async def route(self, topic: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> TopicRoute:
        """Return a topic's route. Raises Refused with code 17 when there is none."""
        answer = await self.ask(_route_request(topic), timeout_s)
        try:
            return routes.decode_route(answer.body)
        except JsonError as error:
            raise Unreachable(f"the route of {topic} cannot be read: {error}") from error


def _route_request(topic: str) -> Command:
    header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)


def _none_of(errors: list[RoquetError]) -> Unreachable:
    """Return what to raise when no server answers: in vain for ever only where all are."""
    text = "no name server answers: " + "; ".join(map(str, errors))
    kind: type[Unreachable] = Unreachable
    if errors and all(isinstance(error, (TlsMismatch, WrongServer)) for error in errors):
        kind = TlsMismatch if isinstance(errors[0], TlsMismatch) else WrongServer
    if kind is WrongServer and len(errors) == 1:
        text = str(errors[0])
    return kind(text)
