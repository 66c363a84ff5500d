"""A connection that proved a password is shown nothing of others once that is changed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from auth_harness import ANN, CLERK, entry, guarded, user_command
from remoting_harness import on_loop, until
from roquet.base.clock import SystemClock
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from auth_harness import Guarded
    from roquet.acl.credentials import Credentials

QUICK = {"transactionTimeOut": "50", "transactionCheckInterval": "50"}
HALVES = 4


@contextlib.asynccontextmanager
async def producer(it: Guarded, who: Credentials) -> AsyncGenerator[list[bytes]]:
    """Be a producer of group p; gives the half messages that it is asked about."""
    asked: list[bytes] = []

    def handle(request: Request) -> None:
        asked.append(request.command.body)

    route = Route((RequestCode.CHECK_TRANSACTION_STATE,), handle, "answers")
    client = Client(clock=SystemClock(), handlers=[route])
    await client.start()
    data = HeartbeatData(client_id=who.access_key, producers=("p",), consumers=())
    beat = who.sign(Command(RequestCode.HEART_BEAT, {}, data.encode()))
    try:
        assert (await client.call(it.broker.identity.address, beat, 20)).code == 0
        yield asked
    finally:
        await client.stop()


@on_loop
async def _changed(folder: Path) -> None:
    async with guarded(folder, autoCreateTopicEnable="true", **QUICK) as it:
        for who in (ANN, CLERK):
            await it.make(who)
            await it.allow(who, entry("Topic:t", "Pub"))
        assert (await it.call(send_command("t", b"made"))).code == 0
        async with producer(it, ANN) as former, producer(it, CLERK) as present:
            change = user_command(3002, "ann", {"password": "another-password"})
            assert await it.said(change) == (0, "")
            for number in range(HALVES):
                fields = {"UNIQ_KEY": f"key-{number}", "TRAN_MSG": "true", "PGROUP": "p"}
                text = "".join(f"{name}\x01{value}\x02" for name, value in fields.items())
                half = send_command("t", b"half-%d" % number, 0, text, f="4", a="p")
                assert (await it.call(half, CLERK)).code == 0
            await until(lambda: len(present) >= HALVES)
            assert not former


def test_connection_of_a_former_password_is_shown_no_half_message(tmp_path: Path) -> None:
    _changed(tmp_path)
