"""Connections that pop go from the threads of the core back to the loop, and nothing shows it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
from typing import TYPE_CHECKING

import pytest
import trustme
import uvloop

from broker_harness import dispatched, ext, records
from pop_harness import pop_command, popped
from remoting_harness import until
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.remoting.codec import decode, encode
from roquet.testing.cluster import cluster, pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from roquet.protocol.command import Command
    from roquet.testing.cluster import Cluster

FRAMES_A_ROUND = 12
LINES: list[Line] = []
"""Connections of the test that runs."""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(
    params=[("asyncio", ""), ("uvloop", ""), ("asyncio", "TLS"), ("uvloop", "TLS")], ids="-".join
)
def run(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    authority: trustme.CA,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., None]:
    """Run a broker with two threads under each loop, spoken to without TLS and with it."""
    loop, tls = request.param
    files: dict[str, str] = {}
    if tls:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        monkeypatch.setattr(Line, "tls", context)
        cert = tmp_path / "cert.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(cert))
        files = {"tls.server.certPath": str(cert)}

    def play(tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
        async def main() -> None:
            async with cluster(tmp_path, **{"ioThreads": "2", **files, **changes}) as it:
                it.broker.metadata.topics.put(
                    TopicConfig(name="orders", read_queues=4, write_queues=4)
                )
                await it.broker.metadata.topics.persist()
                try:
                    await tell(it)
                finally:
                    for line in LINES:
                        await line.close()
                    LINES.clear()

        factory = uvloop.new_event_loop if loop == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())

    return play


class Line:
    """A connection that asks many things at once; answers are kept by their number."""

    tls: ssl.SSLContext | None = None
    """What its bytes are sealed with, if anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._got = b""
        self.answers: dict[int, Command] = {}
        self.order: list[int] = []

    @staticmethod
    async def to(it: Cluster) -> Line:
        host, _, port = it.address.rpartition(":")
        line = Line(*await asyncio.open_connection(host, int(port), ssl=Line.tls))
        LINES.append(line)
        return line

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def write(self, commands: Iterable[Command], rng: random.Random | None = None) -> None:
        data = b"".join(map(encode, commands))
        if rng is None:
            self.writer.write(data)
            return
        while data:
            size = rng.choice((1, 7, 90, 400, 2_000))
            self.writer.write(data[:size])
            data = data[size:]
            if rng.random() < 0.4:
                await asyncio.sleep(0)

    async def read(self, *opaques: int) -> list[Command]:
        """Return the answers with these numbers; any other that comes is kept."""
        async with asyncio.timeout(20):
            while not self.answers.keys() >= set(opaques):
                data = await self._reader.read(1 << 18)
                assert data, "the broker has closed the connection"
                found, used = decode(self._got + data)
                self._got = (self._got + data)[used:]
                for answer in found:
                    assert answer.opaque not in self.answers, "a second answer"
                    self.answers[answer.opaque] = answer
                    self.order.append(answer.opaque)
        return [self.answers[opaque] for opaque in opaques]

    async def ask(self, command: Command) -> Command:
        await self.write([command])
        return (await self.read(command.opaque))[0]


def numbered(command: Command, opaque: int) -> Command:
    command.opaque = opaque
    return command


def plain(number: int, queue_id: int = 0) -> Command:
    return send_command("orders", b"body %d" % number, queue_id, f"UNIQ_KEY\x01U{number}\x02")


def on_threads(it: Cluster) -> int:
    net = it.broker.path.connections._net
    assert net is not None
    return sum(net.connections())


def counted(it: Cluster, name: str) -> int:
    return it.broker.path.native.counters()[name]


def returned(it: Cluster) -> int:
    return it.broker.path.connections.returned


def test_connection_that_pops_goes_back_to_the_loop_once_and_stays_there(
    run: Callable[..., None],
) -> None:
    async def tell(it: Cluster) -> None:
        sender, popper = await Line.to(it), await Line.to(it)
        for number in range(4):
            assert (await sender.ask(numbered(plain(number, number), number))).code == 0
        await dispatched(it)
        found = popped(await popper.ask(numbered(pop_command(), 1)))
        assert len(found.bodies) == 4
        await until(lambda: returned(it) == 1)
        assert on_threads(it) == 1
        for opaque in range(2, 40):
            answer = await popper.ask(numbered(pop_command(), opaque))
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer
        assert (await popper.ask(numbered(plain(9), 50))).code == 0
        assert (await popper.ask(numbered(pull_command("orders"), 51))).code == 0
        assert returned(it) == 1
        assert it.broker.listeners._main.connections == 2
        popper.writer.close()
        await until(lambda: it.broker.listeners._main.connections == 1)
        assert it.broker.path.on_loop == 0

    run(tell)


