"""Calls between a real client and a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

import remoting_harness
from remoting_harness import (
    BIG,
    ECHO,
    FAIL,
    LATER,
    NUMBER,
    SLOW,
    SOON,
    ask,
    calling,
    serving,
    until,
)
from roquet.base.errors import OutcomeUnknown, RequestTooLong, Unreachable, UsageError
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.client import ClientConfig
from roquet.remoting.router import Request, Route
from roquet.remoting.server import ServerConfig
from roquet.service.lanes import LaneConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine


@pytest.fixture(params=[0, 2], ids=["loop", "threads"], autouse=True)
def _io_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with connections that the loop serves, and with those of threads."""
    monkeypatch.setattr(remoting_harness, "IO_THREADS", request.param)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[object, object, None]], None]:
    def runner(work: Coroutine[object, object, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as one:
            one.run(work)

    return runner


def test_question_and_answer(run: Callable[[Coroutine[object, object, None]], None]) -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            asked = Command(ECHO, {"k": "v"}, b"body", opaque=77)
            answer = await client.call(running.address, asked)
            assert (answer.code, answer.ext, answer.body) == (0, {"k": "v"}, b"body")
            assert answer.is_response
            assert asked.opaque == 77, "the caller's command stays as it is"
            answers = await asyncio.gather(
                *(client.call(running.address, Command(SOON, body=b"%d" % n)) for n in range(500))
            )
            assert [a.body for a in answers] == [b"%d" % n for n in range(500)]
            assert running.server.connections == 1
            assert client.connected() == [running.address]

    run(main())


def test_fifty_first_calls_at_once_make_one_connection(
    run: Callable[[Coroutine[object, object, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        accepted: list[tuple[str, int]] = []
        async with serving() as running, calling() as client:
            admit = running.server._admit

            def admitted(taken: socket.socket, host: str, port: int) -> None:
                accepted.append((host, port))
                admit(taken, host, port)

            monkeypatch.setattr(running.server, "_admit", admitted)
            answers = await asyncio.gather(
                *(client.call(running.address, Command(ECHO, body=b"%d" % n)) for n in range(50))
            )
            assert [answer.body for answer in answers] == [b"%d" % n for n in range(50)]
            assert len(accepted) == 1

    run(main())


def test_thousand_requests_in_one_write(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        async with serving() as running:
            raw = await running.raw()
            raw.write(b"".join(ask(ECHO, n, b"%d" % n) for n in range(1000)))
            for n in range(1000):
                answer = await raw.read()
                assert (answer.opaque, answer.body) == (n, b"%d" % n)
            await raw.close()

    run(main())


def test_body_larger_than_the_receive_buffer(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        body = bytes(range(256)) * 20_000
        async with serving() as running, calling() as client:
            answer = await client.call(running.address, Command(ECHO, body=body))
            assert answer.body == body
            await until(lambda: running.server.bytes_kept == 0)

    run(main())


def test_frames_cut_anywhere() -> None:
    async def main() -> None:
        async with serving() as running:
            frames = ask(ECHO, 1, b"one", a="1") + ask(ECHO, 2) + ask(ECHO, 3, b"three")
            for cut in range(1, len(frames), 7):
                raw = await running.raw()
                raw.write(frames[:cut])
                await raw.drain()
                await asyncio.sleep(0.001)
                raw.write(frames[cut:])
                assert [(await raw.read()).opaque for _ in range(3)] == [1, 2, 3]
                await raw.close()

    asyncio.run(main())


def test_failures_become_codes() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:

            async def code(command: Command) -> tuple[int, str | None]:
                answer = await client.call(running.address, command)
                return answer.code, answer.remark

            assert await code(Command(FAIL, {"kind": "refused"})) == (17, "no such topic")
            assert await code(Command(FAIL)) == (1, "RuntimeError: out of luck")
            got, remark = await code(Command(NUMBER))
            assert got == 1
            assert "queueId" in str(remark)
            for bad in ("1_0", " 7 ", "\uff17", "+7", "1e3", "", "2147483648"):
                got, remark = await code(Command(NUMBER, {"queueId": bad}))
                assert got == 29, bad
                assert "queueId" in str(remark)
            for unknown in (0, -1, 99_999):
                assert await code(Command(unknown)) == (
                    3,
                    f" request type {unknown} not supported",
                )

    asyncio.run(main())


def test_one_way_is_never_answered() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            await client.call_one_way(running.address, Command(ECHO, body=b"quiet"))
            await client.call_one_way(running.address, Command(FAIL))
            await client.call_one_way(running.address, Command(99_999))
            answer = await client.call(running.address, Command(ECHO, body=b"loud"))
            assert answer.body == b"loud"
            assert [c.body for c in running.handlers.seen] == [b"quiet", b"loud"]
            assert running.handlers.seen[0].is_one_way
            assert running.server.in_hand == 0

    asyncio.run(main())


def test_answer_that_comes_later_and_twice() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            waiting = asyncio.create_task(client.call(running.address, Command(LATER)))
            await until(lambda: running.handlers.parked)
            assert running.server.in_hand == 0, "a parked request is not in hand"
            request = running.handlers.parked[0]
            request.reply(reply_to(request.command, body=b"first"))
            request.reply(reply_to(request.command, body=b"second"))
            assert (await waiting).body == b"first"
            assert (await client.call(running.address, Command(ECHO))).code == 0

    asyncio.run(main())


def test_late_answer_is_dropped() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            # The connection is there already: making one may take longer than the short time.
            await client.call(running.address, Command(ECHO))
            with pytest.raises(OutcomeUnknown, match="within"):
                await client.call(running.address, Command(SLOW), timeout_s=0.05)
            running.handlers.gate.set()
            answer = await client.call(running.address, Command(ECHO, body=b"next"))
            assert answer.body == b"next"

    asyncio.run(main())


def test_call_without_time_left_is_not_sent_and_says_so() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            await client.call(running.address, Command(ECHO))
            with pytest.raises(Unreachable, match="took all the time"):
                await client.call(running.address, Command(ECHO), 0.0)

    asyncio.run(main())


def test_nobody_listens() -> None:
    async def main() -> None:
        async with serving() as running:
            address = running.address
        async with calling() as client:
            with pytest.raises(Unreachable):
                await client.call(address, Command(ECHO))
            with pytest.raises(Unreachable):
                await client.call_one_way(address, Command(ECHO))
            for wrong in ("", "host", "host:", ":1", "host:port", "host:65536", "h:\uff11"):
                with pytest.raises(UsageError):
                    await client.call(wrong, Command(ECHO))
            assert client.connected() == []

    asyncio.run(main())


def test_server_goes_and_comes_back() -> None:
    async def main() -> None:
        async with calling() as client:
            async with serving() as running:
                port, address = running.server.port, running.address
                assert (await client.call(address, Command(ECHO))).code == 0
            await until(lambda: client.connected() == [])
            with pytest.raises(Unreachable):
                await client.call(address, Command(ECHO))
            async with serving(port=port) as running:
                assert (await client.call(address, Command(ECHO))).code == 0

    asyncio.run(main())


def test_connection_lost_while_waiting() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            waiting = asyncio.create_task(client.call(running.address, Command(SLOW)))
            await until(lambda: running.handlers.seen)
            for peer in running.server.peers():
                peer.close("")
            with pytest.raises(OutcomeUnknown, match="closed"):
                await waiting
            await until(lambda: running.closed)
            assert not running.closed[0].is_open

    asyncio.run(main())


def test_server_asks_the_client() -> None:
    async def main() -> None:
        def who(request: Request) -> Command:
            return reply_to(request.command, body=b"it is me")

        async def later(request: Request) -> Command:
            await asyncio.sleep(0)
            return reply_to(request.command, body=b"me too")

        handlers = [
            Route((RequestCode.GET_CONSUMER_RUNNING_INFO,), who, "back"),
            Route((RequestCode.CONSUME_MESSAGE_DIRECTLY,), later, "back"),
        ]
        async with serving() as running, calling(handlers=handlers) as client:
            await client.call(running.address, Command(ECHO))
            (peer,) = running.server.peers()
            for code, body in ((307, b"it is me"), (309, b"me too")):
                answer = await peer.call(Command(code), 1.0)
                assert (answer.code, answer.body) == (0, body)
            answer = await peer.call(Command(1), 1.0)
            assert answer.code == 3
            peer.send_one_way(Command(40))
            # Both directions count for themselves: equal opaques do not meet.
            mine, theirs = await asyncio.gather(
                client.call(running.address, Command(SOON, body=b"x")), peer.call(Command(309), 1)
            )
            assert (mine.body, theirs.body) == (b"x", b"me too")

    asyncio.run(main())


def test_stop_finishes_what_is_in_hand() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            old = await running.raw()
            old.write(ask(ECHO))
            await old.read()
            waiting = asyncio.create_task(client.call(running.address, Command(SLOW)))
            await until(lambda: running.handlers.seen[-1].code == SLOW)
            stopping = asyncio.create_task(running.server.stop())
            await asyncio.sleep(0.01)
            old.write(ask(ECHO, 2))
            assert (await old.read()).code == 1500
            running.handlers.gate.set()
            assert (await waiting).body == b"slow"
            await stopping
            assert await old.is_closed()
            await old.close()
            with pytest.raises(ConnectionRefusedError):
                await running.raw()

    asyncio.run(main())


def test_stop_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with serving(ServerConfig(drain_s=0.05)) as running, calling() as client:
            waiting = asyncio.create_task(client.call(running.address, Command(SLOW)))
            await until(lambda: running.handlers.seen)
            await running.server.stop()
            with pytest.raises(OutcomeUnknown):
                await waiting

    asyncio.run(main())


def test_full_lane_says_so() -> None:
    async def main() -> None:
        lanes = (LaneConfig("work", concurrency=1, queue_max=2),)
        async with serving(lanes=lanes) as running:
            raw = await running.raw()
            raw.write(b"".join(ask(SLOW, n) for n in range(4)))
            answer = await raw.read()
            assert (answer.opaque, answer.code) == (3, 2)
            assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
            assert running.lanes["work"].waiting == 2
            running.handlers.gate.set()
            assert [(await raw.read()).opaque for _ in range(3)] == [0, 1, 2]
            await raw.close()

    asyncio.run(main())


def test_limit_of_calls_in_flight() -> None:
    async def main() -> None:
        async with serving() as running, calling(ClientConfig(calls_max=2)) as client:
            waiting = [
                asyncio.create_task(client.call(running.address, Command(SLOW))) for _ in range(2)
            ]
            await until(lambda: len(running.handlers.seen) == 2)
            with pytest.raises(Unreachable, match="too many"):
                await client.call(running.address, Command(ECHO))
            running.handlers.gate.set()
            await asyncio.gather(*waiting)
            assert (await client.call(running.address, Command(ECHO))).code == 0

    asyncio.run(main())


def test_scan_gives_up_late_calls_and_idle_connections() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving() as running, calling(clock=clock) as client:
            waiting = asyncio.create_task(client.call(running.address, Command(SLOW), 30.0))
            await until(lambda: running.handlers.seen)
            await clock.advance(30)
            assert not waiting.done()
            await clock.advance(3)
            with pytest.raises(OutcomeUnknown, match="in time"):
                await waiting
            await clock.advance(125)
            await until(lambda: client.connected() == [])

    asyncio.run(main())


def test_a_clock_that_is_set_gives_up_no_call() -> None:
    async def main() -> None:
        clock = FakeClock()
        async with serving() as running, calling(clock=clock) as client:
            waiting = asyncio.create_task(client.call(running.address, Command(SLOW), 30.0))
            await until(lambda: running.handlers.seen)
            await clock.advance(5)
            for set_by_s in (3600, -7200):
                clock.set_by(set_by_s)
                await clock.advance(10)
                assert not waiting.done()
                assert len(client.connected()) == 1
            await clock.advance(8)
            with pytest.raises(OutcomeUnknown, match="in time"):
                await waiting

    asyncio.run(main())


def test_request_longer_than_a_frame_is_refused_and_the_calls_beside_it_go_on() -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            asked = Command(ECHO, body=b"x" * (FRAME_SIZE_MAX - 200))
            await client.call(running.address, asked)
            assert running.handlers.seen[0].body == asked.body
            waiting = asyncio.ensure_future(client.call(running.address, Command(SLOW)))
            await until(lambda: len(running.handlers.seen) == 2)
            with pytest.raises(RequestTooLong, match=r"is too long, max is 16777216"):
                await client.call(running.address, Command(ECHO, body=b"x" * FRAME_SIZE_MAX))
            running.handlers.gate.set()
            assert (await waiting).code == 0

    asyncio.run(main())


def test_calls_to_a_peer_that_takes_nothing_wait_unwritten_and_count_as_not_sent() -> None:
    async def main() -> None:
        going = asyncio.Event()

        async def idle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            del reader
            cast("asyncio.ReadTransport", writer.transport).pause_reading()
            await going.wait()
            writer.close()

        server = await asyncio.start_server(idle, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, calling() as client:
            first = Command(ECHO, body=b"x" * (15 * 1024 * 1024))
            found = [asyncio.ensure_future(client.call(address, first, 1.0))]
            await until(lambda: any(one.is_stuck for one in client._connections.values()))
            (connection,) = client._connections.values()
            transport = connection._transport
            assert transport is not None
            before = transport.get_write_buffer_size()
            more = [client.call(address, Command(ECHO, body=b"y" * 100_000), 0.3) for _ in range(9)]
            ends = await asyncio.gather(*more, return_exceptions=True)
            assert [type(end) for end in ends] == [Unreachable] * 9
            assert transport.get_write_buffer_size() == before
            (end,) = await asyncio.gather(*found, return_exceptions=True)
            assert isinstance(end, OutcomeUnknown)
            going.set()

    asyncio.run(main())


def test_blocking_connection() -> None:
    async def main() -> None:
        async with serving() as running:

            def work() -> None:
                with BlockingConnection(running.address) as connection:
                    for n in range(3):
                        answer = connection.call(Command(ECHO, body=b"%d" % n))
                        assert answer.body == b"%d" % n
                    assert len(connection.call(Command(BIG)).body) == 1_000_000
                    with pytest.raises(OutcomeUnknown):
                        connection.call(Command(SLOW), timeout=0.05)
                    assert not connection.is_open
                    with pytest.raises(Unreachable):
                        connection.call(Command(ECHO))

            await asyncio.to_thread(work)

    asyncio.run(main())
