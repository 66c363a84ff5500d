"""Light topics of a cluster: subscriptions at every broker of the parent, and what comes of them.

A light topic belongs to one broker, which each broker works out by itself. So every broker that the
parent can be read from is told of each change, and keeps what is its own. A change that one of them
does not take is refused, and the others keep it: clients say all that they subscribe to again and
again (COMPLETE_ADD), and brokers forget who does not.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.acl.needs import subscribe
from roquet.base.errors import RoquetError
from roquet.base.overriding import override
from roquet.broker.api.pop import (
    Action,
    LightInvisible,
    LightInvisibleRequest,
    LightPopRequest,
    LightSubscribe,
)
from roquet.broker.api.refusal import Refusal
from roquet.broker.operations.light import ACK, CHANGE_INVISIBLE, POP, SUBSCRIBE
from roquet.protocol.bodies.light_topics import SubscriptionEntry, encode_subscriptions
from roquet.protocol.codes import RequestCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.light import PopLightRequest, PopLightResponse
from roquet.protocol.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.proxy.brokers.lights import light_in_flight
from roquet.proxy.cluster.receiving import (
    GIVEN_BACK_MS,
    ClusterSource,
    unreadable,
)
from roquet.proxy.services.routes import readable_of
from roquet.service.background import Tasks
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Collection

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import LightAckRequest
    from roquet.protocol.command import Command
    from roquet.proxy.brokers.api import Found, Source, Subscriber
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.cluster.directory import Directory
    from roquet.proxy.cluster.guard import Gate

log = logging.getLogger(__name__)


class Members:
    """Clients (id, group) of this proxy, and how they are told that they lost a light topic.

    Invariant: a member stands for one client, and a client for one member, so that there are never
    more of them than sessions.
    """

    def __init__(self) -> None:
        """Have no members."""
        self._of: dict[tuple[str, str], Subscriber] = {}
        self._clients: dict[int | str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def put(self, client: tuple[str, str], member: Subscriber) -> None:
        """Tell this member of what the client loses from now on."""
        self.drop(client)
        before = self._clients.get(member.who)
        if before is not None:
            self.drop(before)
        self._of[client], self._clients[member.who] = member, client

    def drop(self, client: tuple[str, str]) -> None:
        """Tell nobody any more."""
        member = self._of.pop(client, None)
        if member is not None:
            del self._clients[member.who]

    def lost(self, client: tuple[str, str], name: str) -> None:
        """Tell the member that a client is, if it is one, that it lost a light topic."""
        member = self._of.get(client)
        if member is not None:
            member.lost(name)


class ClusterLights:
    """Light topics, over the remoting protocol."""

    def __init__(self, calls: Calls, directory: Directory, gate: Gate, members: Members) -> None:
        self._calls = calls
        self._directory = directory
        self._gate = gate
        self._members = members
        self._leaving: dict[tuple[str, str], asyncio.Event] = {}
        """Clients whose end brokers are being told."""
        self._tasks = Tasks()

    async def stop(self) -> None:
        """End what is under way."""
        await self._tasks.stop(1.0)

    # --- subscriptions ---------------------------------------------------------------------------

    async def subscribe(
        self, wanted: LightSubscribe, caller: Caller, subscriber: Subscriber
    ) -> None:
        """Change what a client subscribes to, at every broker of the parent."""
        gate, client = self._gate, (wanted.client_id, wanted.group)
        gate.require(SUBSCRIBE, [wanted], caller)
        gate.access.require(caller, subscribe(wanted.topic, wanted.group))
        while (leaving := self._leaving.get(client)) is not None:
            # What is told of its end may not come behind what it wants now.
            await leaving.wait()
        if subscriber.is_member:
            self._members.put(client, subscriber)
        brokers = await self._brokers(wanted.topic)
        for broker in brokers:
            gate.require(SUBSCRIBE, [wanted], caller, broker)
        await self._tell(brokers, wanted)

    async def _brokers(self, topic: str) -> list[str]:
        return [place.broker for place in readable_of(await self._directory.topic(topic))]

    async def _tell(self, brokers: Collection[str], wanted: LightSubscribe) -> None:
        """Tell all brokers; raise what the first of them says that does not take it."""
        start = None if wanted.start is None else (wanted.start.kind.value, wanted.start.value)
        entry = SubscriptionEntry(
            action=wanted.action.value,
            client_id=wanted.client_id,
            group=wanted.group,
            topic=wanted.topic,
            names=tuple(wanted.names),
            start=start,
        )
        code, body = RequestCode.LITE_SUBSCRIPTION_CTL, encode_subscriptions([entry])
        asked = [self._calls.ask(broker, code, None, body=body) for broker in brokers]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def close(self, client: tuple[str, str], topics: Collection[str]) -> None:
        """Tell the brokers of these parents that a client has gone."""
        self._members.drop(client)
        if client not in self._leaving:
            self._leaving[client] = asyncio.Event()
            self._tasks.spawn(self._left(client, topics), "end of a client of light topics")

    async def _left(self, client: tuple[str, str], topics: Collection[str]) -> None:
        client_id, group = client
        try:
            for topic in topics:
                gone = LightSubscribe(
                    action=Action.COMPLETE_REMOVE,
                    client_id=client_id,
                    group=group,
                    topic=topic,
                    names=(),
                )
                await self._tell(await self._brokers(topic), gone)
        except (RoquetError, Refusal) as error:
            log.debug("a broker forgets a client of light topics by itself: %s", error)
        finally:
            self._leaving.pop(client).set()

    # --- receive ---------------------------------------------------------------------------------

    def source(self, broker: str, wanted: LightPopRequest) -> Source:
        """Return what gives messages of the light topics of a client."""
        return _LightSource(self, self._calls, self._gate, broker, wanted)

    async def ack(self, broker: str, request: LightAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        self._gate.require(ACK, request, caller, broker)
        header = AckMessageRequest(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            extra_info=request.handle,
            offset=request.offset,
            lite_topic=request.name,
        )
        await self._calls.ask(broker, RequestCode.ACK_MESSAGE, header)

    async def change_invisible(
        self, broker: str, request: LightInvisibleRequest, caller: Caller
    ) -> LightInvisible | None:
        """Have a message come back at another time; None when it was settled meanwhile."""
        self._gate.require(CHANGE_INVISIBLE, request, caller, broker)
        return await self.change(broker, request)

    async def change(self, broker: str, request: LightInvisibleRequest) -> LightInvisible | None:
        """Have a message come back at another time, whoever asks for it."""
        header = ChangeInvisibleTimeRequest(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            extra_info=request.handle,
            offset=request.offset,
            invisible_time=request.invisible_ms,
            lite_topic=request.name,
            suspend=request.is_suspended,
        )
        answer = await self._calls.ask(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        try:
            now = ChangeInvisibleTimeResponse.decode(answer.ext)
        except HeaderError as error:
            raise unreadable(broker, error) from error
        if not now.pop_time:
            return None
        return LightInvisible(
            pop_time_ms=now.pop_time, invisible_ms=now.invisible_time, revive_queue=now.revive_qid
        )


class _LightSource(ClusterSource[LightPopRequest]):
    """The light topics of a client on one broker."""

    operation = POP
    code = RequestCode.POP_LITE_MESSAGE

    def __init__(
        self, lights: ClusterLights, calls: Calls, gate: Gate, broker: str, wanted: LightPopRequest
    ) -> None:
        super().__init__(calls, gate, broker, wanted)
        self._lights = lights

    @override
    async def _return(self, found: Found) -> None:
        handle, wanted = ReceiptHandle.decode(found.handle), self.wanted
        request = LightInvisibleRequest(
            topic=wanted.topic,
            name=found.light,
            group=wanted.group,
            queue_id=handle.queue_id,
            offset=handle.queue_offset,
            handle=handle.encode(),
            invisible_ms=GIVEN_BACK_MS,
            is_suspended=True,
        )
        await self._lights.change(self._broker, request)

    @override
    def _header(self, now_ms: int) -> PopLightRequest:
        wanted = self.wanted
        return PopLightRequest(
            client_id=wanted.client_id,
            consumer_group=wanted.group,
            topic=wanted.topic,
            max_msg_num=wanted.max_messages,
            invisible_time=wanted.invisible_ms,
            poll_time=wanted.poll_ms,
            born_time=now_ms,
            attempt_id=wanted.attempt_id,
        )

    @override
    def _read(self, answer: Command) -> list[Found]:
        given = PopLightResponse.decode(answer.ext)
        records = read_records(answer.body, check_crc=False)
        counts = given.counts(len(records))
        return list(light_in_flight(records, counts, given.pop_time, self.wanted, self._broker))
