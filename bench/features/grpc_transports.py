"""CPU of a broker per message over gRPC: the native transport, and grpcio before the same front.

    python -m bench.features.grpc_transports [--messages 4000]

Needs `grpcio` (see `requirements/grpc-client.txt`), which the product does not. The client
and the server are processes of their own; the figure is the CPU of the server's process.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from roquet.model.topic import TopicConfig
from roquet.proxy import messages as pb
from roquet.proxy.app import build_local
from roquet.proxy.rules.context import Head
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import RECEIVE, SERVICE
from roquet.testing.cluster import running_broker

METADATA = (("x-mq-client-id", "bench"), ("x-mq-client-version", "5.1.2"))
BODY = bytes(1024)
LARGE_FILES = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "mappedFileSizeConsumeQueue": str(6_000_000),
}


class Parts:
    """An answer that grpcio sends."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: bytes) -> bool:
        """Keep a message."""
        self.parts.put_nowait(message)
        return True

    def finish(self, status: int, text: str) -> None:
        """Note the end."""
        assert status == 0, text
        self.parts.put_nowait(None)


def handler_of(grpc: Any, front: Any) -> Any:
    """Return what hands the calls of grpcio to a front."""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            head = Head(
                path=details.method,
                remote="127.0.0.1:40001",
                local="127.0.0.1:8081",
                authority="localhost:8081",
                metadata=[(key, value) for key, value in details.invocation_metadata],
            )

            async def one(request: bytes, _: Any) -> bytes | None:
                answer = Parts()
                await front.serve(head, request, answer)
                return answer.parts.get_nowait()

            async def several(request: bytes, _: Any) -> Any:
                answer = Parts()
                await front.serve(head, request, answer)
                while (part := await answer.parts.get()) is not None:
                    yield part

            if details.method.endswith(RECEIVE):
                return grpc.unary_stream_rpc_method_handler(several)
            return grpc.unary_unary_rpc_method_handler(one)

    return Handler()


async def serve(transport: str, folder: Path) -> None:
    """Run a broker with its front; say the port."""
    async with running_broker(folder, changes=LARGE_FILES) as broker:
        broker.metadata.topics.put(TopicConfig(name="Bench", read_queues=4, write_queues=4))
        built = build_local(broker.local, "127.0.0.1", ProxyLimits(port=0))
        async with built.app:
            port = built.port.port
            if transport == "grpcio":
                grpc = importlib.import_module("grpc")
                server: Any = grpc.aio.server()
                server.add_generic_rpc_handlers((handler_of(grpc, built.front),))
                port = server.add_insecure_port("127.0.0.1:0")
                await server.start()
            print(port, flush=True)
            await asyncio.Event().wait()


def cpu_s(pid: int) -> float:
    """Return the CPU that a process has had, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(port: int, pid: int, at_once: int, count: int) -> tuple[float, float]:
    """Send and receive `count` messages; return µs of CPU a message of each."""
    grpc = importlib.import_module("grpc")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        send = channel.unary_unary(f"/{SERVICE}/SendMessage")
        ack = channel.unary_unary(f"/{SERVICE}/AckMessage")
        receive = channel.unary_stream(f"/{SERVICE}/{RECEIVE}")
        message = pb.Message(body=BODY)
        message.topic.name = "Bench"
        message.system_properties.message_id = "0" * 34
        request = pb.SendMessageRequest(messages=[message]).SerializeToString()

        async def sends(rounds: int) -> None:
            for _ in range(rounds):
                answer = pb.SendMessageResponse.FromString(await send(request, metadata=METADATA))
                assert answer.status.code == 20000, answer.status

        await sends(200)
        began = cpu_s(pid)
        await asyncio.gather(*(sends(count // at_once) for _ in range(at_once)))
        sent_us = (cpu_s(pid) - began) / count * 1e6
        wanted = receive_request().SerializeToString()
        taken = 0
        began = cpu_s(pid)
        while taken < count:
            acks = pb.AckMessageRequest()
            acks.topic.name, acks.group.name = "Bench", "bench"
            async for data in receive(wanted, metadata=METADATA):
                part = pb.ReceiveMessageResponse.FromString(data)
                if part.WhichOneof("content") == "message":
                    handle = part.message.system_properties.receipt_handle
                    acks.entries.add(message_id="m", receipt_handle=handle)
            taken += len(acks.entries)
            answer = pb.AckMessageResponse.FromString(
                await ack(acks.SerializeToString(), metadata=METADATA)
            )
            assert answer.status.code == 20000, answer.status
        return sent_us, (cpu_s(pid) - began) / taken * 1e6


def receive_request() -> Any:
    """Return a request for 32 messages."""
    request = pb.ReceiveMessageRequest(batch_size=32)
    request.group.name = "bench"
    request.message_queue.topic.name = "Bench"
    request.message_queue.id = -1
    request.filter_expression.expression = "*"
    request.invisible_duration.seconds = 60
    request.long_polling_timeout.seconds = 5
    return request


def main() -> None:
    """Measure both, with one and with 16 sends in flight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--serve", choices=("native", "grpcio"))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(options.serve, options.folder))
        return
    for transport in ("grpcio", "native"):
        for at_once in (1, 16):
            measure(transport, at_once, options.messages)


def measure(transport: str, at_once: int, count: int) -> None:
    """Run a server, and say what its messages cost."""
    with tempfile.TemporaryDirectory(prefix="roquet-grpc-") as folder:
        what = ["--serve", transport, "--folder", folder]
        command = [sys.executable, "-m", "bench.features.grpc_transports", *what]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            figures = asyncio.run(load(port, server.pid, at_once, count))
            server.terminate()
    sent, received = (f"{figure:.0f}" for figure in figures)
    print(f"{transport}, {at_once} in flight: us of CPU: send {sent}, receive and ack {received}")


if __name__ == "__main__":
    main()
