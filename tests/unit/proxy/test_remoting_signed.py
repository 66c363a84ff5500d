"""Accounts and TLS at the proxy's remoting port: what a client signs is judged by the broker."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from auth_harness import ANN, INNER, STRANGER, entry, guarded
from interop_world import issue_certificate
from remoting_harness import on_loop, until
from remoting_proxy_harness import proxy, proxy_client, until_so
from roquet.base.clock import SystemClock
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.remoting.tls import TlsConfig, TlsOptions, client_tls
from roquet.testing.cluster import cluster, running_name_server, send_command

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "Allowed"


@on_loop
async def _judged(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        names = await stack.enter_async_context(running_name_server(folder / "n"))
        address = f"127.0.0.1:{names.server.port}"
        it = await stack.enter_async_context(guarded(folder, namesrvAddr=address))
        for topic in (TOPIC, "Other"):
            assert (await it.call(send_command(topic, b"made"))).code == 0
        await it.make(ANN)
        # Her own topic and group and nothing else.
        await it.allow(ANN, entry(f"Topic:{TOPIC}", "Pub", "Sub"), entry("Group:readers", "Sub"))
        door = await stack.enter_async_context(proxy(address, credentials=INNER))
        await until(lambda: TOPIC in names.table.topics and "Other" in names.table.topics)
        ann = await stack.enter_async_context(proxy_client(door, sign=ANN.sign))
        assert {it.broker_name for it in (await ann.route(TOPIC)).brokers} == {"broker-a"}
        assert (await ann.beat("ann@1", "readers", TOPIC)).code == 0
        assert (await ann.send(TOPIC)).code == 0

        async def received() -> bool:
            return b"made" in (await ann.pull(TOPIC)).body

        await until_so(received)
        assert await ann.members("readers") == ["ann@1"]
        for refused in (
            await ann.send("Other"),
            await ann.pull("Other"),
            await ann.pull(TOPIC, consumerGroup="others"),
        ):
            assert refused.code == 16, refused
        for sign in (STRANGER.sign, None):
            stranger = await stack.enter_async_context(proxy_client(door, sign=sign))
            for refused in (await stranger.send(TOPIC), await stranger.pull(TOPIC)):
                assert refused.code == 16, refused
            beaten = await stranger.beat("stranger@1", "readers", TOPIC)
            assert beaten.code == 16, beaten
        # Nobody's request borrows the account of the proxy, which may do everything.
        assert await ann.members("readers") == ["ann@1"]


def test_brokers_judge_the_account_that_signed_the_request(tmp_path: Path) -> None:
    _judged(tmp_path)


@on_loop
async def _secret(folder: Path) -> None:
    files = issue_certificate(folder / "tls")
    rules = TlsConfig(
        server_cert=files["tls.server.certPath"], server_key=files["tls.server.keyPath"]
    )
    async with cluster(folder) as it, proxy(it.name_servers, tls=rules) as door:
        assert (await it.send(TOPIC)).code == 0
        options = TlsOptions(ca=str(folder / "tls" / "ca.pem"))
        client = Client(clock=SystemClock(), tls=client_tls(options, SystemClock()))
        await client.start()
        try:
            where = f"127.0.0.1:{door.server.port}"
            command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
            assert (await client.call(where, command, 20.0)).code == 0
            sent = await client.call(where, send_command(TOPIC, b"x", n="broker-a"), 20.0)
            assert sent.code == 0
        finally:
            await client.stop()


def test_clients_may_speak_tls_to_the_proxy(tmp_path: Path) -> None:
    _secret(tmp_path)
