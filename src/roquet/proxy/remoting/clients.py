"""What clients say of themselves and ask of their groups: heartbeats, members, the end.

Brokers keep the groups. A heartbeat goes to every broker that a client without a proxy would send
it to: those of the routes that it was given, those of its subscriptions, those it is connected to.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.protocol.bodies.clients import CheckClient, HeartbeatData
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.proxy.groups.answers import with_members
from roquet.proxy.remoting.limits import (
    CLIENT_BROKERS_MAX,
    DEFAULT,
    HEARTBEAT,
    HEARTBEAT_AGAIN_S,
    HEARTBEAT_TOPICS_MAX,
    REQUEST_S,
)
from roquet.remoting.router import Route
from roquet.service.slices import read_body, read_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.proxy.groups.own import OwnMembers
    from roquet.proxy.remoting.brokers import Brokers
    from roquet.proxy.remoting.forwarding import Forwarder
    from roquet.proxy.remoting.sessions import Session, Sessions
    from roquet.remoting.router import Request

log = logging.getLogger(__name__)

TRIES_MAX = 3
"""Brokers that are asked for a group before its client is told that none answers."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Beaten:
    """A heartbeat that brokers have answered."""

    at_s: float
    heartbeat: Command
    brokers: frozenset[str]
    answer: Command


