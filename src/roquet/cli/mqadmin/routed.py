"""A cluster as a command sees it whose flag says which topic's route leads to the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import NotFound, Refused
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.admin.calls import Calls
    from roquet.base.clock import Clock
    from roquet.base.errors import RoquetError
    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command


class Routed:
    """Requests that go to the brokers of one topic, whatever topic they are about.

    Light queues have no route of their own: that of their parent leads to them. Each broker also
    has a topic that is named as its cluster is.
    """

    def __init__(self, calls: Calls, topic: str) -> None:
        self._calls = calls
        self._topic = topic

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._calls.clock

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers."""
        return self._calls.name_servers

    @property
    def left_out(self) -> Callable[[str, RoquetError], None] | None:
        """Who hears of brokers that do not answer."""
        return self._calls.left_out

    async def ask(self, address: str, command: Command) -> Command:
        """Ask one peer. Raises Refused, Unreachable, OutcomeUnknown."""
        return await self._calls.ask(address, command)

    async def ask_name_server(self, command: Command) -> Command:
        """Ask until one answers. Raises Refused, Unreachable."""
        return await self._calls.ask_name_server(command)

    async def route(self, topic: str) -> TopicRoute:
        """Ask for the route of the topic that leads to the brokers.

        Raises NotFound where it has none, Refused, Unreachable.
        """
        try:
            return await self._calls.route(self._topic)
        except Refused as refusal:
            if refusal.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            text = f"{self._topic[:80]} has no route that would lead to {topic[:80]}"
            raise NotFound(text) from refusal

    def forget_topic(self, topic: str) -> None:
        """Keep no route of this topic."""
        self._calls.forget_topic(topic)
