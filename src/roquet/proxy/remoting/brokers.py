"""Which address a broker has, by its name, and what type the messages of a topic have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused, RoquetError, Unreachable
from roquet.model.attributes import MESSAGE_TYPE
from roquet.protocol import names
from roquet.protocol.bodies import topics
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.admin import GetTopicConfigRequest
from roquet.proxy.remoting.limits import REQUEST_S
from roquet.proxy.remoting.lookups import Lookup
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.client._cluster.name_servers import NameServers
    from roquet.model.route import BrokerData, TopicRoute
    from roquet.remoting.client import Client

UNTYPED = "NORMAL"
"""The type of a topic that has none, or that does not exist yet."""
UNREAD = ""
"""Stands for the type of a topic whose broker does not tell it to the proxy."""


class Brokers:
    """Names of brokers to addresses. A service."""

    def __init__(self, name_servers: NameServers, clock: Clock) -> None:
        """Ask these name servers, with the proxy's own account if it has one."""
        self._name_servers = name_servers
        self._addresses = Lookup[str, str]("broker", self._find, clock)
        self._of_topics = Lookup[str, frozenset[str]]("route of", self._find_brokers, clock)

    async def start(self) -> None:
        """Be ready to be asked."""
        await self._addresses.start()
        await self._of_topics.start()

    async def stop(self) -> None:
        """End what is being asked."""
        await self._of_topics.stop()
        await self._addresses.stop()

    async def address(self, name: str) -> str:
        """Return the address of a broker's master, or of another of its name without a master.

        Raises Refused (17, as Java's proxy) for a name that is no broker's, Unreachable and
        OutcomeUnknown when no name server answers.
        """
        if names.check_topic(name) is not None:
            raise _unknown(name)
        return await self._addresses.get(name)

    async def of_topic(self, topic: str) -> frozenset[str]:
        """Return the names of a topic's brokers; empty where that cannot be had."""
        if not can_be_topic(topic):
            return frozenset()
        try:
            return await self._of_topics.get(topic)
        except RoquetError:
            return frozenset()

    def doubt(self, name: str) -> None:
        """Hear that a broker could not be reached: it may have moved."""
        self._addresses.doubt(name)

    def learn(self, route: TopicRoute) -> None:
        """Remember the brokers of a route."""
        for broker in route.brokers:
            address = _address(broker)
            if address is not None:
                self._addresses.learn(broker.broker_name, address)

    async def _find(self, name: str) -> str:
        # Each broker has a topic of its own name, with which it is registered.
        try:
            route = await self._name_servers.route(name, REQUEST_S)
        except Refused as refusal:
            if refusal.code == ResponseCode.TOPIC_NOT_EXIST:
                raise _unknown(name) from refusal
            raise
        for broker in route.brokers:
            # A topic of another broker may have the name: then this is no broker's.
            if broker.broker_name == name and (address := _address(broker)) is not None:
                return address
        raise _unknown(name)

    async def _find_brokers(self, topic: str) -> frozenset[str]:
        route = await self._name_servers.route(topic, REQUEST_S)
        self.learn(route)
        return frozenset(broker.broker_name for broker in route.brokers)


class TopicTypes:
    """Topics to the types of messages that they are for. A service."""

    def __init__(self, brokers: Brokers, client: Client, clock: Clock) -> None:
        """Ask brokers by `client`, with the proxy's own account if it has one."""
        self._brokers = brokers
        self._client = client
        self._types = Lookup[str, str]("type of", self._ask, clock)

    async def start(self) -> None:
        """Be ready to be asked."""
        await self._types.start()

    async def stop(self) -> None:
        """End what is being asked."""
        await self._types.stop()

    async def of(self, topic: str) -> str:
        """Return a topic's type, `UNREAD` where the proxy cannot learn it."""
        if not can_be_topic(topic):
            return UNTYPED
        try:
            return await self._types.get(topic)
        except Refused as refusal:
            return UNTYPED if refusal.code == ResponseCode.TOPIC_NOT_EXIST else UNREAD
        except RoquetError:
            return UNREAD

    async def _ask(self, topic: str) -> str:
        for name in sorted(await self._brokers.of_topic(topic)):
            header = GetTopicConfigRequest(topic=topic)
            request = Command(RequestCode.GET_TOPIC_CONFIG, header.encode())
            address = await self._brokers.address(name)
            answer = await self._client.call(address, request, REQUEST_S)
            if answer.code == ResponseCode.NO_PERMISSION:
                # Remembered, so that not every send asks again.
                return UNREAD
            if answer.code != ResponseCode.SUCCESS:
                raise refused(answer.code, answer.remark)
            try:
                config = topics.decode_topic(answer.body)
            except JsonError as error:
                raise Unreachable(f"{name} describes {topic} unreadably: {error}") from error
            return config.attributes.get(MESSAGE_TYPE, UNTYPED)
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} has no broker")


def can_be_topic(name: str) -> bool:
    """Tell whether a name is short enough to be asked for, and remembered."""
    return len(name) <= names.RETRY_TOPIC_LENGTH_MAX


def _address(broker: BrokerData) -> str | None:
    if broker.master is not None:
        return broker.master
    return broker.addresses[min(broker.addresses)] if broker.addresses else None


def _unknown(name: str) -> Refused:
    return Refused(ResponseCode.TOPIC_NOT_EXIST, f"no broker {name[:127]!a} is registered")
