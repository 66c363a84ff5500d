"""How commands reach a cluster: one client for as long as the command runs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.base.log import configure
from roquet.cli import contexts
from roquet.cli.exits import EXIT_INTERRUPTED, EXIT_LEFT_OUT
from roquet.client import connect
from roquet.protocol import names
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.other_servers import WrongServer, no_name_server
from roquet.remoting.refusals import cannot_heal
from roquet.service.process import runtime

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable, Generator

    from roquet.acl.credentials import Credentials
    from roquet.admin import Admin
    from roquet.admin.calls import Calls
    from roquet.base.clock import Clock
    from roquet.base.errors import RoquetError
    from roquet.cli.contexts import Context
    from roquet.client import MQ
    from roquet.model.route import TopicRoute


class ServerInstead(UsageError):  # noqa: N818
    """The address is that of a server of another kind, which does not know the request."""

    def __init__(self, text: str, refusal: Refused) -> None:
        """Say what it is, and keep its answer."""
        super().__init__(text)
        self.refusal = refusal


def _name_server_instead(address: str, refusal: Refused) -> ServerInstead:
    return ServerInstead(
        f"{address} is a name server, which does not answer this ({refusal.remark});"
        " is the address of a broker meant? try: roquet broker ls",
        refusal,
    )


def _proxy_instead(address: str, refusal: Refused) -> ServerInstead:
    return ServerInstead(
        f"{address} is a proxy's port for clients, which does not answer this ({refusal.remark});"
        " name the cluster's name server instead: -n HOST:9876, or roquet context",
        refusal,
    )


NOTICE_S = 2.0
"""Without an answer for so long, a line says whose."""


def client(options: argparse.Namespace, *, trace: bool = False) -> MQ:
    """Make a client of what `--namesrv`, the environment or the context names. Raises UsageError.

    The name servers found are written to `options.namesrv`. With `trace` it traces what it does.
    """
    # Found once: a second client of a command has the same account.
    cluster = getattr(options, "cluster_found", None)
    if cluster is None:
        cluster = contexts.chosen(options.namesrv, options.context)
    options.cluster_found, options.namesrv = cluster, cluster.namesrv
    return cluster_client(cluster, trace=trace)


def cluster_client(
    cluster: Context, *, trace: bool = False, account: Credentials | None = None
) -> MQ:
    """Make a client of a cluster, with another account than its own if one is given.

    Raises UsageError.
    """
    addresses = contexts.addresses_of(cluster.namesrv, "--namesrv")
    url = "rmq://" + ";".join(addresses)
    secured = cluster.secured()
    account = cluster.credentials() if account is None else account
    return connect(url, tls=secured, credentials=account, trace=trace)


def helped(error: Unreachable) -> RoquetError:
    """Return the error of a cluster that does not answer, with what helps."""
    if isinstance(error, WrongServer):
        return UsageError(f"--namesrv: {error}")
    return error if cannot_heal(error) else Unreachable(f"{error}; is one running? try: roquet dev")


@contextlib.contextmanager
def waiting_for(whom: str) -> Generator[None]:
    """Say whose answer is waited for unless it is there in time."""
    text = f"roquet: no answer from {whom} yet\n"
    handle = asyncio.get_running_loop().call_later(NOTICE_S, sys.stderr.write, text)
    try:
        yield
    finally:
        handle.cancel()


class Watched:
    """Requests of a command: says whose answer is waited for, and who is left out.

    What a command shows of several brokers it shows of those that answer.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.away: dict[str, RoquetError] = {}
        """Brokers that did not answer, each told once."""

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._calls.clock

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The name servers."""
        return self._calls.name_servers

    def left_out(self, name: str, error: RoquetError) -> None:
        """Say that what a broker has is not shown."""
        if name not in self.away:
            sys.stderr.write(f"roquet: {name} is left out: {error}\n")
        self.away[name] = error

    async def ask(self, address: str, command: Command) -> Command:
        """Ask one peer. Raises Refused, Unreachable, OutcomeUnknown.

        An address that is a broker's or proxy's and a name server's should be, or the other way
        round, is told: a WrongServer, or UsageError.
        """
        with waiting_for(address):
            try:
                return await self._calls.ask(address, command)
            except Refused as refusal:
                if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    await self._explain(address, refusal)
                raise

    async def _explain(self, address: str, refusal: Refused) -> None:
        """Raise what an address is that knows a request not, where it is another server's."""
        known = await self._knows(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        if known:
            raise _name_server_instead(address, refusal) from refusal
        if known is False and address in self.name_servers:
            if await self._knows(address, RequestCode.GET_ROUTEINFO_BY_TOPIC):
                raise _proxy_instead(address, refusal) from refusal
            raise no_name_server(address) from refusal

    async def _explain_name_server(self, refusal: Refused) -> None:
        """Raise that a server is a proxy, if it is: it knows routes, and not the cluster."""
        address = self.name_servers[0]
        if await self._knows(address, RequestCode.GET_BROKER_CLUSTER_INFO) is False and (
            await self._knows(address, RequestCode.GET_ROUTEINFO_BY_TOPIC)
        ):
            raise _proxy_instead(address, refusal) from refusal

    async def _knows(self, address: str, code: RequestCode) -> bool | None:
        """Tell whether a server knows a request; None when it does not say."""
        try:
            await self._calls.ask(address, Command(code, {"topic": names.AUTO_CREATE_TOPIC}))
        except Refused as refused:
            return refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        except (Unreachable, OutcomeUnknown):
            return None
        return True

    async def ask_name_server(self, command: Command) -> Command:
        """Ask until one answers. Raises Refused, Unreachable."""
        with waiting_for(";".join(self.name_servers)):
            try:
                return await self._calls.ask_name_server(command)
            except Refused as refusal:
                if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    await self._explain_name_server(refusal)
                raise

    async def route(self, topic: str) -> TopicRoute:
        """Ask for a topic's route. Raises Refused, Unreachable."""
        with waiting_for(";".join(self.name_servers)):
            return await self._calls.route(topic)

    def forget_topic(self, topic: str) -> None:
        """Keep no route of this topic."""
        self._calls.forget_topic(topic)


def administered(
    options: argparse.Namespace,
    work: Callable[[Admin], Awaitable[int]],
    around: Callable[[Calls], Calls] | None = None,
) -> int:
    """Run the work of one command to its end; Ctrl-C cancels it.

    The exit code is 3 when a broker did not answer and the rest was shown. `around` may stand
    between the work and the requests.
    """
    return connected(options, lambda _, admin: work(admin), around)


def connected(
    options: argparse.Namespace,
    work: Callable[[MQ, Admin], Awaitable[int]],
    around: Callable[[Calls], Calls] | None = None,
) -> int:
    """Run the work of one command that needs a client, as `administered` does."""

    async def serve(stop: asyncio.Event) -> int:
        watched: list[Watched] = []

        def watch(calls: Calls) -> Calls:
            watched.append(Watched(calls))
            return watched[0] if around is None else around(watched[0])

        try:
            async with client(options) as mq:
                code = await _until(stop, work(mq, mq.admin(watch)))
        except Unreachable as error:
            raise helped(error) from error
        return EXIT_LEFT_OUT if code == 0 and watched[0].away else code

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
