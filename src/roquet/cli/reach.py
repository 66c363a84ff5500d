"""How commands reach a cluster: one client for as long as the command runs."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

from roquet.base.errors import Unreachable, UsageError
from roquet.base.log import configure
from roquet.client import connect
from roquet.protocol.hosts import split_addresses
from roquet.remoting.refusals import cannot_heal
from roquet.service import runtime

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from roquet.admin import Admin
    from roquet.client import MQ, TlsOptions

EXIT_INTERRUPTED = 130
NOTICE_S = 2.0
"""Without an answer for so long, a line says whose."""


def client(namesrv: str, tls: TlsOptions | None = None) -> MQ:
    """Make a client of what `--namesrv` names. Raises UsageError."""
    try:
        addresses = split_addresses(namesrv)
    except ValueError as error:
        raise UsageError(f"--namesrv: {error}") from error
    if not addresses:
        raise UsageError("--namesrv is empty: it should look like 127.0.0.1:9876")
    return connect("rmq://" + ";".join(addresses), tls=tls)


def helped(error: Unreachable) -> Unreachable:
    """Return the error of a cluster that does not answer, with what helps."""
    return error if cannot_heal(error) else Unreachable(f"{error}; is one running? try: roquet dev")


def notice(text: str) -> asyncio.TimerHandle:
    """Have a line said unless the answer is there in time; cancel what this returns."""
    return asyncio.get_running_loop().call_later(NOTICE_S, sys.stderr.write, f"roquet: {text}\n")


def administered(options: argparse.Namespace, work: Callable[[Admin], Awaitable[int]]) -> int:
    """Run the work of one command to its end; Ctrl-C cancels it."""

    async def serve(stop: asyncio.Event) -> int:
        handle = notice(f"no answer from {options.namesrv} yet")
        try:
            async with client(options.namesrv) as mq:
                return await _until(stop, work(mq.admin()))
        except Unreachable as error:
            raise helped(error) from error
        finally:
            handle.cancel()

    return run(serve)


async def _until(stop: asyncio.Event, work: Awaitable[int]) -> int:
    """Await the work unless `stop` is set before; raise what it raises."""
    task = asyncio.current_task()

    async def cancel() -> None:
        await stop.wait()
        if task is not None:
            task.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(cancel())
            code = await work
            watching.cancel()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        return EXIT_INTERRUPTED
    return code


def run(serve: Any) -> int:
    """Run a command's coroutine function, given the event that Ctrl-C sets."""
    configure("ERROR")
    return runtime.run(serve)
