"""The master service: the shell of the machine. It ticks, and carries out what comes of it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.errors import DiskFull, OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.relay.codes import RelayAnswer
from roquet.relay.http_get import HttpError, http_get, reason
from roquet.relay.master import events as e
from roquet.relay.peers import packets
from roquet.relay.servers import ANSWER_SIZE_MAX, LastGood, ServerList, ServersError, parse
from roquet.service.slices import in_slices, read_body

if TYPE_CHECKING:
    import random

    from roquet.base.clock import Clock
    from roquet.relay.config import RelayConfig
    from roquet.relay.master.machine import Machine
    from roquet.relay.peers.dispatch import Dispatcher
    from roquet.relay.peers.links import Links, RelayLink
    from roquet.relay.process import Mailbox, MessageHandler
    from roquet.relay.registry import Registry
    from roquet.relay.traffic import RelayTraffic

log = logging.getLogger(__name__)

EFFECTS_AT_ONCE = 64
"""What is carried out of a tick before others have their turn."""


@dataclasses.dataclass(slots=True)
class _Outbox:
    """A worker's mailbox, and what found it full: sent again, in order, at the next tick."""

    mailbox: Mailbox
    kept: deque[Any] = dataclasses.field(default_factory=deque[Any])

    def send(self, message: Any) -> None:
        """Post a message behind those that wait."""
        self.kept.append(message)
        self.push()

    def push(self) -> None:
        """Post what waits."""
        while self.kept and self.mailbox.post(self.kept[0]):
            self.kept.popleft()


