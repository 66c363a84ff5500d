"""A caller goes on within the read that brought its answer, and is woken exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import weakref
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from remoting_harness import ECHO, SLOW, SOON, calling, serving
from roquet.base.errors import OutcomeUnknown
from roquet.protocol.command import Command
from roquet.remoting.connections.in_flight import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from roquet.remoting.client import Client
    from roquet.remoting.connections.connection import Connection
    from roquet.remoting.connections.ingest import FeedResult

CALLER: contextvars.ContextVar[int] = contextvars.ContextVar("caller")
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[object, object, None]], None]:
    def runner(work: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as one:
            one.run(work)

    return runner


def test_calls_one_after_the_other_take_one_turn_of_the_loop_each(
    run: Callable[[Coroutine[object, object, None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop, turns, counted = asyncio.get_running_loop(), 0, 0

        def count() -> None:
            nonlocal turns
            turns += 1

        async with serving() as running, calling() as client:
            await client.call(running.address, Command(ECHO))
            ingest = client._ingest
            feed = ingest.feed

            def fed(
                key: int, data: memoryview, now_ms: int = 0, fd: int | None = None
            ) -> FeedResult:
                loop.call_soon(count)  # runs in the turn behind the read
                return feed(key, data, now_ms, fd)

            monkeypatch.setattr(ingest, "feed", fed)
            client.disconnect(running.address)  # the next one feeds what is set here
            await client.call(running.address, Command(ECHO))
            await asyncio.sleep(0)
            counted = turns
            for body in (b"%d" % n for n in range(100)):
                answer = await client.call(running.address, Command(ECHO, body=body))
                assert answer.body == body
                # No turn has passed between the read and its caller.
                assert turns == counted
                counted += 1

    run(main())


def test_caller_may_end_the_connection_where_it_goes_on(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            for end in ("disconnect", "abort", "stop"):
                assert (await client.call(running.address, Command(ECHO, body=b"a"))).body == b"a"
                if end == "disconnect":
                    client.disconnect(running.address)
                elif end == "abort":
                    cast("Connection", await client.connect(running.address)).abort()
                else:
                    await client.stop()
            assert client.connected() == []

    run(main())


def test_context_of_a_caller_is_its_own(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:

            async def ask(n: int) -> None:
                CALLER.set(n)
                me = asyncio.current_task()
                for _ in range(20):
                    await client.call(running.address, Command(SOON, body=b"x"))
                    assert (CALLER.get(), asyncio.current_task()) == (n, me)

            for count in (1, 10):  # one answer a read, and several
                await asyncio.gather(*(ask(n) for n in range(count)))

    run(main())


def test_cancelled_and_late_callers_leave_nothing_behind(
    run: Callable[[Coroutine[object, object, None]], None],
) -> None:
    async def main() -> None:
        async with serving() as running, calling() as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call(running.address, Command(SLOW), 60.0)
            task = asyncio.create_task(client.call(running.address, Command(SLOW), 60.0))
            await asyncio.sleep(0.05)
            task.cancel("enough")
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(OutcomeUnknown, match="did not answer"):
                await client.call(running.address, Command(SLOW), 0.1)
            connection = cast("Connection", await client.connect(running.address))
            assert connection.calls == 0
            running.handlers.gate.set()
            assert (await client.call(running.address, Command(ECHO, body=b"b"))).body == b"b"

    run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_exit_where_a_caller_goes_on_ends_the_program(loop: str) -> None:
    opened = contextlib.AsyncExitStack()

    async def begin() -> tuple[Client, str]:
        running = await opened.enter_async_context(serving())
        client = await opened.enter_async_context(calling())
        await client.call(running.address, Command(ECHO))
        return client, running.address

    async def ask(client: Client, address: str) -> None:
        await client.call(address, Command(ECHO))
        raise SystemExit(3)

    async def go_on(client: Client, address: str) -> None:
        assert (await client.call(address, Command(ECHO, body=b"c"))).body == b"c"
        await opened.aclose()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        found = runner.run(begin())
        with pytest.raises(SystemExit) as ended:
            runner.run(ask(*found))
        assert ended.value.code == 3
        runner.run(go_on(*found))


def test_answer_given_within_a_task_waits_for_the_next_turn() -> None:
    async def main() -> None:
        answer = Answer(asyncio.get_running_loop())
        got: list[Command] = []

        async def wait() -> None:
            got.append(await answer)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        answer.give_now(Command(ECHO))
        assert not got, "a task does not run within another"
        await task
        assert [it.code for it in got] == [ECHO]
        assert not answer.cancel(), "what is answered cannot be cancelled"

    asyncio.run(main())


def test_answer_that_came_before_anybody_awaits_it_is_kept() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        early, failed = Answer(loop), Answer(loop)
        early.give_now(Command(ECHO))
        failed.fail(TimeoutError("late"))
        assert (await early).code == ECHO
        with pytest.raises(TimeoutError, match="late"):
            await failed

    asyncio.run(main())


class Fields(dict[str, str]):
    """Fields that can be referred to weakly."""


@pytest.mark.parametrize("ends", ["late", "closed"])
def test_failed_call_keeps_nothing_of_its_request_without_the_collector(ends: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        if ends == "late":
            await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, calling() as client:
            fields = Fields(name="value")
            left = weakref.ref(fields)
            failed = False
            try:
                await client.call(address, Command(ECHO, fields), 0.2)
            except OutcomeUnknown:
                failed = True
            del fields
            await asyncio.sleep(
                0
            )  # the loop keeps an error until the step that it is raised in ends
            assert failed
            assert left() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()
