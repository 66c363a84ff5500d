"""A port that stops: calls under way end, those that wait for messages are cut short."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from tools.attack.grpc_client import Failed, GrpcClient

import http2_peer as http2
from grpc_calls import fronted, message, producer
from roquet.base.overriding import override
from roquet.proxy import messages as pb
from roquet.proxy.brokers.local import LocalBrokers
from roquet.proxy.front import Front
from roquet.proxy.rules.codes import Code
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import RECEIVE, SERVICE
from roquet.proxy.tls import GrpcPortTls
from roquet.proxy.transport import GrpcPort
from roquet.remoting.tls import TlsConfig
from roquet.testing.cluster import running_broker

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.proxy.rules.context import Head
    from roquet.proxy.services.public import Answer

ID = ("x-mq-client-id", "c")


class Held(Front):
    """A front whose calls wait for the test."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(LocalBrokers(broker.local), ProxyLimits(port=0))
        self.begun: list[str] = []
        self.may_end = asyncio.Event()

    @override
    async def serve(self, head: Head, data: bytes, answer: Answer) -> None:
        self.begun.append(head.path)
        await self.may_end.wait()
        await super().serve(head, data, answer)


def opened(stream: int, method: str, data: bytes) -> bytes:
    """Return a call that goes on."""
    whole = called(stream, method, data)
    return whole[: -9 - 5 - len(data)] + http2.frame(
        http2.DATA, stream, b"\x00" + len(data).to_bytes(4, "big") + data
    )


def called(stream: int, method: str, data: bytes) -> bytes:
    block = http2.headers(f"/{SERVICE}/{method}", ID)
    begin = http2.frame(http2.HEADERS, stream, block, http2.END_HEADERS)
    framed = b"\x00" + len(data).to_bytes(4, "big") + data
    return begin + http2.frame(http2.DATA, stream, framed, http2.END_STREAM)


def test_send_under_way_is_answered_before_the_port_closes_and_a_receive_is_not(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, changes={"brokerName": "b"}) as broker:
            front = Held(broker)
            clock = broker.local.clock
            tls = GrpcPortTls(TlsConfig(), clock, "the certificate of gRPC")
            port = GrpcPort(front, "127.0.0.1", ProxyLimits(port=0), tls, clock)
            await port.start()
            with http2.Peer.connect(port.port) as peer:
                data = pb.SendMessageRequest(messages=[message()]).SerializeToString()
                peer.send(called(1, "SendMessage", data), called(3, RECEIVE, b""))
                while len(front.begun) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                stopping = asyncio.create_task(port.stop())
                await asyncio.sleep(0.05)
                assert not stopping.done(), "the send is under way"
                front.may_end.set()
                await stopping
                payload = await asyncio.to_thread(peer.until, http2.DATA)
                assert payload is not None
                found = pb.SendMessageResponse.FromString(payload[5:])
                # The topic is not there; what counts is that the answer came.
                assert found.status.code == 40402
                assert await asyncio.to_thread(peer.until, http2.DATA) is None

    asyncio.run(main())


def test_clients_are_sent_away_and_served_until_they_have_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, changes={"brokerName": "b"}) as broker:
            front = Held(broker)
            tls = GrpcPortTls(TlsConfig(), broker.local.clock, "the certificate of gRPC")
            port = GrpcPort(front, "127.0.0.1", ProxyLimits(port=0), tls, broker.local.clock)
            await port.start()
            with http2.Peer.connect(port.port) as peer:
                data = pb.SendMessageRequest(messages=[message()]).SerializeToString()
                show = pb.TelemetryCommand(settings=producer()).SerializeToString()
                peer.send(opened(1, "Telemetry", show))
                shown = await asyncio.to_thread(peer.until, http2.DATA)
                assert shown is not None
                assert pb.TelemetryCommand.FromString(shown[5:]).HasField("settings")
                peer.send(called(3, "SendMessage", data))
                while not front.begun:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                stopping = asyncio.create_task(port.stop())
                told = await asyncio.to_thread(peer.until, http2.DATA)
                assert told is not None
                command = pb.TelemetryCommand.FromString(told[5:])
                assert command.HasField("reconnect_endpoints_command")
                # HTTP/2 says so as well; what it was asked before it had gone is served.
                assert await asyncio.to_thread(peer.until, http2.GO_AWAY) is not None
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port.port), timeout=20).close()
                peer.send(called(5, "SendMessage", data))
                while len(front.begun) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                front.may_end.set()
                for _ in range(2):
                    payload = await asyncio.to_thread(peer.until, http2.DATA)
                    assert payload is not None
                    found = pb.SendMessageResponse.FromString(payload[5:])
                    assert found.status.code == 40402
                await stopping

    asyncio.run(main())


def keep_sending(ports: list[int], name: str, is_over: threading.Event) -> list[str]:
    """Send one message after another with a client of both ports; return the outcomes."""
    outcomes = []
    target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    with GrpcClient(target, name, "localhost") as client:
        while not is_over.is_set():
            try:
                outcomes.append(str(client.send("Normal", [b"x"]).status.code))
            except Failed as failed:
                outcomes.append(str(failed))
    return outcomes


def test_no_call_fails_while_one_of_two_ports_stops(tmp_path: Path) -> None:
    """The client makes each call once: what a port does not serve, it has to say in time."""

    async def main() -> None:
        async with fronted(tmp_path) as calls:
            front = Front(LocalBrokers(calls.broker.local), ProxyLimits(port=0))
            tls = GrpcPortTls(TlsConfig(), calls.broker.local.clock, "the certificate of gRPC")
            rules, clock = ProxyLimits(port=0), calls.broker.local.clock
            other = GrpcPort(front, "127.0.0.1", rules, tls, clock)
            await other.start()
            ports = [calls.port.port, other.port]
            is_over = threading.Event()
            names = [f"sender-{number}" for number in range(4)]
            loads = [asyncio.to_thread(keep_sending, ports, name, is_over) for name in names]
            under_way = asyncio.gather(*loads)
            while calls.port.counts[0] < len(names):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await calls.port.stop()
            while other.counts[0] < len(names):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            is_over.set()
            found = {outcome for outcomes in await under_way for outcome in outcomes}
            assert found == {str(Code.OK.value)}
            await other.stop()

    asyncio.run(asyncio.wait_for(main(), 120))
