"""A slave from start to stop: when it looks for its master, and what it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from pair_harness import Native
from remoting_harness import on_loop
from roquet.ha.config import HaConfig
from roquet.ha.slave import HaSlave, State
from roquet.ha.tail import Verdict
from roquet.ha.threads import LogThread
from roquet.store.results import StoreFault
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable


class Log:
    """An empty log; `fault` is raised when it is settled."""

    begin = limit = written = vouched = 0
    fault: Exception | None = None

    def read(self, _offset: int, _size_max: int) -> bytes:
        return b""

    def follow(self, fd: int, _rules: object, _tls: object) -> Native:
        return Native(fd, ends_at_once=True)

    async def settle(self) -> None:
        if self.fault is not None:
            raise self.fault


class Link:
    """A connection to the master that notes what is done with it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def close(self, why: str) -> None:
        self.said.append(f"close {why}")

    def check(self) -> None:
        self.said.append("check")

    async def ended(self) -> None:
        self.said.append("ended")


class World:
    """A slave, and a port that counts who comes."""

    def __init__(self, rules: HaConfig) -> None:
        self.clock = FakeClock()
        self.log = Log()
        self.slave = HaSlave(cast("Any", self.log), rules, self.clock, broker_id=1)
        self.came = asyncio.Semaphore(0)
        self.connections = 0
        self.address = ""

    async def knocked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.came.release()
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def connected(self) -> None:
        """Wait for one more connection; the clock stands."""
        async with asyncio.timeout(20):
            await self.came.acquire()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what the loop does by itself."""
        async with asyncio.timeout(20):
            while not holds():  # noqa: ASYNC110  (the loop does it)
                await asyncio.sleep(0.001)

    @property
    def state(self) -> int:
        """The state as it is now, which a type checker takes for what it was."""
        return int(self.slave.state)

    def put(self, link: Link) -> None:
        self.slave._link = cast("Any", link)


@contextlib.asynccontextmanager
async def world(rules: HaConfig | None = None) -> AsyncGenerator[World]:
    it = World(rules or HaConfig())
    server = await asyncio.start_server(it.knocked, "127.0.0.1", 0)
    it.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield it
    finally:
        await it.slave.stop()
        server.close()


def test_states_and_verdicts_have_the_numbers_that_others_read() -> None:
    assert {state.name: int(state) for state in State} == {
        "READY": 0,
        "HANDSHAKE": 1,
        "TRANSFER": 2,
        "SUSPEND": 3,
        "SHUTDOWN": 4,
    }
    assert {verdict.name: int(verdict) for verdict in Verdict} == {
        "PROCEED": -1,
        "DIFFERS": -2,
        "AHEAD": -3,
        "GONE": -4,
    }


@on_loop
async def test_slave_connects_once_it_knows_its_master_and_again_after_the_pause() -> None:
    async with world() as it:
        assert it.state == State.SHUTDOWN
        await it.slave.start()
        assert it.state == State.READY
        await asyncio.sleep(0.01)
        assert it.connections == 0
        it.slave.learn(None)
        it.slave.learn(it.address)
        await it.connected()
        await it.until(lambda: it.slave.link is not None)
        assert it.state == State.HANDSHAKE
        cast("Any", it.slave.link).close("a test ends it")
        await it.until(lambda: it.slave.link is None)
        await it.clock.advance(it.slave.rules.reconnect_ms / 1000 - 0.001)
        await asyncio.sleep(0.01)
        assert it.connections == 1
        await it.clock.advance(0.001)
        await it.connected()


@on_loop
async def test_slave_waits_before_it_connects_again_as_long_as_the_settings_say() -> None:
    async with world(HaConfig(reconnect_ms=200)) as it:
        it.slave.learn(it.address)
        await it.slave.start()
        await it.connected()
        await it.until(lambda: it.slave.link is not None)
        cast("Any", it.slave.link).close("a test ends it")
        await it.until(lambda: it.slave.link is None)
        await it.clock.advance(0.2)
        await it.connected()


@on_loop
async def test_slave_that_is_stopped_looks_for_no_master_any_more() -> None:
    async with world() as it:
        it.slave.learn(it.address)
        await it.slave.start()
        await it.connected()
        await it.slave.stop()
        assert it.state == State.SHUTDOWN
        for _ in range(5):
            await it.clock.advance(it.slave.rules.reconnect_ms / 1000)
            await asyncio.sleep(0.01)
        assert it.connections == 1


@on_loop
async def test_slave_that_never_connected_stops() -> None:
    async with world() as it:
        await it.slave.start()
        await it.slave.stop()
        assert it.slave.link is None


@on_loop
async def test_slave_stops_when_its_connection_has_ended() -> None:
    async with world() as it:
        link = Link()
        it.put(link)
        await it.slave.stop()
        assert link.said == ["close this broker stops", "ended"]


@on_loop
async def test_connection_that_was_made_too_late_is_ended_before_the_next_one() -> None:
    async with world() as it:
        it.log.fault = StoreFault("io", "not settled")
        await it.slave.start()
        link = Link()
        it.put(link)
        it.slave.learn(it.address)
        assert link.said == ["close the master has moved"]
        for _ in range(100):
            await asyncio.sleep(0)
        assert link.said[1:] == ["close ", "ended"]
        assert it.slave.link is None
        assert it.connections == 0


@on_loop
async def test_master_that_name_servers_tell_counts_unless_one_is_configured() -> None:
    async with world() as it:
        link = Link()
        it.put(link)
        it.slave.learn("a:1")
        it.slave.learn("a:1")
        it.slave.learn("")
        assert (it.slave.address, len(link.said)) == ("a:1", 1)
        it.slave.learn("b:2")
        assert (it.slave.address, len(link.said)) == ("b:2", 2)
        fixed = HaSlave(
            cast("Any", it.log), HaConfig(master_address="10.0.0.1:3"), it.clock, broker_id=1
        )
        fixed.learn("b:2")
        assert fixed.address == "10.0.0.1:3"
        for slave, known in ((it.slave, None), (fixed, "10.0.0.1:3")):
            slave.forget()
            assert slave.address == known


@on_loop
async def test_slave_checks_only_a_connection() -> None:
    async with world() as it:
        await it.slave.tick()
        link = Link()
        it.put(link)
        await it.slave.tick()
        assert link.said == ["check"]


@on_loop
async def test_news_of_a_thread_is_heard_and_its_end_told_once() -> None:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    news: list[tuple[bytes, int, tuple[str, str] | None]] = []
    joined: list[int] = []

    def take() -> tuple[bytes, int, tuple[str, str] | None]:
        os.eventfd_read(fd)
        return news.pop(0)

    native = SimpleNamespace(event_fd=lambda: fd, take=take, join=lambda: joined.append(1))
    heard: list[bytes | int] = []
    ended: list[tuple[str, str]] = []
    thread = LogThread(
        cast("Any", native),
        heard.append,
        heard.append,
        lambda kind, text: ended.append((kind, text)),
    )
    try:
        for one in ((b"word", 7, None), (b"", 9, None), (b"", 9, ("lost", "reset"))):
            news.append(one)
            os.eventfd_write(fd, 1)
            async with asyncio.timeout(20):
                while news:  # noqa: ASYNC110  (the loop's reader takes it)
                    await asyncio.sleep(0.001)
            assert thread.gone.is_set() == (one[2] is not None)
        assert heard == [b"word", 7, 9, 9]
        assert (ended, joined) == ([("lost", "reset")], [1])
        assert not asyncio.get_running_loop().remove_reader(fd)
    finally:
        os.close(fd)
