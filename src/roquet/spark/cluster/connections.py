"""Blocking connections to brokers and name servers, kept by address.

Tasks need no more of a cluster than this, so it imports nothing of what plans ask.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.clock import SystemClock, pause
from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.remoting.blocking import BlockingConnection
from roquet.remoting.tls import client_tls, environment_options
from roquet.spark.account import account

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from roquet.protocol.command import Command
    from roquet.spark.options import Wire

WINDOW = 64
"""Requests to one address that wait for their answers: about 100 KiB with tables of bounds."""

_LATER = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})


class Posted(NamedTuple):
    """Requests that were sent over a connection, by the numbers of their answers."""

    connection: BlockingConnection
    numbers: list[int]


class Connections:
    """Blocking connections kept by address; a call that fails is tried again on a new one."""

    def __init__(self, wire: Wire, wait: Callable[[float], None] = pause) -> None:
        """Connect to nothing yet."""
        self._wire = wire
        self._wait = wait
        self._open: dict[str, BlockingConnection] = {}
        self._failed: set[str] = set()
        # From the environment of each process: options are shown in Spark's pages and plans.
        self._tls = client_tls(environment_options(os.environ), SystemClock())
        credentials = account(wire)
        self._sign = None if credentials is None else credentials.sign

    def close(self) -> None:
        """Close all."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def call(self, addresses: Iterable[str], command: Command) -> Command:
        """Ask the addresses in turn until one answers; only for requests that may be repeated.

        A broker that is busy, starting or stopping is asked again. One that has failed is asked
        last from then on, or a dead host would cost each request the time of a vain connection.

        Raises Unreachable when none does in all tries.
        """
        candidates = tuple(addresses)
        errors: dict[str, str] = {}
        busy: Command | None = None
        for attempt in range(1 + self._wire.retries):
            if attempt:
                self._wait(self._wire.retry_pause_s)
            for address in sorted(candidates, key=self._failed.__contains__):
                try:
                    answer = self._connection(address).call(command, self._wire.timeout_s)
                    if answer.code not in _LATER:
                        self._failed.discard(address)
                        return answer
                    busy = answer
                except (Unreachable, OutcomeUnknown) as error:
                    self._note(address)
                    errors[address] = str(error)
        if busy is not None:
            return busy
        raise Unreachable("; ".join(errors.values()) or "there is no address to ask")

    def drop_stale(self) -> None:
        """Close connections that the other side has closed, or that have an answer left over."""
        for address, connection in list(self._open.items()):
            if connection.has_input():
                self._drop(address)

    def forgive(self) -> None:
        """Ask masters first again, also those that have failed."""
        self._failed.clear()

    def post(self, addresses: Iterable[str], commands: Sequence[Command]) -> Posted | None:
        """Send requests to the address that `call` would ask first, and do not wait.

        Their answers have to be taken before others are sent there. None when that failed.
        """
        address = min(addresses, key=self._failed.__contains__)
        try:
            connection = self._connection(address)
            return Posted(connection, connection.post(commands, self._wire.timeout_s))
        except (Unreachable, OutcomeUnknown):
            self._note(address)
            return None

    def take(self, posted: Posted) -> list[Command]:
        """Wait for the answers to what was posted, in that order; none of them when that failed."""
        try:
            return posted.connection.take(posted.numbers, self._wire.timeout_s)
        except OutcomeUnknown:
            self._note(posted.connection.address)
            return []

    def call_all(self, wanted: Sequence[tuple[Sequence[str], Command]]) -> list[Command]:
        """Ask many at once, each at one of its addresses; return the answers in that order.

        All addresses work at the same time, each on up to `WINDOW` requests. What is not answered
        like this is asked once more by itself, with all tries. Raises Unreachable.
        """
        waiting: dict[str, list[int]] = {}
        for at, (addresses, _) in enumerate(wanted):
            for address in sorted(addresses, key=self._failed.__contains__)[:1]:
                waiting.setdefault(address, []).append(at)
        found: dict[int, Command] = {}
        while waiting:
            posted: list[tuple[str, list[int], list[int]]] = []
            for address, places in waiting.items():
                with self._noted(address):
                    part = [wanted[at][1] for at in places[:WINDOW]]
                    numbers = self._connection(address).post(part, self._wire.timeout_s)
                    posted.append((address, places, numbers))
            waiting = {}
            for address, places, numbers in posted:
                with self._noted(address):
                    taken = self._connection(address).take(numbers, self._wire.timeout_s)
                    found.update(zip(places, taken, strict=False))
                    if places[WINDOW:]:
                        waiting[address] = places[WINDOW:]
        return [
            answer
            if (answer := found.get(at)) is not None and answer.code not in _LATER
            else self.call(addresses, command)
            for at, (addresses, command) in enumerate(wanted)
        ]

    @contextlib.contextmanager
    def _noted(self, address: str) -> Generator[None]:
        """Note a failure of an address; whoever has asked goes on with another one."""
        try:
            yield
        except (Unreachable, OutcomeUnknown):
            self._note(address)

    def _note(self, address: str) -> None:
        """Ask others first from now on, and this one on a new connection."""
        self._failed.add(address)
        self._drop(address)

    def _connection(self, address: str) -> BlockingConnection:
        connection = self._open.get(address)
        if connection is None or not connection.is_open:
            within_s = min(3.0, self._wire.timeout_s)
            connection = BlockingConnection(
                address, connect_s=within_s, tls=self._tls, sign=self._sign
            )
            self._open[address] = connection
        return connection

    def _drop(self, address: str) -> None:
        with contextlib.suppress(KeyError):
            self._open.pop(address).close()
