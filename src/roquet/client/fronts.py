"""What a further front of a cluster is given: routes, connections, and a producer's heartbeats.

A front (the proxy of gRPC) speaks for many clients. It decides itself what it asks brokers; here
are the connections, the addresses behind brokers' names, and the groups that brokers believe it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client._cluster.events import Events
from roquet.client._cluster.members import Members
from roquet.client._cluster.name_servers import NameServers
from roquet.client._cluster.namespace import Namespace
from roquet.client._cluster.requests import request
from roquet.client._cluster.routes import RouteBook
from roquet.client._cluster.session import Session
from roquet.client._cluster.target import parse
from roquet.model.route import MASTER_ID
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import RequestCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.headers.client import CheckTransactionStateRequest
from roquet.protocol.headers.light import NotifyUnsubscribeLightRequest
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.remoting.tls import client_tls
from roquet.service.background import Tasks

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from roquet.acl.credentials import Credentials
    from roquet.base.clock import Clock
    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command
    from roquet.remoting.client import ClientConfig
    from roquet.remoting.connections.connection import Connection
    from roquet.remoting.connections.ingest import Ingest
    from roquet.remoting.router import Peer
    from roquet.remoting.tls import TlsOptions

    Asked = Callable[[str, CheckTransactionStateRequest, bytes], None]
    Lost = Callable[[tuple[str, str], str], None]

CALL_S = 2.0
"""How long a broker or a name server is waited for."""
_KNOWN_S = 20.0
"""How long the list of brokers is used."""


class FrontClient:
    """Connections to the brokers of one cluster. Enter it before its front, leave it after."""

    def __init__(
        self,
        name_servers: str,
        clock: Clock,
        rng: random.Random,
        asked: Asked,
        lost: Lost,
        *,
        tls: TlsOptions | None = None,
        credentials: Credentials | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        """Connect to nothing yet. Raises UsageError for addresses that are none.

        `asked` is called with a broker's name, its question about a half message, and the message;
        `lost` with a client (id, group) that lost a light topic, and with its name.
        """
        target = parse(name_servers)
        self._asked = asked
        self._lost = lost
        self._clock = clock
        members = Members(f"{socket.gethostname()[:64]}@{os.getpid()}#{rng.getrandbits(40)}")
        client = Client(
            clock=clock,
            config=config,
            handlers=[
                Route((RequestCode.CHECK_TRANSACTION_STATE,), self._check, "checks"),
                Route((RequestCode.NOTIFY_UNSUBSCRIBE_LITE,), self._unsubscribed, "checks"),
            ],
            on_close=self._closed,
            tls=client_tls(tls, clock),
            sign=None if credentials is None else credentials.sign,
            explain_tls=True,
        )
        self._session = Session(
            client=client,
            name_servers=NameServers(client, target.name_servers, rng),
            book=RouteBook(),
            members=members,
            clock=clock,
            namespace=Namespace(target.namespace),
            events=Events(),
        )
        self._groups: set[str] = set()
        self._told: set[str] = set()
        """Those of them that brokers have heard of."""
        self._told_at: dict[str, set[str]] = {}
        """Those that a broker has heard of, by its address, for as long as the connection lasts."""
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._known: ClusterInfo | None = None
        self._known_until_ms = 0

    async def start(self) -> None:
        """Begin refreshing routes and sending heartbeats."""
        await self._session.start()

    async def stop(self) -> None:
        """Leave the groups and close all connections."""
        await self._tasks.stop()
        for group in sorted(self._groups):
            await self._leave(group)
        await self._session.stop()

    @property
    def clock(self) -> Clock:
        """What the time is."""
        return self._clock

    def _closed(self, peer: Peer) -> None:
        self._told_at.pop(peer.address, None)
        self._session.connection_closed(peer)

    # --- where things are ------------------------------------------------------------------------

    async def route(self, topic: str) -> TopicRoute:
        """Ask for a topic's route; it is kept up to date. Raises Refused 17, Unreachable."""
        return await self._session.refresh_route(topic, CALL_S)

    def forget_topic(self, topic: str) -> None:
        """Keep no route of this topic."""
        self._session.forget_topic(topic)

    async def masters(self) -> Mapping[str, str]:
        """Return broker name -> address of the masters that there are. Raises Unreachable."""
        now_ms = self._clock.steady_ms()
        if self._known is None or now_ms >= self._known_until_ms:
            command = request(RequestCode.GET_BROKER_CLUSTER_INFO)
            try:
                answer = await self._session.name_servers.ask(command, CALL_S)
                self._known = ClusterInfo.decode(answer.body)
            except (JsonError, Refused, Unreachable) as error:
                # What was known is better than nothing while the name servers are away.
                if self._known is None:
                    raise Unreachable(f"the brokers cannot be learnt: {error}") from error
            self._known_until_ms = now_ms + int(_KNOWN_S * 1000)
        found = self._known.brokers.items()
        return {name: data.master for name, data in found if data.master is not None}

    def knows(self, broker: str) -> bool:
        """Tell whether a route names a broker."""
        return self._session.book.address(broker) is not None

    def _broker_at(self, address: str) -> str | None:
        for name, addresses in self._session.book.brokers().items():
            if addresses.get(MASTER_ID) == address:
                return name
        return None

    # --- calls -----------------------------------------------------------------------------------

    async def call(self, broker: str, command: Command, timeout_s: float = CALL_S) -> Command:
        """Ask a broker's master; return its answer, whatever its code.

        Raises Unreachable and OutcomeUnknown.
        """
        address = await self._address(broker)
        return await self._session.client.call(address, command, timeout_s)

    def master(self, broker: str) -> str | None:
        """Return the address of a broker's master, as far as a route has named it."""
        return self._session.book.master(broker)

    async def dial(self, address: str, ingest: Ingest) -> Connection:
        """Return a further connection to a broker, whose bytes go to `ingest`.

        What is written to it is not signed. Raises Unreachable.
        """
        return await self._session.client.dial(address, CALL_S, ingest)

    async def _address(self, broker: str) -> str:
        address = self._session.book.master(broker)
        if address is None:
            address = (await self.masters()).get(broker)
        if address is None:
            raise Unreachable(f"broker {broker} has no master that we know")
        return address

    # --- producer groups -------------------------------------------------------------------------

    def join(self, group: str) -> None:
        """Be a producer of a group for every broker, so that they ask here about transactions."""
        if group not in self._groups:
            self._groups.add(group)
            self._session.members.add_producer(group)
            if not self._tasks:
                self._tasks.spawn(self._beat(), "heartbeat of new groups")

    async def joined(self, group: str, broker: str) -> None:
        """Be a producer of a group, and wait until a broker has heard of it.

        Raises Unreachable and OutcomeUnknown. No other broker is waited for.
        """
        self.join(group)
        address = await self._address(broker)
        while group not in self._told_at.get(address, ()):
            task = self._telling.get(address)
            if task is None:
                task = asyncio.get_running_loop().create_task(self._tell(address))
                self._telling[address] = task
                task.add_done_callback(lambda _: self._telling.pop(address, None))
            # Several wait for one heartbeat, and who waits no more ends nobody else's wait.
            await asyncio.shield(task)

    async def _tell(self, address: str) -> None:
        now = set(self._groups)
        await self._session.beat_at(address, CALL_S)
        self._told_at[address] = now

    async def _beat(self) -> None:
        # Groups that join in the same turn of the loop go with one heartbeat.
        while not self._groups <= self._told:
            now = set(self._groups)
            await self._session.beat()
            self._told = now

    async def leave(self, group: str) -> None:
        """Be no producer of a group any more."""
        if group in self._groups:
            await self._leave(group)
            self._groups.discard(group)
            self._told.discard(group)
            for told in self._told_at.values():
                told.discard(group)

    async def _leave(self, group: str) -> None:
        self._session.members.remove_producer(group)
        with contextlib.suppress(OutcomeUnknown, Refused, Unreachable):
            await self._session.unregister(producer=group)

    def _check(self, asked: Request) -> Command | None:
        header = CheckTransactionStateRequest.decode(asked.command.ext)
        broker = (asked.command.ext or {}).get("bname") or self._broker_at(asked.peer.address)
        if broker:
            self._asked(broker, header, asked.command.body)
        return None

    def _unsubscribed(self, told: Request) -> Command | None:
        notice = NotifyUnsubscribeLightRequest.decode(told.command.ext)
        self._lost((notice.client_id, notice.consumer_group), notice.lite_topic)
        return None
