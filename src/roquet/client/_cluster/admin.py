"""A client's session as administration needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.admin.calls import PATIENCE_S
from roquet.client._cluster.requests import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.client._cluster.session import Session
    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command


class SessionCalls:
    """`roquet.admin.calls.Calls` over the connections of a client."""

    def __init__(self, session: Session) -> None:
        """Use the session's connections."""
        self._session = session

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._session.clock

    left_out = None
    """A broker that does not answer raises."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses, the one in use first."""
        return self._session.name_servers.addresses

    async def ask(self, address: str, command: Command) -> Command:
        """Ask one peer. Raises Refused, Unreachable, OutcomeUnknown."""
        timeout_s = PATIENCE_S.get(command.code, DEFAULT_TIMEOUT_S)
        return await self._session.ask(address, command, timeout_s)

    async def ask_name_server(self, command: Command) -> Command:
        """Ask until one answers. Raises Refused, Unreachable."""
        return await self._session.name_servers.ask(command)

    async def route(self, topic: str) -> TopicRoute:
        """Ask for a topic's route now; the client keeps it. Raises Refused, Unreachable."""
        return await self._session.refresh_route(topic)

    def forget_topic(self, topic: str) -> None:
        """Keep no route of this topic."""
        self._session.forget_topic(topic)
