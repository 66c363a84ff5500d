"""Bad input B1-B6 and B19 on real sockets: the rude one is closed, nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest

import remoting_harness
from remoting_harness import BIG, ECHO, LATER, SLOW, SOON, ask, calling, serving, until
from roquet.base.errors import OutcomeUnknown
from roquet.protocol.command import FLAG_RESPONSE, Command, reply_to
from roquet.remoting.codec import encode
from roquet.remoting.connections.ingest import FeedResult, PlainIngest
from roquet.remoting.server import ServerConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from roquet.remoting.connections.limits import Standing


@pytest.fixture(params=[0, 2], ids=["loop", "threads"], autouse=True)
def _io_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with connections that the loop serves, and with those of threads."""
    monkeypatch.setattr(remoting_harness, "IO_THREADS", request.param)


JSON_OK = b'{"code":10,"flag":0,"language":"JAVA","opaque":1,"version":513}'


def frame(
    header: bytes, *, kind: int = 0, header_size: int | None = None, total: int = -1
) -> bytes:
    size = len(header) if header_size is None else header_size
    length = 4 + len(header) if total < 0 else total
    return struct.pack(">iI", length, (kind << 24) | size) + header


def binary(ext: bytes = b"", *, remark: int = 0, ext_size: int | None = None) -> bytes:
    size = len(ext) if ext_size is None else ext_size
    header = struct.pack(">hbhii", 10, 0, 513, 1, 0) + struct.pack(">ii", remark, size) + ext
    return frame(header, kind=1)


B1 = [
    struct.pack(">i", 0) + bytes(8),
    struct.pack(">i", 1) + bytes(8),
    struct.pack(">i", 3) + bytes(8),
    struct.pack(">i", -1) + bytes(8),
    struct.pack(">i", 2**31 - 1) + bytes(8),
    struct.pack(">i", 16 * 1024 * 1024 - 3) + bytes(8),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"SSH-2.0-OpenSSH_9.6\r\n",
]
B2 = [
    frame(JSON_OK, header_size=len(JSON_OK) + 1),
    frame(JSON_OK, header_size=0),
    frame(JSON_OK, header_size=0xFFFFFF),
    *(frame(JSON_OK, kind=kind) for kind in (2, 3, 127, 128, 255)),
]
B3 = [
    binary(remark=-1),
    binary(struct.pack(">h", -1) + b"k" + struct.pack(">i", 1) + b"v"),
    binary(struct.pack(">h", 1) + b"k" + struct.pack(">i", 100) + b"v"),
    binary(struct.pack(">h", 1) + b"k" + struct.pack(">i", -1) + b"v"),
    binary(b"", ext_size=50),
    binary(struct.pack(">h", 1) + b"k" + struct.pack(">i", 1) + b"v" + b"odd"),
]
B4 = [
    frame(b"[" * 100_000),
    frame(b'{"a":' * 100_000),
    frame(b'{"code":10,"opaque":%s}' % (b"9" * 5000)),
    frame(b'{"code":NaN}'),
    frame(b"[]"),
    frame(b'"text"'),
    frame(b"null"),
    frame(b"{code:10}"),
    frame(b'{"code":10} {}'),
    frame(b'{"code":1099511627776}'),
    frame(b'{"code":10,"extFields":{%s}}' % b",".join(b'"k%d":"v"' % n for n in range(20_000))),
]


