"""The name servers: ask one, go on to the next when it does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._requests import DEFAULT_TIMEOUT_S, ask, request
from roquet.protocol.bodies import routes
from roquet.protocol.codes import RequestCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.namesrv import GetRouteInfoRequest
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

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses, the one in use first."""
        return tuple(self._addresses)

    def use(self, addresses: tuple[str, ...]) -> None:
        """Ask these from now on; the one in use stays first if it is among them."""
        current = self._addresses[:1]
        self._addresses = [it for it in current if it in addresses]
        self._addresses += [it for it in addresses if it not in self._addresses]

    async def ask(self, command: Command, timeout_s: float = DEFAULT_TIMEOUT_S) -> Command:
        """Ask until one answers. Raises Refused, or Unreachable when none could be asked."""
        errors: list[str] = []
        mismatches = 0
        for address in tuple(self._addresses):
            try:
                return await ask(self._client, address, command, timeout_s)
            except (Unreachable, OutcomeUnknown) as error:
                text = str(error)
                mismatches += isinstance(error, TlsMismatch)
                errors.append(text if address in text else f"{address}: {text}")
                if self._addresses[0] == address:
                    self._addresses.append(self._addresses.pop(0))
        kind = TlsMismatch if mismatches and mismatches == len(errors) else Unreachable
        raise kind("no name server answers: " + "; ".join(errors))

    async def ask_every(
        self, command: Command, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, RoquetError]:
        """Tell all of them; return the failures by address."""
        failed: dict[str, RoquetError] = {}
        for address in tuple(self._addresses):
            try:
                await ask(self._client, address, command, timeout_s)
            except (Unreachable, OutcomeUnknown, Refused) as error:
                failed[address] = error
        return failed

    async def route(self, topic: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> TopicRoute:
        """Return a topic's route. Raises Refused with code 17 when there is none."""
        header = GetRouteInfoRequest(topic=topic, accept_standard_json_only=True)
        answer = await self.ask(request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout_s)
        try:
            return routes.decode_route(answer.body)
        except JsonError as error:
            raise Unreachable(f"the route of {topic} cannot be read: {error}") from error
