"""The library of inner servers: one peer, the relay, through which all others are reached.

    server = InnerServer(server_id=1001, server_type=3, port=7001)
    server.handle(1, answer)              # async def answer(packet: Packet) -> bytes | None
    async with server:
        await server.ready()
        reply = await server.request(2001, 1, b"hello")

A server listens, and the relay dials it; with `relay="host:port"` it dials the relay instead, and
again with a growing pause when the link is lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from roquet.base.clock import Clock, SystemClock
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable, UsageError
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import BINARY, Command, reply_to
from roquet.relay.codes import FORWARDS, ID_MAX, RelayAnswer, RelayCode
from roquet.relay.peers import packets
from roquet.relay.peers.dispatch import Dispatcher, PacketHandler
from roquet.relay.peers.links import Links, Listener, RelayLink
from roquet.relay.peers.member import Identity, Member
from roquet.relay.peers.packets import Other
from roquet.relay.registry import Registry
from roquet.remoting.client import split_address
from roquet.remoting.connections.ingest import PlainIngest
from roquet.remoting.connections.limits import MIB

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["ClientOptions", "InnerServer", "Other", "Packet"]

log = logging.getLogger(__name__)

_ANSWER_LATE_S = 1.0
"""How long after the relay's own time-out its answer may come."""


@dataclasses.dataclass(frozen=True, slots=True)
class Packet:
    """A packet of another server."""

    kind: int
    """Which packet it is: a number that the fleet gives it."""
    sender: int
    """Id of the server that sent it."""
    body: bytes
    wants_answer: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Limits and periods of an inner server's side."""

    frame_bytes: int = MIB
    heartbeat_s: float = 5.0
    heartbeat_timeout_s: float = 15.0
    probe_s: float = 1.0
    """How long an older relay may take to show that it is alive when a second one comes."""
    connect_s: float = 3.0
    reconnect_first_s: float = 0.1
    reconnect_max_s: float = 3.0
    write_s: float = 5.0
    """How long a send may wait for the link to take more."""
    handlers_max: int = 65_536
    """Handlers at work; packets above that are refused with SYSTEM_BUSY, one-way ones counted."""


