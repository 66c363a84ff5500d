"""Plain sends that pass to a broker by compiled code, as the handlers would forward them.

The handlers look at one send of each topic and broker a second: whether the topic is for messages
of its type, and where the broker is. Those that follow within the second pass, over one connection
to each broker for all clients. A send that no broker has looked at is the handlers'.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from roquet._native import SendForwarder
from roquet.base.errors import RoquetError
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode, request_name
from roquet.protocol.command import reply_to
from roquet.proxy.lines import Lines
from roquet.proxy.remoting.limits import CONNECT_S, REMEMBERED_MAX, REQUEST_S, SENDS_MAX
from roquet.remoting.codec import decode
from roquet.remoting.connections.ingest import FeedResult, HandedOn
from roquet.remoting.connections.limits import Standing
from roquet.service.background import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.remoting.client import Client
    from roquet.remoting.connections.connection import Connection

    Ask = Callable[[Connection, Command], Awaitable[Command]]
    Unanswered = tuple[int, int, int, bytes]
    """Keys of the client's and the broker's connection, the client's opaque, the frame."""

log = logging.getLogger(__name__)

LATE_S = 0.25
"""How often sends are looked for that wait for too long."""
LOOK_MS = 1000
"""For how long the handlers' look at a send counts."""
PLAIN_TYPES = frozenset({"NORMAL", "MIXED"})
"""Types of topics that take messages of no type."""
_TYPED = (
    props.TRANSACTION_PREPARED,
    props.DELAY,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELAY_MS,
    props.TIMER_DELIVER_MS,
    props.SHARDING_KEY,
    props.PRIORITY,
    props.LITE_TOPIC,
)
"""Properties that give a message a type, or none of those that pass."""


