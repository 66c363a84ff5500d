"""An inner server's membership: which link is the relay's, and which other servers are there.

A second relay that comes while the first is alive is refused: two relays started by mistake would
take the server from each other for ever. One that has died is told from one that lives by a probe.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import BINARY, Command, reply_to
from roquet.relay.codes import RelayAnswer, RelayCode
from roquet.relay.peers import packets
from roquet.remoting.codec import encode

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.relay.peers.dispatch import Dispatcher, PacketHandler
    from roquet.relay.peers.links import Links, RelayLink
    from roquet.relay.registry import Registry

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who an inner server is."""

    server_id: int
    server_type: int
    max_online: int = 0
    secret: str | None = None


@dataclasses.dataclass(slots=True)
class _Candidate:
    """A relay that has sent its register packet and not yet the map of servers."""

    register: packets.Register
    nonce: str


class Member:
    """Keeps the links of an inner server, of which at most one is its relay's."""

    def __init__(
        self,
        identity: Identity,
        *,
        clock: Clock,
        rng: random.Random,
        dispatch: Dispatcher,
        probe_s: float,
        silence_s: float,
        beat_s: float,
    ) -> None:
        """Be registered nowhere; `links` and `on_change` have to be set."""
        self.identity = identity
        self.links: Links
        self.on_change: Callable[[], None]
        self.others: dict[int, packets.Other] = {}
        self.link: RelayLink | None = None
        self.relay = ""
        """Name of the relay, empty without one."""
        self.registrations = 0
        """How often this server was registered."""
        self._instance = ""
        self._candidates: dict[int, _Candidate] = {}
        self._clock = clock
        self._rng = rng
        self._dispatch = dispatch
        self._probe_s = probe_s
        self._silence_ms = int(silence_s * 1000)
        self._heard_ms = 0
        self._beat_ms = clock.steady_ms()
        self._late_ms = int(2000 * beat_s) + self._silence_ms // 4

    def register_packets(self, registry: Registry[PacketHandler]) -> None:
        """Say which packets are handled here."""
        for code, handler in (
            (RelayCode.REGISTER, self.register),
            (RelayCode.SERVER_MAP, self.server_map),
            (RelayCode.NEW_SERVER, self.new_server),
            (RelayCode.SERVER_GONE, self.server_gone),
            (RelayCode.HEARTBEAT, self.heartbeat),
        ):
            registry.add(code, code.name, "member", handler)

    def beat(self, online: int) -> None:
        """Tell the relay that this server is there; give up a relay that is silent.

        A link that has not become the relay's in that time is closed as well.
        """
        now_ms = self._clock.steady_ms()
        last_ms, self._beat_ms = self._beat_ms, now_ms
        before_ms = now_ms - self._silence_ms
        if now_ms - last_ms > self._late_ms:
            before_ms = 0  # this process has slept: what came meanwhile is not read yet
        for other in self.links.all():
            if other is not self.link and other.opened_ms < before_ms:
                other.end("it did not register this server")
        link = self.link
        if link is None:
            return
        if self._heard_ms < before_ms:
            link.end(f"the relay is silent for {self._silence_ms} ms")
        elif not link.is_stuck:
            link.write(encode(packets.heartbeat(online)))

    # --- packets -------------------------------------------------------------------------------

    def register(self, link: RelayLink, command: Command) -> Command | None:
        """Answer a register packet, once it is clear that no other relay is alive."""
        said = packets.read_register(command)
        me = self.identity
        if (said.server_id, said.server_type) != (me.server_id, me.server_type):
            remark = f"this is server {me.server_id} of type {me.server_type}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        other = self.link
        if other is None or other is link or said.instance == self._instance:
            return self._accept(link, command, said)
        self.links.tasks.spawn(self._probe(other, link, command, said), "probe the older relay")
        return None

    def server_map(self, link: RelayLink, command: Command) -> Command | None:
        """Be registered."""
        candidate = self._candidates.pop(link.key, None)
        if candidate is None:
            raise packets.PacketError("a map of servers without a register packet")
        others = packets.read_server_map(command)
        me = self.identity
        claim = packets.Claim("relay", candidate.register.nonce, candidate.nonce, me.server_id)
        given = packets.text(command, "proof", default="")
        if me.secret and not claim.holds(me.secret, given):
            log.warning("%s does not know the shared secret: its link is closed", link.address)
            link.close("")
            return None
        older, self.link = self.link, link
        if older is not None and older is not link:
            older.end("a newer link has taken its place")
        self._instance, self.relay = candidate.register.instance, candidate.register.relay
        self.others = others
        self.registrations += 1
        self.on_change()
        return None

    def new_server(self, link: RelayLink, command: Command) -> Command | None:
        """Know another server."""
        if link is self.link:
            other = packets.read_new_server(command)
            self.others[other.server_id] = other
            self.on_change()
        return None

    def server_gone(self, link: RelayLink, command: Command) -> Command | None:
        """Forget another server."""
        if link is self.link and self.others.pop(packets.number(command, "id"), None) is not None:
            self.on_change()
        return None

    def heartbeat(self, link: RelayLink, command: Command) -> Command | None:
        """Answer, where it is a probe."""
        del link
        return reply_to(command)

    # --- what links tell their holder ----------------------------------------------------------

    def received(self, link: RelayLink, command: Command) -> None:
        """Handle a packet."""
        if link is self.link:
            self._heard_ms = self._clock.steady_ms()
        self._dispatch(link, command)

    def lost(self, link: RelayLink, why: str) -> None:
        """Know that a link has gone; with the relay's go the other servers."""
        self._candidates.pop(link.key, None)
        if link is self.link:
            log.info("server %d has lost its relay: %s", self.identity.server_id, why)
            self.link = None
            self.relay = ""
            self.others = {}
            self.on_change()

    def writable(self, link: RelayLink) -> None:
        """Nothing is kept back here: senders wait for `drained`."""

    # --- inside --------------------------------------------------------------------------------

    def _accept(self, link: RelayLink, command: Command, said: packets.Register) -> Command:
        me = self.identity
        nonce = f"{self._rng.getrandbits(128):032x}"
        proof = ""
        if me.secret:
            proof = packets.Claim("server", nonce, said.nonce, me.server_id).proof(me.secret)
        self._candidates[link.key] = _Candidate(said, nonce)
        self._heard_ms = self._clock.steady_ms()
        answer = packets.Registered(
            server_id=me.server_id, max_online=me.max_online, nonce=nonce, proof=proof
        )
        return reply_to(command, ext=packets.registered_ext(answer))

    async def _probe(
        self, other: RelayLink, link: RelayLink, command: Command, said: packets.Register
    ) -> None:
        try:
            async with asyncio.timeout(self._probe_s):
                await other.call(packets.command(RelayCode.HEARTBEAT, {}), self._probe_s)
        except (TimeoutError, OutcomeUnknown, Unreachable):
            if other is self.link:
                other.end("it is silent, and another relay has come")
            answer = self._accept(link, command, said)
        else:
            remark = f"relay {self.relay} at {other.address} is alive"
            log.warning("relay %s at %s is refused: %s", said.relay, link.address, remark)
            answer = reply_to(command, RelayAnswer.OTHER_RELAY, remark=remark)
        answer.encoding = BINARY
        link.reply(answer)