class InnerServer:
    """One inner server's end of its link to the relay. Enter it to run it."""

    def __init__(
        self,
        *,
        server_id: int,
        server_type: int,
        host: str = "127.0.0.1",
        port: int = 0,
        relay: str | None = None,
        max_online: int = 0,
        secret: str | None = None,
        tls: ssl.SSLContext | None = None,
        options: ClientOptions | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Listen on `host:port` (0: any free port) once entered, or dial `relay`.

        `tls` is the context of the side that this server takes: see `relay.peers.links`.
        """
        for name, value in (("server_id", server_id), ("server_type", server_type)):
            if not 1 <= value <= ID_MAX:
                raise UsageError(f"{name} = {value}: must be an integer within 1..{ID_MAX}")
        self.server_id = server_id
        self.server_type = server_type
        self.online = 0
        """How many are online here: told to the relay with each heartbeat."""
        self.refused_one_way = 0
        """One-way packets that had no handler, or whose handler failed or was one too many."""
        self.on_change: Callable[[], None] = _nothing
        """Called when the link or the map of others has changed."""
        self._options = options or ClientOptions()
        self._clock = clock or SystemClock()
        self._relay = None if relay is None else split_address(relay)
        self._kinds: Registry[Callable[[Packet], Awaitable[bytes | None]]] = Registry("packet")
        registry: Registry[PacketHandler] = Registry("packet")
        rng = rng or random.SystemRandom()
        self._member = Member(
            Identity(
                server_id=server_id,
                server_type=server_type,
                max_online=max_online,
                secret=secret,
            ),
            clock=self._clock,
            rng=rng,
            dispatch=Dispatcher(registry),
            probe_s=self._options.probe_s,
            silence_s=self._options.heartbeat_timeout_s,
            beat_s=self._options.heartbeat_s,
        )
        self._member.on_change = self._has_changed
        self._member.register_packets(registry)
        for code in sorted(FORWARDS):
            registry.add(code, code.name, "client", self._forwarded)
        self._links = self._member.links = Links(
            clock=self._clock,
            ingest=PlainIngest(self._options.frame_bytes),
            holder=self._member,
            frame_size_max=self._options.frame_bytes,
            rng=rng,
            tls=tls,
        )
        self._listener = None
        if self._relay is None:
            self._listener = Listener(self._links, host, port, tls)
        self._handling = 0
        self._changed = asyncio.Event()

    # --- life ----------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port that is listened on; 0 when the relay is dialled."""
        return 0 if self._listener is None else self._listener.port

    @property
    def is_ready(self) -> bool:
        """Whether this server is registered."""
        return self._member.link is not None and self._member.link.is_open

    @property
    def registrations(self) -> int:
        """How often this server was registered so far."""
        return self._member.registrations

    @property
    def others(self) -> Mapping[int, Other]:
        """The other servers by id: kept up to date while the link is there, empty without it."""
        return MappingProxyType(self._member.others)

    async def __aenter__(self) -> Self:
        """Listen or begin to dial. Raises UsageError when the address cannot be had."""
        await self._links.start()
        if self._listener is not None:
            await self._listener.start()
        else:
            self._links.tasks.spawn(self._keep_dialling(), "dial the relay")
        every_s = self._options.heartbeat_s
        self._links.tasks.repeat(
            self._beat, self._clock, name="heartbeat", every_s=every_s, first_after_s=every_s
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the link; what was sent goes out first, handlers at work are ended."""
        if self._listener is not None:
            await self._listener.stop()
        await self._links.stop()

    async def ready(self, timeout_s: float = 30.0) -> None:
        """Wait until this server is registered. Raises Unreachable."""
        await self.until(lambda: self.is_ready, timeout_s)

    async def until(self, reached: Callable[[], bool], timeout_s: float = 30.0) -> None:
        """Wait until the link and the map of others are as asked. Raises Unreachable."""
        try:
            async with asyncio.timeout(timeout_s):
                while not reached():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Unreachable(f"not so within {timeout_s:g} s") from None

    # --- sending -------------------------------------------------------------------------------

    def handle(self, kind: int, handler: Callable[[Packet], Awaitable[bytes | None]]) -> None:
        """Have packets of a kind handled. Raises UsageError when the kind has a handler.

        What the handler returns is the answer to a request (None: an empty one); `Refused` that it
        raises is the request's refusal. Packets of one sender start their handlers in order.
        """
        if not 1 <= kind <= ID_MAX:
            raise UsageError(f"kind = {kind}: must be an integer within 1..{ID_MAX}")
        owner = getattr(handler, "__qualname__", type(handler).__name__)
        self._kinds.add(kind, str(kind), owner, handler)

    async def send(self, to: int, kind: int, body: bytes = b"") -> None:
        """Send to one server; nobody answers. Raises Unreachable when it was not handed over."""
        link = await self._open_link()
        link.send_one_way(self._packet(RelayCode.FORWARD, kind, {"to": str(to)}, body))

    async def send_by_type(self, server_type: int, key: str, kind: int, body: bytes = b"") -> None:
        """Send to the one server of a type that `key` belongs to."""
        link = await self._open_link()
        fields = {"type": str(server_type), "key": key}
        link.send_one_way(self._packet(RelayCode.FORWARD_BY_TYPE, kind, fields, body))

    async def send_to_all(
        self, server_type: int, kind: int, body: bytes = b"", *, timeout_s: float = 5.0
    ) -> tuple[int, int]:
        """Send to all other servers of a type; return how many got it and how many did not.

        Raises Refused when there is none.
        """
        fields = {"type": str(server_type)}
        answer = await self._ask(RelayCode.FORWARD_TO_ALL, kind, fields, body, timeout_s)
        return packets.number(answer, "delivered", low=0), packets.number(answer, "refused", low=0)

    async def request(
        self, to: int, kind: int, body: bytes = b"", *, timeout_s: float = 5.0
    ) -> bytes:
        """Ask one server.

        Raises Refused (it was not done: `code` is one of RelayAnswer, SYSTEM_BUSY or the server's
        own), Unreachable (it did not leave) or OutcomeUnknown (it may have been done).
        """
        answer = await self._ask(RelayCode.FORWARD, kind, {"to": str(to)}, body, timeout_s)
        return answer.body

    async def request_by_type(
        self, server_type: int, key: str, kind: int, body: bytes = b"", *, timeout_s: float = 5.0
    ) -> bytes:
        """Ask the one server of a type that `key` belongs to."""
        fields = {"type": str(server_type), "key": key}
        answer = await self._ask(RelayCode.FORWARD_BY_TYPE, kind, fields, body, timeout_s)
        return answer.body

    async def _ask(
        self, code: RelayCode, kind: int, fields: dict[str, str], body: bytes, timeout_s: float
    ) -> Command:
        link = await self._open_link()
        fields = fields | {"timeoutMs": str(max(1, int(timeout_s * 1000)))}
        asked = self._packet(code, kind, fields, body)
        answer = await link.call(asked, timeout_s + _ANSWER_LATE_S)
        if answer.code == ResponseCode.SUCCESS:
            return answer
        remark = answer.remark or ""
        if answer.code in (RelayAnswer.TARGET_TIMEOUT, RelayAnswer.TARGET_LOST):
            raise OutcomeUnknown(remark)
        raise Refused(answer.code, remark)

    async def _open_link(self) -> RelayLink:
        link = self._member.link
        if link is None or not link.is_open:
            raise Unreachable(f"server {self.server_id} is not registered with a relay")
        if link.is_stuck:
            await link.drained(self._options.write_s)
        return link

    def _packet(self, code: RelayCode, kind: int, fields: dict[str, str], body: bytes) -> Command:
        ext = {"from": str(self.server_id), "packet": str(kind), **fields}
        return packets.command(code, ext, body)

    # --- receiving -----------------------------------------------------------------------------

    def _forwarded(self, link: RelayLink, command: Command) -> Command | None:
        if link is not self._member.link:
            raise Refused(RelayAnswer.NOT_REGISTERED, "this relay is not registered here")
        answers = not command.is_one_way and command.code != RelayCode.FORWARD_TO_ALL
        kind = packets.number(command, "packet")
        packet = Packet(kind, packets.number(command, "from"), command.body, answers)
        handler = self._kinds.get(kind)
        if handler is None:
            remark = f"server {self.server_id} does not handle packet {kind}"
            self._refuse(link, command, packet, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif self._handling >= self._options.handlers_max:
            remark = f"server {self.server_id} has too many packets at work"
            self._refuse(link, command, packet, ResponseCode.SYSTEM_BUSY, remark)
        else:
            self._handling += 1
            self._links.tasks.spawn(self._run(link, command, packet, handler), f"packet {kind}")
        return None

    async def _run(
        self,
        link: RelayLink,
        command: Command,
        packet: Packet,
        handler: Callable[[Packet], Awaitable[bytes | None]],
    ) -> None:
        try:
            body = await handler(packet)
        except Refused as error:
            self._refuse(link, command, packet, error.code, error.remark)
        except Exception as error:
            log.exception("packet %d of server %d failed", packet.kind, packet.sender)
            what = f"{type(error).__name__}: {error}"[:1024]
            self._refuse(link, command, packet, ResponseCode.SYSTEM_ERROR, what)
        else:
            if packet.wants_answer:
                self._reply(link, reply_to(command, body=body or b""), packet)
        finally:
            self._handling -= 1

    def _refuse(
        self, link: RelayLink, command: Command, packet: Packet, code: int, remark: str
    ) -> None:
        if packet.wants_answer:
            self._reply(link, reply_to(command, code, remark=remark), packet)
        else:
            self.refused_one_way += 1

    def _reply(self, link: RelayLink, answer: Command, packet: Packet) -> None:
        answer.ext = {"from": str(self.server_id), "to": str(packet.sender)}
        answer.encoding = BINARY
        link.reply(answer)

    # --- inside --------------------------------------------------------------------------------

    def _has_changed(self) -> None:
        self._changed.set()
        self.on_change()

    def _beat(self) -> None:
        self._member.beat(self.online)

    async def _keep_dialling(self) -> None:
        """Be connected to the relay, again with a growing pause after each failure."""
        assert self._relay is not None
        host, port = self._relay
        pause_s = self._options.reconnect_first_s
        while True:
            before = self.registrations
            try:
                link = await self._links.dial(host, port, self._options.connect_s)
                answer = await link.call(packets.hello(self.server_id), self._options.connect_s)
                if answer.code != ResponseCode.SUCCESS:
                    raise Refused(answer.code, answer.remark or "")
                await link.gone.wait()
            except (OSError, RoquetError) as error:
                log.info("server %d: relay %s:%d: %s", self.server_id, host, port, error)
            if self.registrations > before:
                pause_s = self._options.reconnect_first_s
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, self._options.reconnect_max_s)


def _nothing() -> None:
    """Stand for nobody who wants to know."""