@pytest.mark.parametrize("bad", [*B1, *B2, *B3, *B4], ids=lambda b: repr(b[:24]))
def test_b1_b2_b3_b4_3474_broken_frame_closes_only_its_connection(
    bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            await client.call(running.address, Command(ECHO))
            raw = await running.raw()
            raw.write(bad)
            assert await raw.is_closed()
            assert (await client.call(running.address, Command(ECHO, body=b"fine"))).body == b"fine"
            # The peer may see the end before the server has done with it.
            await until(lambda: running.server.connections == 1)
            await until(lambda: running.server.bytes_kept == 0)
            await raw.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len([r for r in caplog.records if r.name.startswith("roquet")]) == 1
    assert "127.0.0.1" in caplog.text


def test_good_frames_before_a_broken_one_are_served() -> None:
    async def main() -> None:
        async with serving() as running:
            raw = await running.raw()
            raw.write(ask(ECHO, 1) + ask(ECHO, 2) + B1[0])
            assert [(await raw.read()).opaque for _ in range(2)] == [1, 2]
            assert await raw.is_closed()
            await raw.close()

    asyncio.run(main())


def test_broken_frames_are_logged_once_a_peer(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving(clock=clock) as running:
            for wait_s in (0, 0, 0, 0, 11):
                await clock.advance(wait_s)
                raw = await running.raw()
                raw.write(B1[0])
                assert await raw.is_closed()
                await raw.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert len(caplog.records) == 2
    assert "3 more" in caplog.records[1].getMessage()


def test_b1_declared_length_is_not_allocated() -> None:
    async def main() -> None:
        async with serving() as running:
            raws = [await running.raw() for _ in range(20)]
            tracemalloc.start()
            for raw in raws:
                raw.write(struct.pack(">ii", 16_000_000, 100) + b"{")
            await until(lambda: running.server.bytes_kept == 20 * 9)
            size, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert size < peak < 1_000_000
            for raw in raws:
                await raw.close()
            await until(lambda: running.server.bytes_kept == 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    "said", [b"\x15\x03\x03\x00\x02\x02\x28", b"\x15\x03\x01\x00\x02\x02\x46" * 3, B1[4]]
)
def test_kip_498_cve_2022_34917_a_client_takes_no_alert_of_tls_for_a_length(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that wants TLS answers a plain client so: as a length it is 336 MiB."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answers, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, calling() as client:
            tracemalloc.start()
            with pytest.raises(OutcomeUnknown, match="closed"):
                await client.call(f"127.0.0.1:{port}", Command(ECHO), 60.0)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 1_000_000
            assert client.connected() == []

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert f"is {int.from_bytes(said[:4], 'big')}, at most" in caplog.text


def test_b6_unasked_answers_are_ignored_and_equal_opaques_both_answered() -> None:
    async def main() -> None:
        async with serving() as running:
            raw = await running.raw()
            raw.write(encode(Command(0, opaque=5, flag=FLAG_RESPONSE)))
            raw.write(ask(SOON, 7, b"a") + ask(SOON, 7, b"b"))
            answers = [await raw.read() for _ in range(2)]
            assert [a.opaque for a in answers] == [7, 7]
            assert sorted(a.body for a in answers) == [b"a", b"b"]
            await raw.close()

    asyncio.run(main())


def test_b19_reader_that_never_reads_stops_only_itself() -> None:
    async def main() -> None:
        config = ServerConfig(high_water=100_000)
        async with serving(config) as running, calling() as client:
            raw = await running.raw()
            raw.write(b"".join(ask(BIG, n) for n in range(500)))
            await until(lambda: any(link.is_stuck for link in running.server._connections.values()))
            assert (await client.call(running.address, Command(ECHO, body=b"ok"))).body == b"ok"
            # It is stuck for good once the buffers of both sockets are full, a few megabytes each.
            seen = len(running.handlers.seen)
            assert seen < 50, "what the peer does not take is not even computed"
            assert running.server.bytes_kept < 8_000_000
            # As soon as it reads, everything comes.
            assert [(await raw.read()).opaque for n in range(500)] == list(range(500))
            await raw.close()

    asyncio.run(main())


def test_peer_that_makes_us_keep_too_much_is_closed() -> None:
    async def main() -> None:
        config = ServerConfig(high_water=10_000, connection_bytes_max=4_000_000)
        async with serving(config) as running:
            raw = await running.raw()
            raw.write(b"".join(ask(LATER, n) for n in range(20)))
            await until(lambda: len(running.handlers.parked) == 20)
            for request in running.handlers.parked:
                request.reply(reply_to(request.command, body=bytes(1_000_000)))
            await until(lambda: running.closed)
            assert running.server.bytes_kept == 0
            await raw.close()

    asyncio.run(main())


def test_requests_in_hand_are_bounded() -> None:
    async def main() -> None:
        config = ServerConfig(in_hand_max=1_000_000)
        async with serving(config) as running:
            raw = await running.raw()
            body = bytes(100_000)
            sending = asyncio.create_task(_send(raw, [ask(SLOW, n, body) for n in range(200)]))
            await until(lambda: len(running.handlers.seen) >= 10)
            await asyncio.sleep(0.05)
            # The rest waits in the sockets' buffers, or unread.
            assert len(running.handlers.seen) <= 15
            running.handlers.gate.set()
            assert [(await raw.read()).opaque for n in range(200)] == list(range(200))
            await sending
            await raw.close()

    asyncio.run(main())


async def _send(raw: object, frames: list[bytes]) -> None:
    for data in frames:
        raw.write(data)  # type: ignore[attr-defined]
        await raw.drain()  # type: ignore[attr-defined]


def test_idle_and_silent_connections_are_closed() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving(ServerConfig(), clock) as running:
            busy, idle = await running.raw(), await running.raw()
            for raw in (busy, idle):
                raw.write(ask(ECHO))
                await raw.read()
            await clock.advance(60)
            busy.write(ask(ECHO))
            await busy.read()
            await clock.advance(59)
            assert running.server.connections == 2
            await clock.advance(3)
            assert await idle.is_closed()
            assert [p.is_open for p in running.closed] == [False]
            busy.write(ask(ECHO))
            assert (await busy.read()).code == 0
            for raw in (busy, idle):
                await raw.close()

    asyncio.run(main())


def test_server_without_pressure_keeps_silent_connections_as_long_as_idle_ones() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving(ServerConfig(), clock) as running:
            late, silent = await running.raw(), await running.raw()
            await until(lambda: running.server.connections == 2)
            await clock.advance(60)
            clock.set_by(3600)
            await clock.advance(58)
            late.write(ask(ECHO))
            assert (await late.read()).code == 0
            assert running.server.connections == 2
            await clock.advance(5)
            assert await silent.is_closed()
            assert running.server.connections == 1
            for raw in (late, silent):
                await raw.close()

    asyncio.run(main())


def test_server_under_pressure_closes_silent_connections_after_seconds() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving(ServerConfig(connections_max=6), clock) as running:
            silent, other = await running.raw(), await running.raw()
            other.write(ask(ECHO))
            await other.read()
            await clock.advance(20)
            assert running.server.connections == 2
            third = await running.raw()
            await until(lambda: running.server.connections == 3)
            await clock.advance(1)
            assert await silent.is_closed()
            # Two of six are no pressure any more.
            await clock.advance(20)
            third.write(ask(ECHO))
            assert (await third.read()).code == 0
            for raw in (silent, other, third):
                await raw.close()

    asyncio.run(main())


def test_a_peer_that_reads_nothing_loses_its_descriptor_after_the_idle_time() -> None:
    """Also with less unsent than the high-water mark: a close waits until all is written."""

    async def main() -> None:
        clock = FakeClock()
        async with serving(ServerConfig(high_water=64 << 20), clock) as running:
            with socket.socket() as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                peer.connect(("127.0.0.1", running.server.port))
                for number in range(12):
                    data = ask(ECHO, number, bytes(1 << 20))
                    await asyncio.to_thread(peer.sendall, data)
                await until(lambda: running.server.in_hand == 0)

                async def passing() -> None:
                    # What it takes, it may take a little later than the handlers are done.
                    while running.server.connections:
                        await clock.advance(1)
                        await asyncio.sleep(0.001)

                await asyncio.wait_for(passing(), 30.0)

    asyncio.run(main())


@pytest.mark.parametrize("set_by_s", [3600, -3600, 10 * 365 * 86_400])
def test_a_clock_that_is_set_ends_no_connection(set_by_s: int) -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving(ServerConfig(), clock) as running:
            raw = await running.raw()
            raw.write(ask(ECHO))
            await raw.read()
            await clock.advance(2)
            clock.set_by(set_by_s)
            await clock.advance(2)
            raw.write(ask(ECHO))
            assert (await raw.read()).code == 0
            # Silence is still found, and after the same time.
            await clock.advance(118)
            assert running.server.connections == 1
            await clock.advance(5)
            assert await raw.is_closed()
            await raw.close()

    asyncio.run(main())


def test_b19_caps_on_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(ServerConfig(connections_per_address_max=2)) as running:
            raws = [await running.raw() for _ in range(3)]
            assert await raws[2].is_closed()
            await raws[2].close()
            for raw in raws[:2]:
                raw.write(ask(ECHO))
                await raw.read()
                await raw.close()
            await until(lambda: running.server.connections == 0)
        async with serving(ServerConfig(connections_max=2)) as running:
            raws = [await running.raw() for _ in range(3)]
            raws[2].write(ask(ECHO, 9))
            assert not await raws[2].is_closed(0.05), "it waits to be accepted"
            assert running.server.connections == 2
            await raws[0].close()
            assert (await raws[2].read()).opaque == 9
            for raw in raws[1:]:
                await raw.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "too many connections" in caplog.text
    assert "accepting paused" in caplog.text


def test_b19_who_connects_too_fast_is_closed_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        clock = FakeClock()
        config = ServerConfig(accepts_per_second_max=10, connections_per_address_max=20)
        async with serving(config, clock) as running:

            async def come(count: int) -> int:
                """Connect, ask and leave; return how many were answered."""
                answered = 0
                for _ in range(count):
                    raw = await running.raw()
                    raw.write(ask(ECHO))
                    with contextlib.suppress(OSError, EOFError):
                        answered += (await raw.read()).code == 0
                    await raw.close()
                    await until(lambda: running.server.connections == 0)
                return answered

            assert await come(25) == 20
            assert await come(1) == 0
            await clock.advance(0.5)
            assert await come(8) == 5
            await clock.advance(3600)
            assert await come(1) == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["127.0.0.1 connects too fast: one was closed"], "within ten seconds"


def test_b19_slow_talkers_keep_nobody_waiting() -> None:
    """Headers that come byte by byte cost what has come, and an end after the idle time."""

    async def main() -> None:
        clock = FakeClock()
        async with serving(clock=clock) as running, calling() as client:
            raws = [await running.raw() for _ in range(50)]
            whole = ask(ECHO)
            for at in range(4):
                for raw in raws:
                    raw.write(whole[at : at + 1])
                    await raw.drain()
                await clock.advance(10)
                answer = await client.call(running.address, Command(ECHO, body=b"quick"))
                assert answer.body == b"quick"
            await until(lambda: running.server.bytes_kept == 50 * 4)
            await clock.advance(125)
            for raw in raws:
                assert await raw.is_closed()
                await raw.close()
            await until(lambda: running.server.bytes_kept == 0)

    asyncio.run(main())


class Stopping:
    """Stops at every frame, as a fast path does in front of a barrier."""

    def __init__(self) -> None:
        self._plain = PlainIngest()
        self._waiting: list[Command] = []

    def open(self, key: int, address: str) -> None:
        self._plain.open(key, address)

    def idle(self, key: int) -> None:
        self._plain.idle(key)

    def feed(self, key: int, data: memoryview, now_ms: int, fd: int | None = None) -> FeedResult:
        self._waiting += self._plain.feed(key, data, now_ms, fd).commands
        return self.resume(key)

    def resume(self, key: int) -> FeedResult:
        del key
        return (
            FeedResult(b"", [self._waiting.pop(0)], stopped=True)
            if self._waiting
            else FeedResult(b"", [])
        )

    def held(self, key: int) -> int:
        return self._plain.held(key)

    def standing(self, key: int) -> Standing:
        return self._plain.standing(key)

    def prove(self, key: int) -> None:
        self._plain.prove(key)

    def close(self, key: int) -> None:
        self._plain.close(key)


def test_ingest_that_stops_goes_on_when_the_command_is_done() -> None:
    async def main() -> None:
        async with serving(ingest=Stopping()) as running:
            raw = await running.raw()
            codes = [ECHO, SOON] * 1500
            raw.write(b"".join(ask(code, n) for n, code in enumerate(codes)))
            assert [(await raw.read()).opaque for _ in codes] == list(range(3000))
            raw.write(ask(SLOW, 1) + ask(ECHO, 2))
            await until(lambda: running.handlers.seen[-1].code == SLOW)
            assert running.server.in_hand == 1
            running.handlers.gate.set()
            assert [(await raw.read()).opaque for _ in range(2)] == [1, 2]
            await raw.close()

    asyncio.run(main())


def test_header_of_an_answer_is_json_whatever_was_asked_in() -> None:
    async def main() -> None:
        async with serving() as running:
            raw = await running.raw()
            raw.write(encode(Command(ECHO, {"k": "v"}, b"b", opaque=3), encoding=1))
            answer = await raw.read()
            assert (answer.opaque, answer.encoding, answer.ext) == (3, 0, {"k": "v"})
            assert answer.language == "JAVA"
            await raw.close()

    asyncio.run(main())


def test_header_without_code_is_request_zero() -> None:
    async def main() -> None:
        async with serving() as running:
            raw = await running.raw()
            raw.write(frame(json.dumps({}).encode()))
            answer = await raw.read()
            assert (answer.code, answer.remark) == (3, " request type 0 not supported")
            await raw.close()

    asyncio.run(main())
