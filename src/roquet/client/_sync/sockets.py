"""First tries of plain sends on sockets of the threads that wait for them.

A send over the loop's thread changes threads twice, which costs as much as the send. Where all
that a first try needs is known, the thread that waits makes it on a socket of its own and decides
nothing: what fails goes on over the loop, by `Delivery`'s rules, with the tries and time that
remain. Invariants: a socket has one user at a time, and one that failed is never used again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client._sending.receipt import receipts_of
from roquet.protocol.codes import ResponseCode
from roquet.remoting.blocking import BlockingConnection

if TYPE_CHECKING:
    from roquet.client._sending.choosing import Chooser
    from roquet.client._sending.delivery import Delivery
    from roquet.client._sending.encode import Encoded
    from roquet.client._sending.receipt import SendReceipt
    from roquet.remoting.client import Client
    from roquet.service.loop_thread import LoopThread

SOCKETS_MAX = 8
"""Open at a time for one broker; more threads share the loop's connection."""
IDLE_S = 60.0
"""One that was not used for so long is closed: brokers close it after 120 s."""
CONNECT_S = 1.0
"""For a broker that the loop is connected to."""


class Sockets:
    """The sockets of one blocking client. Any thread may call it."""

    def __init__(self, loop: LoopThread) -> None:
        """Open none yet."""
        self._loop = loop
        self._lock = threading.Lock()
        self._idle: dict[str, deque[tuple[BlockingConnection, float]]] = {}
        self._open: dict[str, int] = {}
        self._is_closed = False

    def deliver(
        self, delivery: Delivery, encoded: Encoded, chooser: Chooser | None, within_s: float
    ) -> SendReceipt:
        """Send one message and return its receipt. Raises as `Delivery.deliver` does."""
        end_s = time.monotonic() + within_s
        placed = delivery.placed(encoded, chooser)
        connection = None if placed is None else self._take(delivery.client, placed[1])
        if placed is None or connection is None:
            left_s = end_s - time.monotonic()
            return self._loop.run(delivery.deliver(encoded, chooser, left_s))[0]
        queue, address, command = placed
        failed: Refused | Unreachable | OutcomeUnknown
        try:
            answer = connection.ask(command, max(0.001, end_s - time.monotonic()))
            if answer.code != ResponseCode.GO_AWAY:
                return receipts_of(answer, encoded, queue)[0]
            # The broker is stopping and has not looked at the request.
            connection.close()
            failed = Unreachable(f"{address} is stopping")
        except (Refused, Unreachable, OutcomeUnknown) as error:
            failed = error
        finally:
            self._give_back(address, connection)
        left_s = end_s - time.monotonic()
        return self._loop.run(delivery.go_on(encoded, chooser, left_s, queue, failed))[0]

    def close(self) -> None:
        """Close all; those in use are closed when they come back."""
        with self._lock:
            self._is_closed = True
            self._drop_idle(float("inf"))

    # --- inside ------------------------------------------------------------------------------

    def _take(self, client: Client, address: str) -> BlockingConnection | None:
        """Return a connection for the caller alone; None where the loop should be asked."""
        if not client.can_go_beside(address):
            return None
        now_s = time.monotonic()
        with self._lock:
            idle = self._idle.get(address)
            while idle:
                connection, used_s = idle.pop()
                if now_s - used_s < IDLE_S and not connection.has_input():
                    return connection
                self._forget(address, connection)
            self._drop_idle(now_s - IDLE_S)
            if self._is_closed or self._open.get(address, 0) >= SOCKETS_MAX:
                return None
            self._open[address] = self._open.get(address, 0) + 1
        try:
            return BlockingConnection(address, connect_s=CONNECT_S, sign=client.sign)
        except BaseException as error:
            with self._lock:
                self._count_down(address)
            if isinstance(error, RoquetError):
                return None  # nothing was sent: the loop says what is wrong
            raise

    def _give_back(self, address: str, connection: BlockingConnection) -> None:
        with self._lock:
            if connection.is_open and not self._is_closed:
                self._idle.setdefault(address, deque()).append((connection, time.monotonic()))
            else:
                self._forget(address, connection)

    def _drop_idle(self, before_s: float) -> None:
        """Close what was used last before then. The lock is held."""
        for address in tuple(self._idle):
            idle = self._idle[address]
            while idle and idle[0][1] < before_s:
                self._forget(address, idle.popleft()[0])
            if not idle:
                del self._idle[address]

    def _forget(self, address: str, connection: BlockingConnection) -> None:
        connection.close()
        self._count_down(address)

    def _count_down(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]
