"""What all producers and consumers of one client share: routes, heartbeats, calls to brokers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._cluster.requests import DEFAULT_TIMEOUT_S, ask, request
from roquet.model.route import MASTER_ID
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.client import HeartbeatRequest, UnregisterClientRequest
from roquet.remoting.refusals import refused
from roquet.service.background import Tasks
from roquet.service.http.address_server import EVERY_S, FIRST_S

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.client._cluster.events import Events
    from roquet.client._cluster.members import Members
    from roquet.client._cluster.name_servers import NameServers
    from roquet.client._cluster.namespace import Namespace
    from roquet.client._cluster.routes import RouteBook
    from roquet.model.route import TopicRoute
    from roquet.protocol.command import Command
    from roquet.remoting.client import Client
    from roquet.remoting.router import Peer
    from roquet.service.http.address_server import AddressLookup

log = logging.getLogger(__name__)

ROUTE_REFRESH_S = 30.0
HEARTBEAT_S = 30.0


class Session:
    """The running heart of a client. Start it before, stop it after producers and consumers."""

    def __init__(
        self,
        *,
        client: Client,
        name_servers: NameServers,
        book: RouteBook,
        members: Members,
        clock: Clock,
        lookup: AddressLookup | None = None,
        namespace: Namespace,
        events: Events,
    ) -> None:
        """Take what `connect` has built."""
        self.namespace = namespace
        self._events = events
        self._stopping = False
        self._lookup = lookup
        self.client = client
        self.name_servers = name_servers
        self.book = book
        self.members = members
        self.clock = clock
        self.tracer: Any = None
        """The client's `_tracing.Tracer`, where it traces; set before producers are made.

        Not named as a type: it sends by the session and stands above it."""
        self._tasks = Tasks()
        self._wanted: set[str] = set()
        self._asking: dict[str, asyncio.Lock] = {}
        self._beaten: set[str] = set()
        self._versions: dict[str, int] = {}
        self.heartbeat_refusals: dict[str, Refused] = {}
        """What brokers answered to the last heartbeat, where it was no."""
        self._beating = asyncio.Lock()

    async def start(self) -> None:
        """Begin refreshing routes and sending heartbeats."""
        await self.client.start()
        if self._lookup is not None:
            await self._lookup.look()
            self._tasks.repeat(
                self._lookup.look,
                self.clock,
                name="look up name servers",
                every_s=EVERY_S,
                first_after_s=FIRST_S,
            )
        self._tasks.repeat(
            self.refresh_routes,
            self.clock,
            name="refresh routes",
            every_s=ROUTE_REFRESH_S,
            first_after_s=ROUTE_REFRESH_S,
        )
        self._tasks.repeat(
            self.beat, self.clock, name="heartbeat", every_s=HEARTBEAT_S, first_after_s=1.0
        )

    async def stop(self) -> None:
        """Stop the background work and close all connections."""
        self._stopping = True
        await self._tasks.stop()
        await self.client.stop()

    # --- routes ------------------------------------------------------------------------------

    async def route(self, topic: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> TopicRoute:
        """Return a topic's route, asked for when it is unknown. Raises Refused 17, Unreachable."""
        known = self.book.get(topic)
        if known is not None:
            return known
        async with self._asking.setdefault(topic, asyncio.Lock()):
            known = self.book.get(topic)
            return known if known is not None else await self.refresh_route(topic, timeout_s)

    async def refresh_route(self, topic: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> TopicRoute:
        """Ask for a topic's route now. Raises Refused 17, Unreachable."""
        route = await self.name_servers.route(topic, timeout_s)
        self._wanted.add(topic)
        if self.book.update(topic, route):
            log.debug("route of %s: %s", topic, route)
        return route

    async def refresh_routes(self) -> None:
        """Ask for all routes in use again; what cannot be had stays as it is."""
        for topic in sorted(self._wanted):
            try:
                await self.refresh_route(topic)
            except (Refused, Unreachable) as error:
                log.debug("route of %s not refreshed: %s", topic, error)
        self.book.drop_unused_brokers()
        if self._unbeaten():
            await self.beat()

    def forget_topic(self, topic: str) -> None:
        """Stop refreshing a topic's route."""
        self._wanted.discard(topic)
        self.book.forget(topic)

    def master(self, broker_name: str) -> str:
        """Return the address of a broker's master. Raises Unreachable when none is known."""
        address = self.book.master(broker_name)
        if address is None:
            raise Unreachable(f"broker {broker_name} has no master that we know")
        return address

    def reader(self, broker_name: str, broker_id: int = MASTER_ID) -> str:
        """Return an address to read from. Raises Unreachable when none is known."""
        address = self.book.address(broker_name, broker_id)
        if address is None:
            raise Unreachable(f"no address of broker {broker_name} is known")
        return address

    async def ask(
        self, address: str, command: Command, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Command:
        """Ask a broker. Raises Refused, Unreachable, OutcomeUnknown."""
        return await ask(self.client, address, command, timeout_s)

    async def tell(self, address: str, command: Command) -> None:
        """Tell a broker something, without an answer. Raises Unreachable."""
        await self.client.call_one_way(address, command)

    # --- heartbeats --------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send a heartbeat to every broker known from routes; failures are left to the next."""
        if self.members.empty:
            return
        async with self._beating:
            body = self.members.heartbeat().encode()
            await asyncio.gather(*(self._beat_one(address, body) for address in self._audience()))

    async def beat_at(self, address: str, timeout_s: float) -> None:
        """Send a heartbeat to one broker. Raises Unreachable and OutcomeUnknown.

        A broker that refuses it has heard it.
        """
        self._heard(address, await self._asked_to_beat(address, timeout_s))

    async def beat_new(self) -> None:
        """Send a heartbeat now if there is a broker that has had none yet."""
        if self._unbeaten():
            await self.beat()

    async def version(self, address: str) -> int:
        """Return a broker's version (Java's ordinal), which it says in answers to heartbeats.

        Call it with a member in the client. Raises Unreachable when the broker does not answer.
        """
        if address not in self._versions:
            await self._beat_one(address, self.members.heartbeat().encode())
        version = self._versions.get(address)
        if version is None:
            raise Unreachable(f"{address} does not answer a heartbeat: its version is not known")
        return version

    def connection_closed(self, peer: Peer) -> None:
        """Hear that a connection is gone: the next one needs a heartbeat of its own."""
        self._beaten.discard(peer.address)
        self._versions.pop(peer.address, None)
        if not self._stopping:
            self._events.disconnected(peer.address)

    async def unregister(self, *, producer: str | None = None, consumer: str | None = None) -> None:
        """Tell all brokers that a group of this client has gone. Never raises for one of them."""
        header = UnregisterClientRequest(
            client_id=self.members.client_id, producer_group=producer, consumer_group=consumer
        )
        command = request(RequestCode.UNREGISTER_CLIENT, header)
        results = await asyncio.gather(
            *(self.ask(address, command) for address in self._beaten), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, RoquetError):
                raise result

    def _audience(self) -> set[str]:
        return {
            address
            for addresses in self.book.brokers().values()
            for number, address in addresses.items()
            if number == MASTER_ID or self.members.consumes
        }

    def _unbeaten(self) -> bool:
        return not self.members.empty and not self._audience() <= self._beaten

    async def _beat_one(self, address: str, body: bytes) -> None:
        try:
            answer = await self._asked_to_beat(address, DEFAULT_TIMEOUT_S, body)
        except (Unreachable, OutcomeUnknown) as error:
            self._beaten.discard(address)
            log.debug("no heartbeat to %s: %s", address, error)
            return
        self._heard(address, answer)

    async def _asked_to_beat(
        self, address: str, timeout_s: float, body: bytes | None = None
    ) -> Command:
        body = self.members.heartbeat().encode() if body is None else body
        command = request(RequestCode.HEART_BEAT, HeartbeatRequest(), body)
        return await self.client.call(address, command, timeout_s)

    def _heard(self, address: str, answer: Command) -> None:
        self._versions[address] = answer.version
        if answer.code == ResponseCode.SUCCESS:
            self._beaten.add(address)
            self.heartbeat_refusals.pop(address, None)
        else:
            refusal = refused(answer.code, answer.remark)
            known = self.heartbeat_refusals.get(address)
            self.heartbeat_refusals[address] = refusal
            if known is None or known.code != refusal.code:
                log.warning("%s refuses our heartbeat: %s", address, refusal)
                self._events.failed(refusal)
