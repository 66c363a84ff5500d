"""A name server and brokers in the test's own process: free ports, tiny files, real sockets.

async with cluster(tmp_path) as it:
    answer = await it.call(Command(RequestCode.GET_MAX_OFFSET, ext={...}))
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING

from roquet.auth.keeping.starting import inner_credentials
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.broker import app as broker_app
from roquet.broker.config import BrokerConfig, settled
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from roquet.base.clock import Clock

BUSY_MACHINE = {
    # Other tests keep this machine busy: neither a late loop nor a send that had to wait for it is
    # a reason to turn sends away.
    "brokerFastFailureEnable": "false",
    "waitTimeMillsInSendQueue": "60000",
    # The disk of a test machine may be full beyond any broker's taste.
    "diskMaxUsedSpaceRatio": "95",
    "cleanFileForciblyEnable": "false",
}
"""What a broker of a test needs unless the test is about these settings."""
TINY = {
    **BUSY_MACHINE,
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "listenPort": "0",
    "bindAddress": "127.0.0.1",
}


def broker_config(folder: Path, name_servers: str = "", **changes: str) -> BrokerConfig:
    """Return settings of a small broker in `folder`; `changes` have Java's names."""
    given = {
        **TINY,
        "brokerName": "broker-a",
        "storePathRootDir": str(folder),
        "namesrvAddr": name_servers,
        **changes,
    }
    config, report = load(BrokerConfig, given, {}, {})
    assert not report.unknown, report.unknown
    own = inner_credentials(config.auth)
    return settled(dataclasses.replace(config, credentials=own), from_file=False)


@contextlib.asynccontextmanager
async def running_broker(
    folder: Path,
    name_servers: str = "",
    *,
    changes: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncGenerator[broker_app.Broker]:
    """Run one broker over `folder` for the length of a block."""
    config = broker_config(folder, name_servers, **(changes or {}))
    broker = broker_app.build(config, clock or SystemClock(), random.Random(1))  # noqa: S311
    async with broker.app:
        yield broker


@contextlib.asynccontextmanager
async def running_name_server(
    folder: Path, changes: Mapping[str, str] | None = None
) -> AsyncGenerator[namesrv_app.NameServer]:
    """Run a name server for the length of a block."""
    config, report = load(
        NamesrvConfig,
        {
            "listenPort": "0",
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(folder / "kvConfig.json"),
            "configStorePath": str(folder / "namesrv.properties"),
            **(changes or {}),
        },
        {},
        {},
    )
    assert not report.unknown, report.unknown
    server = namesrv_app.build(Settings(config), SystemClock())
    async with server.app:
        yield server


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """What runs, and a client to talk to it."""

    name_server: namesrv_app.NameServer
    brokers: tuple[broker_app.Broker, ...]
    client: Client

    @property
    def name_servers(self) -> str:
        """Address of the name server, as clients are given it."""
        return f"127.0.0.1:{self.name_server.server.port}"

    @property
    def broker(self) -> broker_app.Broker:
        """The first broker."""
        return self.brokers[0]

    @property
    def address(self) -> str:
        """Main address of the first broker."""
        return self.broker.identity.address

    async def call(self, command: Command, address: str | None = None) -> Command:
        """Ask the first broker, or whoever is at `address`."""
        return await self.client.call(address or self.address, command, 20.0)

    async def send(
        self,
        topic: str,
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        properties: str = "",
        **fields: str,
    ) -> Command:
        """Send one message the way clients do (310); `fields` are those of the short header."""
        return await self.call(send_command(topic, body, queue_id, properties, **fields))

    async def pull(self, topic: str, offset: int = 0, /, **fields: str) -> Command:
        """Pull with an inline `*` subscription, without waiting; `fields` replace header fields."""
        return await self.call(pull_command(topic, offset, **fields))


@contextlib.asynccontextmanager
async def cluster(folder: Path, *names: str, **changes: str) -> AsyncGenerator[Cluster]:
    """Run a name server and brokers (`broker-a` unless named) for the length of a block.

    The same folder again is a restart. `changes` are broker settings under Java's names.
    """
    async with contextlib.AsyncExitStack() as stack:
        name_server = await stack.enter_async_context(running_name_server(folder / "namesrv"))
        address = f"127.0.0.1:{name_server.server.port}"
        client = Client(clock=SystemClock())
        await client.start()
        stack.push_async_callback(client.stop)
        started = [
            await stack.enter_async_context(
                running_broker(folder / name, address, changes={"brokerName": name, **changes})
            )
            for name in names or ("broker-a",)
        ]
        yield Cluster(name_server, tuple(started), client)


def send_command(
    topic: str, body: bytes, queue_id: int = 0, properties: str = "", **fields: str
) -> Command:
    """Return a SEND_MESSAGE_V2 request."""
    ext = {
        "a": "testers",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        **fields,
    }
    return Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=body)


def pull_command(topic: str, offset: int = 0, /, **fields: str) -> Command:
    """Return a PULL_MESSAGE request of group `readers` for queue 0."""
    ext = {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        **fields,
    }
    return Command(RequestCode.PULL_MESSAGE, ext=ext)