class PlainSends:
    """Takes plain sends to brokers. A service, and the ingest of the port."""

    def __init__(self, client: Client, clock: Clock) -> None:
        """Connect by this client."""
        self._client = client
        self._clock = clock
        self._core = SendForwarder(
            frame_max=FRAME_SIZE_MAX,
            patience_ms=int(REQUEST_S * 1000),
            sends_max=SENDS_MAX,
            typed=list(_TYPED),
        )
        self.find: Callable[[int], Connection | None] = _nobody
        """Returns the connection of a client by its key."""
        self.ask: Ask = _refuse
        """Has the handlers forward a request."""
        self._lines: dict[str, Connection] = {}
        """By the broker's name."""
        self._names: dict[int, str] = {}
        """Of brokers, by the key of the connection."""
        self._connecting = Lines(self._dial, self._connected, clock)
        self._looks = 0
        self._tasks = Tasks()
        self._is_open = False
        self._idle = asyncio.Event()

    async def start(self) -> None:
        """Let sends pass."""
        self._is_open = True

    async def stop(self) -> None:
        """Let none pass any more, and wait for those that a broker has."""
        self._is_open = False
        self._core.forget(None)
        if self._core.waits():
            self._idle.clear()
            # Nobody looks for late ones any more: those that are left end with their connections.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), REQUEST_S)
        await self._connecting.stop()
        await self._tasks.stop()

    # --- what passes -----------------------------------------------------------------------------

    def look_at(self, topic: str, kind: str, broker: str, address: str) -> None:
        """Have further sends of a topic that is for `kind` pass to a broker at an address."""
        if kind not in PLAIN_TYPES or not self._is_open:
            return
        now_ms = self._clock.steady_ms()
        line = self._lines.get(broker)
        if line is None or not line.is_open or line.address != address:
            self._connecting.want(broker, address)
            return
        self._looks += 1
        if self._looks % REMEMBERED_MAX == 0:
            self._core.forget(now_ms)
        self._core.put(topic, broker, line.key, now_ms + LOOK_MS)

    async def _dial(self, address: str) -> Connection:
        ingest = HandedOn(self.answered, self.held, self.close)
        return await self._client.dial(address, CONNECT_S, ingest)

    def _connected(self, broker: str, line: Connection) -> None:
        self._lines[broker] = line
        self._names[line.key] = broker

    # --- the ingest of the port ------------------------------------------------------------------

    def open(self, key: int, address: str) -> None:
        """Nothing is kept."""

    def feed(
        self, key: int, data: memoryview, now_ms: int, fd: int | None = None
    ) -> FeedResult | bytes:
        """Take what a client has written."""
        del now_ms, fd
        out, rest, broken = self._core.ask(key, data, self._clock.steady_ms())
        for line_key, frames, numbers in out:
            line = self._lines.get(self._names.get(line_key, ""))
            if line is not None and line.key == line_key and line.is_open and not line.is_stuck:
                line.write(frames)
            else:
                rest += self._core.take_back(numbers)
        if not rest and not broken and not self._core.held(key):
            return b""
        return FeedResult(b"", decode(rest)[0], broken=broken)

    def resume(self, key: int) -> FeedResult:
        """Nothing is ever kept back."""
        del key
        return FeedResult(b"", [])

    def idle(self, key: int) -> None:
        """Nothing depends on it."""

    def held(self, key: int) -> int:
        """Bytes of an incomplete frame."""
        return self._core.held(key)

    def standing(self, key: int) -> Standing:
        """Everybody counts as proven: accounts are not known here."""
        del key
        return Standing.PROVEN

    def prove(self, key: int) -> None:
        """Nothing depends on it."""

    def close(self, key: int) -> None:
        """Forget a client or a broker; who waits for this broker is told."""
        broker = self._names.pop(key, None)
        sends = self._core.close(key)
        if broker is not None:
            line = self._lines.get(broker)
            where = broker if line is None else line.address
            if line is not None and line.key == key:
                del self._lines[broker]
            self._tell(sends, f"broker {broker}: {where} closed the connection")

    # --- answers ---------------------------------------------------------------------------------

    def answered(self, key: int, data: memoryview) -> FeedResult | bytes:
        """Take what a broker has written."""
        out, rest, again, broken = self._core.answer(key, data)
        for client_key, frames in out:
            client = self.find(client_key)
            if client is not None:
                client.write(frames)
        if again:
            # The broker is stopping: nothing goes this way to it any more.
            broker = self._names.get(key, "")
            self._lines.pop(broker, None)
            self._core.forget(None)
            for client_key, _, _, frame in again:
                client = self.find(client_key)
                if client is not None:
                    (command,), _ = decode(frame)
                    self._tasks.spawn(self._once_more(client, command), "forward a send again")
        self._note_idle()
        if not rest and not broken and not self._core.held(key):
            return b""
        return FeedResult(b"", decode(rest)[0], broken=broken)

    async def end_late(self) -> None:
        """Answer sends that have waited for too long: the action of a timer."""
        name = request_name(RequestCode.SEND_MESSAGE_V2)
        for send in self._core.late(self._clock.steady_ms()):
            broker = self._names.get(send[1], "")
            line = self._lines.get(broker)
            where = broker if line is None else line.address
            text = f"{where} did not answer {name} within {REQUEST_S:g} s"
            self._tell([send], f"broker {broker}: {text}")

    def _tell(self, sends: Iterable[Unanswered], why: str) -> None:
        for client_key, _, _, frame in sends:
            client = self.find(client_key)
            if client is not None:
                (command,), _ = decode(frame)
                client.reply(reply_to(command, ResponseCode.SYSTEM_ERROR, remark=why))
        self._note_idle()

    async def _once_more(self, client: Connection, command: Command) -> None:
        try:
            answer = await self.ask(client, command)
        except RoquetError as error:
            answer = reply_to(command, ResponseCode.SYSTEM_ERROR, remark=str(error))
        answer.opaque = command.opaque
        client.reply(answer)

    def _note_idle(self) -> None:
        if not self._core.waits():
            self._idle.set()


def _nobody(key: int) -> Connection | None:
    del key
    return None


async def _refuse(client: Connection, command: Command) -> Command:
    del client
    return reply_to(command, ResponseCode.SYSTEM_ERROR, remark="the proxy has not started")
