"""A worker service: it owns the links of the servers with its id modulo the number of workers."""

from __future__ import annotations

import dataclasses
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any

from roquet.protocol.command import Command, reply_to
from roquet.relay.master import events as e
from roquet.relay.peers import packets
from roquet.remoting.codec import encode

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.relay.peers.dispatch import Dispatcher
    from roquet.relay.peers.links import Links, RelayLink
    from roquet.relay.process import Mailbox, MessageHandler
    from roquet.relay.registry import Registry
    from roquet.relay.traffic import RelayTraffic

log = logging.getLogger(__name__)

MAP_MAX = 10_000
"""Servers in the map, which has to fit a frame; more of them follow one by one."""


@dataclasses.dataclass(slots=True)
class Owned:
    """A registered server, as its worker knows it."""

    link: RelayLink
    server: packets.Other
    online: int = 0
    """How many are online there, by its last heartbeat."""


class WorkerService:
    """Passes notices on, keeps links alive, moves queued output to the sockets."""

    def __init__(
        self,
        index: int,
        *,
        links: Links,
        traffic: RelayTraffic,
        messages: Registry[MessageHandler],
        dispatch: Dispatcher,
        clock: Clock,
        heartbeat_timeout_ms: int,
    ) -> None:
        """Own nobody yet; `mailbox` and `to_master` have to be set before it runs."""
        self.index = index
        self.owned: dict[int, Owned] = {}
        """Servers by id."""
        self.mailbox: Mailbox
        self.to_master: Mailbox
        self._links = links
        self._traffic = traffic
        self._exchange = traffic.exchange
        self._dispatch = dispatch
        self._clock = clock
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._messages = messages
        self._watched_ms = clock.steady_ms()
        self._unsent: list[e.Closed] = []

    @property
    def name(self) -> str:
        """Its name, for people."""
        return f"worker-{self.index}"

    @classmethod
    def register_messages(cls, messages: Registry[MessageHandler]) -> None:
        """Say which messages a worker takes."""
        for kind, handler in (
            (e.NewServerNotice, cls.new_server),
            (e.RegisterNotice, cls.take_over),
            (e.GoneNotice, cls.server_gone),
        ):
            messages.add(kind, kind.__name__, "worker", handler)

    def handle(self, messages: list[Any]) -> None:
        """Work through the mailbox, then move what the servers have in their queues."""
        waiting: list[object] = messages
        for message in waiting:
            kind = type(message)
            handler = self._messages.get(kind)
            if handler is None:
                log.error("%s has no handler for %s", self.name, kind.__name__)
            else:
                handler(self, message)
        for server_id in self._exchange.take_ready(self.index):
            self._pump(server_id)

    # --- messages of the master ----------------------------------------------------------------

    def new_server(self, notice: e.NewServerNotice) -> None:
        """Tell the servers owned here that another one is there; never that one itself."""
        server = notice.server
        self._tell_all(packets.new_server(server), server.server_id)

    def server_gone(self, notice: e.GoneNotice) -> None:
        """Let a server go, if it was owned here, and tell the others."""
        owned = self.owned.get(notice.id)
        if owned is not None and owned.link.key == notice.link:
            del self.owned[notice.id]
            self._exchange.unregister(notice.id, notice.link)
            self._traffic.announce()
        self._tell_all(packets.server_gone(notice.id, notice.why), notice.id)

    def take_over(self, notice: e.RegisterNotice) -> None:
        """Own a link from now on: the map goes out first, then packets may."""
        link = self._links.find(notice.link)
        if link is None or not link.is_open:
            return  # whoever held it has told the master
        link.holder = self
        server = notice.server
        others = iter(notice.others.items())
        link.write(encode(packets.server_map(dict(islice(others, MAP_MAX)), link.proof)))
        for _, other in others:
            link.write(encode(packets.new_server(other)))
        if self._exchange.register(server.server_id, server.server_type, link.key, self.index):
            self.owned[server.server_id] = Owned(link, server)
            self._traffic.announce()

    # --- packets of the servers ----------------------------------------------------------------

    def heartbeat(self, link: RelayLink, command: Command) -> Command | None:
        """Note how many are online there; that bytes came is noted by the exchange."""
        owned = self.owned.get(link.server_id)
        if owned is not None and command.ext and "online" in command.ext:
            owned.online = packets.number(command, "online", low=0)
        return reply_to(command)

    # --- what links tell their holder ----------------------------------------------------------

    def received(self, link: RelayLink, command: Command) -> None:
        """Handle a packet that is no traffic."""
        self._dispatch(link, command)

    def lost(self, link: RelayLink, why: str) -> None:
        """Refuse what waits for the server, and tell the master."""
        owned = self.owned.get(link.server_id)
        if owned is not None and owned.link is link:
            del self.owned[link.server_id]
            self._exchange.unregister(link.server_id, link.key)
            self._traffic.announce()
        closed = e.Closed(link.key, why)
        if not self.to_master.post(closed):
            self._unsent.append(closed)

    def writable(self, link: RelayLink) -> None:
        """Go on writing."""
        self._pump(link.server_id)

    # --- timers --------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Tell the servers owned here that the relay is there."""
        frame = encode(packets.heartbeat())
        for owned in tuple(self.owned.values()):
            if not owned.link.is_stuck:
                owned.link.write(frame)

    async def watch(self) -> None:
        """Close links that are silent; tell the master what found its mailbox full.

        A look that comes much too late judges nobody: this process has slept, and what the servers
        said meanwhile is not read yet.
        """
        now_ms = self._clock.steady_ms()
        last_ms, self._watched_ms = self._watched_ms, now_ms
        if now_ms - last_ms <= self._heartbeat_timeout_ms // 2:
            for server_id in self._exchange.silent(self.index, now_ms - self._heartbeat_timeout_ms):
                owned = self.owned.get(server_id)
                if owned is not None:
                    owned.link.end(f"silent for {self._heartbeat_timeout_ms} ms")
        unsent, self._unsent = self._unsent, []
        self._unsent = [closed for closed in unsent if not self.to_master.post(closed)]

    async def start(self) -> None:
        """Nothing has to be acquired."""

    async def stop(self) -> None:
        """Nothing has to be released: the links belong to `Links`."""

    # --- inside --------------------------------------------------------------------------------

    def _tell_all(self, notice: Command, but: int) -> None:
        for server_id in self._exchange.broadcast(self.index, encode(notice), but):
            owned = self.owned.get(server_id)
            if owned is not None:
                owned.link.end("it takes no notices")

    def _pump(self, server_id: int) -> None:
        owned = self.owned.get(server_id)
        if owned is None:
            return
        link = owned.link
        while not link.is_stuck and link.is_open:
            piece = self._exchange.take(server_id)
            if piece is None:
                return
            link.write(piece)