def test_requests_before_at_and_behind_the_first_pop_are_all_answered_however_they_are_cut(
    run: Callable[..., None],
) -> None:
    async def tell(it: Cluster) -> None:
        rng = random.Random(7)
        sent = 0
        for _ in range(12):
            line = await Line.to(it)
            commands: list[Command] = []
            first = rng.randrange(FRAMES_A_ROUND)
            for opaque in range(3 * FRAMES_A_ROUND):
                kind = rng.randrange(4) if opaque != first else 3
                if kind < 2 or opaque < first:
                    command = plain(sent, 1)
                    sent += 1
                elif kind == 2:
                    command = pull_command("orders", queueId="1")
                else:
                    command = pop_command(queueId="0")
                commands.append(numbered(command, opaque))
            await line.write(commands, rng)
            answers = await line.read(*range(len(commands)))
            assert {answer.code for answer in answers} <= {
                0,
                ResponseCode.POLLING_TIMEOUT,
                ResponseCode.PULL_NOT_FOUND,
            }
            sends = [one for one in commands if one.code != RequestCode.PULL_MESSAGE]
            offsets = [
                int(ext(line.answers[one.opaque])["queueOffset"])
                for one in sends
                if one.code != RequestCode.POP_MESSAGE
            ]
            # What one connection sends to one queue lies there in its order.
            assert offsets == sorted(offsets)
            line.writer.close()
        await until(lambda: not it.broker.listeners._main.connections)
        assert returned(it) == 12
        await dispatched(it)
        line = await Line.to(it)
        bodies: list[bytes] = []
        while len(bodies) < sent:
            pull = pull_command("orders", len(bodies), queueId="1")
            found = records(await line.ask(numbered(pull, len(bodies))))
            assert found
            bodies += [record.body for record in found]
        assert bodies == [b"body %d" % number for number in range(sent)]
        line.writer.close()

    run(tell)


def test_held_pulls_and_pops_go_on_waiting_when_their_connection_goes_back(
    run: Callable[..., None],
) -> None:
    async def tell(it: Cluster) -> None:
        line, other = await Line.to(it), await Line.to(it)
        await line.ask(numbered(plain(0, 0), 1))
        await dispatched(it)
        pulls, opaque = counted(it, "pulls"), 100
        while counted(it, "pulls") == pulls:
            opaque += 1
            await other.ask(numbered(pull_command("orders"), opaque))
        held = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
        for queue_id in range(1, 4):
            pull = pull_command("orders", queueId=str(queue_id), **held)
            await line.write([numbered(pull, 10 + queue_id)])
        await until(lambda: it.broker.path.held_pulls == 3)
        await line.write([numbered(pop_command(queueId="3", pollTime="15000"), 20)])
        await until(lambda: returned(it) == 1)
        assert it.broker.path.held_pulls == 3
        assert line.answers.keys() == {1}
        for queue_id in (1, 2, 3):
            assert (await other.ask(numbered(plain(queue_id, queue_id), queue_id))).code == 0
        found = await line.read(11, 12, 13, 20)
        assert [records(one)[0].body for one in found[:3]] == [b"body 1", b"body 2", b"body 3"]
        assert popped(found[3]).bodies == [b"body 3"]
        assert it.broker.path.held_pulls == 0

    run(tell)


@pytest.mark.parametrize("leaves", ["closes", "resets"])
def test_peer_that_leaves_while_it_goes_back_leaves_nothing_behind(
    run: Callable[..., None], leaves: str
) -> None:
    async def tell(it: Cluster) -> None:
        host, _, port = it.address.rpartition(":")
        rng = random.Random(11)
        for round_ in range(150):
            peer = await asyncio.to_thread(socket.create_connection, (host, int(port)))
            if Line.tls is not None:
                peer = await asyncio.to_thread(Line.tls.wrap_socket, peer, server_hostname=host)
            if leaves == "resets":
                linger = struct.pack("ii", 1, 0)
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            frames = [plain(round_), pop_command(pollTime="15000"), plain(round_)]
            peer.sendall(b"".join(encode(numbered(one, at)) for at, one in enumerate(frames)))
            await asyncio.sleep(rng.choice((0, 0, 0.0005, 0.001, 0.003)))
            peer.close()
        await until(lambda: not it.broker.listeners._main.connections)
        await until(lambda: not on_threads(it) and it.broker.path.on_loop == 0)
        assert not it.broker.path.connections._connections
        assert len(it.broker.path.connections._tasks) == 0
        assert it.broker.listeners._main.in_hand == 0
        assert it.broker.listeners._main.bytes_kept == 0

    run(tell)


def test_many_connections_go_back_and_are_counted_until_they_end(
    run: Callable[..., None],
) -> None:
    async def tell(it: Cluster) -> None:
        lines = [await Line.to(it) for _ in range(1_000 if Line.tls is None else 100)]
        for opaque in (1, 2):
            for line in lines:
                await line.write([numbered(pop_command(), opaque)])
            for line in lines:
                (answer,) = await line.read(opaque)
                assert answer.code == ResponseCode.POLLING_TIMEOUT
        await until(lambda: returned(it) == len(lines))
        assert it.broker.listeners._main.connections == len(lines)
        assert on_threads(it) == 0
        assert it.broker.path.on_loop == len(lines)
        for line in lines:
            line.writer.close()
        await until(lambda: not it.broker.listeners._main.connections)
        assert it.broker.path.on_loop == 0

    run(tell)


def test_start_of_a_frame_behind_a_pop_is_kept_when_the_connection_goes_back(
    run: Callable[..., None],
) -> None:
    async def tell(it: Cluster) -> None:
        line = await Line.to(it)
        frame = encode(numbered(plain(1), 2))
        for cut in (1, 4, 60, len(frame) - 1):
            line = await Line.to(it)
            before = returned(it)
            line.writer.write(encode(numbered(pop_command(), 1)) + frame[:cut])
            assert (await line.read(1))[0].code in (0, ResponseCode.POLLING_TIMEOUT)
            await until(lambda before=before: returned(it) == before + 1)
            line.writer.write(frame[cut:])
            assert (await line.read(2))[0].code == 0
            line.writer.close()

    run(tell)
