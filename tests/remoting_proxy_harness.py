"""A proxy's remoting port before brokers, all of one process, and clients that know it alone."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from remoting_harness import PATIENCE_S
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData, decode_consumer_ids
from roquet.protocol.bodies.routes import decode_route
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.tags import subscribe
from roquet.proxy.remoting.app import NO_TLS, RemotingProxy, build
from roquet.proxy.remoting.limits import RemotingLimits
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from roquet.acl.credentials import Credentials
    from roquet.model.route import TopicRoute
    from roquet.remoting.client import ClientConfig
    from roquet.remoting.router import Guard
    from roquet.remoting.tls import TlsConfig

ASKED = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
)


async def until_so(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that has to be asked for."""
    async with asyncio.timeout(PATIENCE_S):
        while not await check():  # noqa: ASYNC110  (another process or part does it)
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def proxy(
    name_servers: str,
    *,
    credentials: Credentials | None = None,
    tls: TlsConfig = NO_TLS,
    guard: Guard | None = None,
    sockets: ClientConfig | None = None,
    **changes: str,
) -> AsyncGenerator[RemotingProxy]:
    """Run the port for the length of a block; `changes` are settings under Java's names."""
    given = {"remotingListenPort": "0", **changes}
    rules, report = load(RemotingLimits, given, {}, {})
    assert not report.unknown, report.unknown
    built = build(
        rules,
        host="127.0.0.1",
        name_servers=tuple(name_servers.split(";")),
        clock=SystemClock(),
        credentials=credentials,
        tls=tls,
        guard=guard,
        sockets=sockets,
    )
    async with built.app:
        yield built


@dataclasses.dataclass
class ProxyClient:
    """A client that is connected to the proxy and to nobody else."""

    address: str
    client: Client
    asked: list[Command]
    sign: Callable[[Command], Command] | None = None

    async def call(self, command: Command, timeout_s: float = 30.0) -> Command:
        command = command if self.sign is None else self.sign(command)
        return await self.client.call(self.address, command, timeout_s)

    async def tell(self, command: Command) -> None:
        command = command if self.sign is None else self.sign(command)
        await self.client.call_one_way(self.address, command)

    async def route(self, topic: str) -> TopicRoute:
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        answer = await self.call(command)
        assert answer.code == 0, answer.remark
        return decode_route(answer.body)

    async def send(
        self, topic: str, broker: str = "broker-a", properties: str = "", **fields: str
    ) -> Command:
        return await self.call(send_command(topic, b"hello", 0, properties, n=broker, **fields))

    async def pull(
        self, topic: str, offset: int = 0, broker: str = "broker-a", **fields: str
    ) -> Command:
        return await self.call(pull_command(topic, offset, bname=broker, **fields))

    async def beat(self, name: str, group: str, topic: str, producer: str = "testers") -> Command:
        consumers = (ConsumerData(group=group, subscriptions=(subscribe(topic, "*"),)),)
        data = HeartbeatData(client_id=name, producers=(producer,), consumers=consumers)
        return await self.call(Command(RequestCode.HEART_BEAT, {}, data.encode()))

    async def members(self, group: str) -> list[str]:
        command = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        answer = await self.call(command)
        assert answer.code == 0, answer.remark
        return sorted(decode_consumer_ids(answer.body))

    def codes(self) -> list[int]:
        """Return the codes of what it was asked."""
        return [command.code for command in self.asked]


@contextlib.asynccontextmanager
async def proxy_client(
    address: str | RemotingProxy,
    answer: Callable[[Request], Command | None] | None = None,
    sign: Callable[[Command], Command] | None = None,
) -> AsyncGenerator[ProxyClient]:
    """Connect to a port; `answer` answers what brokers ask."""
    asked: list[Command] = []

    def handle(request: Request) -> Command | None:
        asked.append(request.command)
        return None if answer is None else answer(request)

    client = Client(clock=SystemClock(), handlers=[Route(ASKED, handle, "answers")])
    await client.start()
    try:
        yield ProxyClient(_address(address), client, asked, sign)
    finally:
        await client.stop()


@contextlib.asynccontextmanager
async def proxy_clients(door: RemotingProxy, count: int) -> AsyncGenerator[list[ProxyClient]]:
    """Connect many clients in one step: errors inside hundreds of blocks take minutes to show."""
    clients = [Client(clock=SystemClock()) for _ in range(count)]
    try:
        for client in clients:
            await client.start()
        yield [ProxyClient(_address(door), client, []) for client in clients]
    finally:
        for client in clients:
            await client.stop()


def _address(door: str | RemotingProxy) -> str:
    return f"127.0.0.1:{door.server.port}" if isinstance(door, RemotingProxy) else door