class ClientRequests:
    """Handlers of heartbeats, and of questions about groups."""

    def __init__(
        self,
        sessions: Sessions,
        brokers: Brokers,
        forwarder: Forwarder,
        own: OwnMembers | None = None,
    ) -> None:
        """Pass them to the brokers; `own` knows what other proxies say, and tells them."""
        self._own = own
        self._sessions = sessions
        self._brokers = brokers
        self._forwarder = forwarder
        self._beaten: dict[int, _Beaten] = {}
        """By the key of the client's connection."""

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        groups = (RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_CONSUMER_CONNECTION_LIST)
        return [
            Route((RequestCode.HEART_BEAT,), self.heartbeat, HEARTBEAT),
            Route((RequestCode.UNREGISTER_CLIENT,), self.unregister, DEFAULT),
            Route((RequestCode.CHECK_CLIENT_CONFIG,), self.check, DEFAULT),
            Route(groups, self.members, DEFAULT),
        ]

    def client_closed(self, key: int) -> None:
        """Forget a client."""
        self._beaten.pop(key, None)
        if self._own is not None:
            self._own.members.leave(key)

    async def heartbeat(self, request: Request) -> Command:
        """Register a client's groups (34) with its brokers.

        The answer is the first refusal of a broker, else a success if one broker has it, or if no
        broker is known yet: then it goes ahead of the first request to each.
        """
        command = request.command
        try:
            said = await read_parts(HeartbeatData.of_json, command.body)
        except JsonError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        session = self._sessions.of(request.peer)
        names = await self._audience(session, said)
        now_s = asyncio.get_running_loop().time()
        before = self._beaten.get(request.peer.key)
        if before is not None and _same(before, command, names, now_s):
            # A client sends one for each broker name that it sees, all of them to the proxy.
            return dataclasses.replace(before.answer)
        session.keep(command)
        results = await asyncio.gather(*(self._beat(session, name, command) for name in names))
        answer = _together(command, results)
        if answer.code == ResponseCode.SUCCESS and not session.is_closed:
            done = _Beaten(now_s, command, frozenset(names), answer)
            self._beaten[request.peer.key] = done
            self._note(request, said)
        return dataclasses.replace(answer)

    async def unregister(self, request: Request) -> Command:
        """Take a client out of groups (35), at each broker that it is connected to."""
        command = request.command
        session = self._sessions.of(request.peer)
        session.keep(None)
        self._beaten.pop(request.peer.key, None)
        if self._own is not None and (group := _group_of(command)):
            self._own.members.leave(request.peer.key, group)
        names = [connection.broker for connection in session.connections()]
        results = await asyncio.gather(*(self._told(session, name, command) for name in names))
        return _together(command, results)

    async def members(self, request: Request) -> Command:
        """Ask a broker of the client for the members of a group (38, 203).

        The answer has members that no broker knows as well: clients of gRPC, and of other proxies.
        """
        session, command = self._sessions.of(request.peer), request.command
        names = dict.fromkeys(connection.broker for connection in session.connections())
        names.update(session.routed)
        group = _group_of(command)
        known = () if self._own is None else tuple(self._own.members.of(group))
        others = [member for member in known if not member.at_brokers]
        if not names and others:
            # A tool asks for no route before.
            for subscription in others[0].consumer.subscriptions[:1]:
                names.update(dict.fromkeys(await self._brokers.of_topic(subscription.topic)))
        if not names:
            text = "no broker of this client is known: it has asked for no route and sent nothing"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        answer = await self._first(session, names, command)
        try:
            return with_members(command, answer, others) if others else answer
        except JsonError as error:
            text = f"a broker names members unreadably: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text) from error

    async def check(self, request: Request) -> Command:
        """Have a consumer's subscription checked (46) by a broker of its topic.

        As by Java's proxy, which never asks, one that names no topic, or one without a broker, is
        answered with a success.
        """
        command = request.command
        try:
            asked = await read_body(CheckClient.decode, command.body)
        except JsonError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        names: frozenset[str] = frozenset()
        if asked.subscription is not None:
            names = await self._brokers.of_topic(asked.subscription.topic)
        if not names:
            return reply_to(command, remark="")
        return await self._first(self._sessions.of(request.peer), sorted(names), command)

    def _note(self, request: Request, said: HeartbeatData) -> None:
        if self._own is not None and said.client_id is not None:
            command = request.command
            who = said.client_id, command.language, command.version
            self._own.remoting_registered(
                request.peer.key, who, request.peer.address, said.consumers
            )

    async def _first(self, session: Session, names: Iterable[str], command: Command) -> Command:
        failures: list[str] = []
        for name in list(names)[:TRIES_MAX]:
            try:
                return await self._forwarder.ask(session, name, command, REQUEST_S)
            except (Unreachable, OutcomeUnknown) as error:
                failures.append(f"broker {name}: {error}")
        raise Refused(ResponseCode.SYSTEM_ERROR, "; ".join(failures))

    async def _audience(self, session: Session, said: HeartbeatData) -> list[str]:
        names = dict.fromkeys(connection.broker for connection in session.connections())
        names.update(session.routed)
        topics = dict.fromkeys(
            subscription.topic
            for consumer in said.consumers
            for subscription in consumer.subscriptions
        )
        wanted = list(topics)[:HEARTBEAT_TOPICS_MAX]
        for found in await asyncio.gather(*map(self._brokers.of_topic, wanted)):
            names.update(dict.fromkeys(sorted(found)))
        return list(names)[:CLIENT_BROKERS_MAX]

    async def _beat(self, session: Session, name: str, command: Command) -> Command | RoquetError:
        try:
            address = await self._brokers.address(name)
            return await session.beat(name, address, command)
        except RoquetError as error:
            self._brokers.doubt(name)
            log.debug("no heartbeat of %s to %s: %s", session.peer.address, name, error)
            return error

    async def _told(self, session: Session, name: str, command: Command) -> Command | RoquetError:
        try:
            return await self._forwarder.ask(session, name, command, REQUEST_S)
        except RoquetError as error:
            # The broker forgets the client with its connection.
            log.debug("%s has not left %s: %s", session.peer.address, name, error)
            return error


def _group_of(command: Command) -> str:
    """Return the consumer group that a request names, empty for none."""
    return (command.ext or {}).get("consumerGroup", "")


def _same(before: _Beaten, command: Command, names: list[str], now_s: float) -> bool:
    return (
        now_s - before.at_s < HEARTBEAT_AGAIN_S
        and before.heartbeat.body == command.body
        and before.heartbeat.ext == command.ext
        and before.brokers.issuperset(names)
    )


def _together(command: Command, results: list[Command | RoquetError]) -> Command:
    """Return the first refusal, a success when a broker says yes, else why none did."""
    answers = [it for it in results if isinstance(it, Command)]
    for answer in answers:
        if answer.code != ResponseCode.SUCCESS:
            return reply_to(command, answer.code, remark=answer.remark)
    failures = [str(it) for it in results if not isinstance(it, Command)]
    if failures and not answers:
        raise Refused(ResponseCode.SYSTEM_ERROR, "no broker answers: " + "; ".join(failures)[:900])
    return reply_to(command, remark="")
