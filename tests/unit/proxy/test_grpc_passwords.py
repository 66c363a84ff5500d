"""A password that is changed ends what began with the former one, in local and in cluster mode."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from auth_harness import ANN, CLERK, ROOT, SWITCHES, acl_command, entry, user_command
from cluster_users import guarded_cluster
from grpc_calls import Calls, Told, consumer, fronted, message, producer
from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
from roquet.remoting.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from roquet.acl.credentials import Credentials
    from roquet.protocol.command import Command

ASKED = "recover_orphaned_transaction_command"
OFTEN = {"transactionCheckInterval": "500", "transactionTimeOut": "500"}
OWN = [entry(f"Topic:{name}", "Pub", "Sub") for name in ("Normal", "Transaction")]
NEW = dataclasses.replace(ANN, secret_key="another-password")


@dataclasses.dataclass
class World:
    """A front before brokers that keep users."""

    calls: Calls
    tell: Callable[[Command], Awaitable[None]]

    def client(self, who: Credentials, name: str = "") -> Calls:
        """Return a client with a telemetry stream of its own."""
        return dataclasses.replace(
            self.calls,
            client_id=name or f"{who.access_key}-1",
            access_key=who.access_key,
            secret=who.secret_key,
            told=Told(),
        )

    async def change(self) -> None:
        """Give ann another password; return when the front refuses the former one."""
        await self.tell(user_command(3002, "ann", {"password": NEW.secret_key}))
        await until_code(self.client(ANN), Code.UNAUTHORIZED)


async def until_code(calls: Calls, code: Code) -> None:
    async with asyncio.timeout(20):
        while (await calls.send(message())).status.code != code:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def _local(folder: Path) -> AsyncGenerator[World]:
    async with fronted(folder, None, None, **SWITCHES, **OFTEN) as calls:
        client = Client(clock=SystemClock())
        await client.start()

        async def tell(command: Command) -> None:
            address = calls.broker.identity.address
            answer = await client.call(address, ROOT.sign(command), 20.0)
            assert answer.code == 0, answer.remark

        try:
            yield World(calls, tell)
        finally:
            await client.stop()


@contextlib.asynccontextmanager
async def _cluster(folder: Path) -> AsyncGenerator[World]:
    async with guarded_cluster(folder, changes=OFTEN) as it:
        yield World(it.client(), it.tell)


@pytest.fixture(params=["local", "cluster"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(folder: Path, mode: str, tell: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with _local(folder) if mode == "local" else _cluster(folder) as world:
            for who in (ANN, CLERK):
                body = {"password": who.secret_key, "userType": "Normal"}
                await world.tell(user_command(3001, who.access_key, body))
                rows = [*OWN, entry("Group:g", "Sub")]
                await world.tell(acl_command(3006, who.access_key, rows))
            await until_code(world.client(CLERK), Code.OK)
            await tell(world)

    asyncio.run(main())


def test_half_message_is_shown_to_no_stream_of_a_former_password(tmp_path: Path, mode: str) -> None:
    async def tell(world: World) -> None:
        ann, clerk = world.client(ANN), world.client(CLERK)
        for client in (ann, clerk):
            assert await client.show(producer("Transaction")) is None
        await world.change()
        ann.told.commands.clear()
        # A heartbeat with the new password is not the stream's.
        new = world.client(NEW)
        assert (await new.call("Heartbeat", pb.HeartbeatRequest(client_type=1))).status.code
        for _ in range(4):
            sent = await clerk.send(message("Transaction", message_type=4))
            assert sent.status.code == Code.OK
        asked = clerk.told.commands
        await until(lambda: sum(it.WhichOneof("command") == ASKED for it in asked) >= 4)
        assert not ann.told.commands

    run(tmp_path, mode, tell)


def test_stream_of_a_former_password_ends_and_takes_nothing(tmp_path: Path, mode: str) -> None:
    async def tell(world: World) -> None:
        ann, sessions = world.client(ANN), world.calls.front.sessions
        settings = pb.TelemetryCommand(settings=producer("Normal")).SerializeToString()
        stream = ann.front.telemetry(ann.head("Telemetry"))
        assert await stream.take(settings, ann.told) is None
        known = len(sessions)
        await world.change()
        ended = await stream.take(settings, ann.told)
        assert ended is not None
        assert ended[1] == "check signature failed."
        await sessions.sweep()
        assert len(sessions) == known - 1
        assert ann.told.ended is not None
        assert ann.told.ended.code is Code.UNAUTHORIZED
        new = world.client(NEW)
        assert await new.show(producer("Normal")) is None
        await sessions.sweep()
        assert (len(sessions), new.told.ended) == (known, None)

    run(tmp_path, mode, tell)


def test_receive_that_waits_brings_nothing_to_a_former_password(tmp_path: Path, mode: str) -> None:
    async def tell(world: World) -> None:
        ann, clerk = world.client(ANN), world.client(CLERK)
        # A new group begins behind what is there.
        assert await ann.show(consumer("g", 3, "Normal")) is None
        parts = await ann.receive("Normal", "g")
        held = asyncio.create_task(ann.receive("Normal", "g", wait_ms=20_000))
        await asyncio.sleep(0.2)
        # What tells whether the change is in force must send nothing that the receive could take.
        body = {"password": NEW.secret_key}
        await world.tell(user_command(3002, "ann", body))
        async with asyncio.timeout(20):
            while (await beat(ann)).status.code != Code.UNAUTHORIZED:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not held.done()
        assert (await clerk.send(message(body=b"late"))).status.code == Code.OK
        parts = await asyncio.wait_for(held, 30)
        assert [part.status.code for part in parts] == [Code.UNAUTHORIZED]
        for _ in range(4):
            found = await clerk.receive("Normal", "g", wait_ms=20_000)
            if b"late" in {part.message.body for part in found}:
                return
        pytest.fail("the message did not come again")

    async def beat(calls: Calls) -> Any:
        request = pb.HeartbeatRequest(client_type=3)
        request.group.name = "g"
        return await calls.call("Heartbeat", request)

    run(tmp_path, mode, tell)
