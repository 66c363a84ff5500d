"""The relay as a process of its own: its command line, kill -9, a thousand servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from relay_harness import ECHO, Pki, World, looped, until, world
from roquet.cli.app import run
from roquet.protocol.command import Command, reply_to
from roquet.relay.codes import RelayCode
from roquet.relay.peers import packets
from roquet.relay.peers.links import tls_to_servers
from roquet.remoting.codec import encode
from roquet.roquet_native import decode_frames
from roquet.service.process.runtime import raise_open_files
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


SOURCES = Path(__file__).parents[3] / "src"
RECONNECT_MS = 10_000


def written(made: World, **settings: object) -> Path:
    """Write a relay.toml."""
    values: dict[str, object] = {
        "http_port": 0,
        "config_url": made.config_server.url,
        "config_copy": str(made.folder / "copy.json"),
        "reconnect_ms": RECONNECT_MS,
        **settings,
    }
    file = made.folder / "relay.toml"
    lines = [f"{key} = {value!r}".replace("'", '"') for key, value in values.items()]
    file.write_text("\n".join(lines).replace("True", "true"))
    return file


@contextlib.asynccontextmanager
async def process(file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `roquet relay` until its boot line, and kill it at the end."""
    errors = file.with_suffix(".err")
    with errors.open("wb") as stderr:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "roquet", "relay", "-c", str(file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
        )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = await child.stdout.readline()
        assert line.startswith(b"The Relay boot success. 4 workers"), errors.read_text() or line
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@looped
async def test_after_kill_9_the_fleet_is_whole_within_twice_reconnect_ms(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for number in range(1, 6):
            await made.node(number, 3)
        made.publish()
        file = written(made)
        async with process(file) as child:
            await made.whole()
            await until((made.folder / "copy.json").exists)
            child.send_signal(signal.SIGKILL)
            await until(lambda: not any(node.is_ready for node in made.nodes.values()))
        await made.config_server.stop()
        async with process(file), asyncio.timeout(2 * RECONNECT_MS / 1000):
            await made.whole()
            assert await made.nodes[1].request(5, ECHO, b"x") == b"5:x"


@looped
async def test_tls_on_the_loop_of_the_product(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    port = free_port(random.Random())
    async with world(tmp_path) as made:
        one = await made.node(1, 3, tls=pki.server())
        tls = tls_to_servers(pki.ca, pki.cert, pki.key)
        two = await made.node(2, 3, relay=f"127.0.0.1:{port}", tls=tls)
        made.publish()
        async with process(written(made, inbound=True, inbound_port=port, **pki.settings)):
            await made.whole()
            big = random.Random(1).randbytes(900_000)
            answers = await asyncio.gather(*(one.request(2, ECHO, big) for _ in range(10)))
            assert all(answer == b"2:" + big for answer in answers)
            assert await two.request(1, ECHO, b"x") == b"1:x"


@looped
async def test_sigterm_ends_it_in_good_order(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        node = await made.node(1, 3)
        made.publish()
        async with process(written(made, inbound=True, inbound_port=0)) as child:
            await node.ready()
            child.send_signal(signal.SIGTERM)
            assert await child.wait() == 0
            await until(lambda: not node.is_ready)


class Cheap(asyncio.Protocol):
    """An inner server that costs little: it registers, and keeps whom it is told of."""

    def __init__(self, server_id: int, known: dict[int, set[int]]) -> None:
        self.server_id = server_id
        self.known = known
        self.kept = b""
        self.transport: asyncio.Transport

    # typing.override came with Python 3.12.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        data = self.kept + data
        frames, used = decode_frames(data)
        self.kept = data[used:]
        for _, code, flag, _, _, opaque, _, ext, body in frames:
            command = Command(code, ext, body, flag=flag, opaque=opaque)
            if code == RelayCode.REGISTER:
                answer = packets.Registered(
                    server_id=self.server_id, max_online=0, nonce="", proof=""
                )
                self.transport.write(encode(reply_to(command, ext=packets.registered_ext(answer))))
            elif code == RelayCode.SERVER_MAP:
                self.known[self.server_id] = set(packets.read_server_map(command))
            elif code == RelayCode.NEW_SERVER:
                self.known[self.server_id].add(int((ext or {})["id"]))


@pytest.mark.timeout(300)
@looped
async def test_a_thousand_servers_register_and_know_each_other(tmp_path: Path) -> None:
    raise_open_files()
    count = 1_000
    known: dict[int, set[int]] = {}
    loop = asyncio.get_running_loop()

    def is_whole() -> bool:
        return len(known) == count and all(len(one) == count - 1 for one in known.values())

    async with world(tmp_path) as made:
        entries: list[dict[str, Any]] = []
        for number in range(1, count + 1):
            server = await loop.create_server(lambda n=number: Cheap(n, known), "127.0.0.1", 0)  # type: ignore[misc]
            made.stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            entries.append({"id": number, "type": 1, "host": "127.0.0.1", "port": port})
        made.publish(*entries)
        async with process(written(made)):
            await until(is_whole, 280)
            assert not any(number in others for number, others in known.items())


def test_explain_and_a_wrong_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "relay.toml"
    file.write_text("workers = 2\n")
    assert run(["relay", "-c", str(file), "--explain"]) == 0
    said = capsys.readouterr().out
    assert "worker-1" in said
    assert "tick_reconnect" in said
    assert run(["relay", "-c", str(file), "-s", "workers=0"]) == 254
    assert capsys.readouterr().err == (
        "roquet: workers = '0' (flag): must be an integer within 1..1024\n"
    )
    assert run(["relay", "-s", "workers"]) == 254
    assert "it should look like reconnect_ms=3000" in capsys.readouterr().err