class MasterService:
    """Keeps links until their servers are registered."""

    name = "master"

    def __init__(
        self,
        *,
        machine: Machine,
        config: RelayConfig,
        instance: str,
        clock: Clock,
        rng: random.Random,
        traffic: RelayTraffic,
        dispatch: Dispatcher,
    ) -> None:
        """Do nothing before the first tick; `links`, `mailbox` and workers have to be set."""
        self.machine = machine
        self.links: Links
        self.mailbox: Mailbox
        self._config = config
        self._instance = instance
        self._clock = clock
        self._rng = rng
        self._traffic = traffic
        self._dispatch = dispatch
        self._workers: list[_Outbox] = []
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._own: list[e.Input] = []
        self._copy = LastGood(Path(config.config_copy).expanduser(), config.servers_max)
        self._last_good: ServerList | None = None
        self._last_body = b""
        """The answer that the last good list was read from."""

    def set_workers(self, mailboxes: list[Mailbox]) -> None:
        """Know the workers' mailboxes, in their order."""
        self._workers = [_Outbox(mailbox) for mailbox in mailboxes]

    @classmethod
    def register_messages(cls, messages: Registry[MessageHandler]) -> None:
        """Say which messages of other services the master takes."""
        for kind in (e.Closed, e.Asked):
            messages.add(kind, kind.__name__, cls.name, cls.book)

    def handle(self, messages: list[Any]) -> None:
        """Take messages: they wait for the tick."""
        for message in messages:
            self.book(message)

    def book(self, message: e.Input) -> None:
        """Give a message to the machine at the next tick."""
        self._own.append(message)

    async def start(self) -> None:
        """Read the last good answer. A copy that cannot be read is logged, and left alone."""
        try:
            self._last_good = await asyncio.to_thread(self._copy.load)
        except Exception as error:  # noqa: BLE001  (a bad copy must not keep the relay down)
            log.warning("the last good configuration cannot be read: %s", error)

    async def stop(self) -> None:
        """End what is under way."""
        for dial in tuple(self._dials.values()):
            dial.cancel()

    # --- the tick ------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Take one round of the machine."""
        for worker in self._workers:
            worker.push()
        self.handle(self.mailbox.take(len(self.mailbox)))
        inputs = self._own
        self._own = []
        effects = self.machine.tick(self._clock.steady_ms(), inputs)
        async for effect in in_slices(effects, EFFECTS_AT_ONCE):
            try:
                self._perform(effect)
            except Exception:
                log.exception("the master could not do %s", type(effect).__name__)

    async def sweep(self) -> None:
        """Close links that came in and do not say who they are."""
        before_ms = self._clock.steady_ms() - self._config.register_timeout_ms
        for link in self.links.all():
            if not link.server_id and link.opened_ms < before_ms:
                link.end("it did not say who it is")

    async def ask(self, what: str, server_id: int = 0) -> bool:
        """Do `reconnect`, `drain`, `undrain` or `reload` at the next tick; False: no such server.

        Raises Refused when too much waits for the master.
        """
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        asked = e.Asked(what, server_id, functools.partial(_settle, done))
        if not self.mailbox.post(asked):
            raise Refused(ResponseCode.SYSTEM_BUSY, "too many messages wait for the master")
        return await done

    # --- packets on links that are not registered -----------------------------------------------

    def hello(self, link: RelayLink, command: Command) -> Command | None:
        """Take the first packet of a server that dialled the relay."""
        if link.server_id:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"this is server {link.server_id}")
        link.server_id = packets.number(command, "id")
        self._own.append(e.CameIn(link.key, link.server_id))
        return reply_to(command)

    def too_early(self, link: RelayLink, command: Command) -> Command | None:
        """Refuse traffic of a server that is not registered."""
        del command
        who = f"server {link.server_id}" if link.server_id else link.address
        raise Refused(RelayAnswer.NOT_REGISTERED, f"{who} is not registered")

    # --- what links tell their holder ----------------------------------------------------------

    def received(self, link: RelayLink, command: Command) -> None:
        """Handle a packet."""
        self._dispatch(link, command)

    def lost(self, link: RelayLink, why: str) -> None:
        """Know at the next tick that a link has gone."""
        self._own.append(e.Closed(link.key, why))

    def writable(self, link: RelayLink) -> None:
        """Nothing waits for a link that is not registered."""

    # --- effects -------------------------------------------------------------------------------

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.NewServerNotice() | e.GoneNotice():
                for worker in self._workers:
                    worker.send(effect)
            case e.RegisterNotice(worker=index):
                self._workers[index].send(effect)
            case e.Known(ids):
                self._traffic.exchange.set_known(ids)
            case e.Drain(server_id, drains):
                self._traffic.exchange.drain(server_id, drains)
            case e.Say(level, text):
                log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)
            case _:
                self._perform_outside(effect)

    def _perform_outside(self, effect: e.Effect) -> None:
        match effect:
            case e.Fetch():
                self.links.tasks.spawn(self._fetch(), "ask the configuration server")
            case e.Dial():
                task = asyncio.get_running_loop().create_task(self._dial(effect), name="dial")
                self._dials[effect.attempt] = task
            case e.CancelDial(attempt):
                if attempt in self._dials:
                    self._dials[attempt].cancel()
            case e.CloseLink(key, why):
                self._close(key, why)
            case e.SendRegister(key, server_id, server_type):
                link = self.links.find(key)
                if link is not None:
                    work = self._register(link, server_id, server_type)
                    self.links.tasks.spawn(work, "register")
            case e.FlushLink(key):
                link = self.links.find(key)
                if link is not None:
                    link.flush()
            case _:
                raise TypeError(effect)

    def _close(self, key: int, why: str) -> None:
        link = self.links.find(key)
        if link is None:
            return
        link.why = link.why or why
        if link.is_stuck:
            link.end(why)
        else:
            link.close("")

    async def _dial(self, dial: e.Dial) -> None:
        timeout_s = self._config.connect_timeout_ms / 1000
        try:
            link = await self.links.dial(dial.host, dial.port, timeout_s)
        except TimeoutError:
            why = f"no connection within {self._config.connect_timeout_ms} ms"
            self._own.append(e.ConnectFailed(dial.attempt, why))
        except (OSError, ValueError) as error:
            self._own.append(e.ConnectFailed(dial.attempt, reason(error)))
        else:
            link.server_id = dial.id
            self._own.append(e.Connected(dial.attempt, link.key))
        finally:
            self._dials.pop(dial.attempt, None)

    async def _register(self, link: RelayLink, server_id: int, server_type: int) -> None:
        nonce = f"{self._rng.getrandbits(128):032x}"
        packet = packets.Register(
            relay=self._config.name,
            instance=self._instance,
            server_id=server_id,
            server_type=server_type,
            nonce=nonce,
        )
        timeout_s = self._config.register_timeout_ms / 1000 + 1
        try:
            answer = await link.call(packets.register(packet), timeout_s)
            if answer.code != ResponseCode.SUCCESS:
                why = f"it refused with code {answer.code}: {answer.remark}"
                self._own.append(e.Closed(link.key, why))
                return
            registered = packets.read_registered(answer)
            self._check(registered, server_id, nonce)
        except (packets.PacketError, OutcomeUnknown, Unreachable) as error:
            self._own.append(e.Closed(link.key, str(error)))
            return
        if self._config.secret:
            claim = packets.Claim("relay", nonce, registered.nonce, server_id)
            link.proof = claim.proof(self._config.secret)
        self._own.append(e.Answered(link.key, registered.max_online))

    def _check(self, answer: packets.Registered, server_id: int, nonce: str) -> None:
        if answer.server_id != server_id:
            raise packets.PacketError(f"it says that it is server {answer.server_id}")
        secret = self._config.secret
        claim = packets.Claim("server", answer.nonce, nonce, server_id)
        if secret and not claim.holds(secret, answer.proof):
            raise packets.PacketError("it does not know the shared secret")

    async def _fetch(self) -> None:
        """Ask the configuration server; whatever comes of it is a callback of a later tick."""
        url, timeout_s = self._config.config_url, self._config.config_timeout_ms / 1000
        try:
            body = await http_get(url, timeout_s, ANSWER_SIZE_MAX)
            servers = self._last_good
            if servers is None or body != self._last_body:
                read = functools.partial(parse, servers_max=self._config.servers_max)
                servers = await read_body(read, body)
        except (HttpError, ServersError, ValueError) as error:
            self._own.append(
                e.HttpDone("configuration", functools.partial(self._no_list, str(error)))
            )
        else:
            taken = functools.partial(self._take_list, servers, body)
            self._own.append(e.HttpDone("configuration", taken))

    def _take_list(self, servers: ServerList, body: bytes, machine: e.Refreshed) -> None:
        machine.refresh(servers)
        self._last_good, self._last_body = servers, body
        self.links.tasks.spawn(self._save(servers), "keep the configuration")

    def _no_list(self, why: str, machine: e.Refreshed) -> None:
        machine.load_failed(why)
        if machine.version is None and self._last_good is not None:
            log.warning("starting with the last good configuration, %s", self._copy.path)
            machine.refresh(self._last_good, "copy")

    async def _save(self, servers: ServerList) -> None:
        try:
            await self._copy.save(servers)
        except (OSError, DiskFull) as error:
            log.warning("the configuration could not be kept in %s: %s", self._copy.path, error)


def _settle(done: asyncio.Future[bool], there: bool) -> None:
    if not done.done():
        done.set_result(there)
