"""The client for programs without asyncio: the same calls, blocking.

with roquet.sync.connect("rmq://127.0.0.1:9876") as mq, mq.producer("orders") as producer:
    producer.send("orders", b"hello")

Everything runs on one private thread with an event loop. Objects may be used from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from roquet.client import _mq
from roquet.client._signals import stop_at_signal
from roquet.client._sync.receive import Consumer, PullConsumer, Received
from roquet.client._sync.send import Producer
from roquet.client._sync.sockets import Sockets
from roquet.client._sync.transactions import Transaction, TransactionProducer
from roquet.client._sync_admin import Admin
from roquet.client._sync_client.simple_consumer import SimpleConsumer
from roquet.protocol import names
from roquet.service.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.acl.credentials import Credentials
    from roquet.base.errors import RoquetError
    from roquet.client import _received
    from roquet.client._options import ConsumerOptions, ProducerOptions
    from roquet.client._queues.offsets import Start
    from roquet.client._sending.transactions import TransactionState
    from roquet.client._subscriptions import Subscriptions
    from roquet.model.message import StoredMessage
    from roquet.remoting.tls import TlsOptions

    Check = Callable[[StoredMessage], TransactionState]
    Handler = Callable[[Received], None]
    BatchHandler = Callable[[Sequence[Received]], None]

T = TypeVar("T")

__all__ = [
    "MQ",
    "Admin",
    "Consumer",
    "Producer",
    "PullConsumer",
    "Received",
    "SimpleConsumer",
    "Transaction",
    "TransactionProducer",
    "connect",
]


def connect(
    url: str,
    *,
    tls: TlsOptions | bool | None = None,
    credentials: Credentials | None = None,
    on_error: Callable[[RoquetError], None] | None = None,
    on_disconnect: Callable[[str], None] | None = None,
    trace: bool | str = False,
) -> MQ:
    """Make a client, as `roquet.connect` does; use it as `with roquet.sync.connect(...) as mq:`.

    `on_error` and `on_disconnect` are called on the client's thread: they must not wait.
    """
    made = _mq.connect(
        url,
        tls=tls,
        credentials=credentials,
        on_error=on_error,
        on_disconnect=on_disconnect,
        trace=trace,
    )
    return MQ(made)


class MQ:
    """A client of one cluster, blocking."""

    def __init__(self, inner: _mq.MQ) -> None:
        """Wrap; nothing runs yet."""
        self._inner = inner
        self._loop = LoopThread("roquet-client")
        self._sockets = Sockets(self._loop)
        self._pools = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def start(self) -> None:
        """Begin the background work."""
        self._loop.run(self._inner.start())

    def close(self) -> None:
        """Close all connections and end the thread. Twice is once."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self._inner.close())
        finally:
            self._sockets.close()
            self._pools.close()
            self._loop.close()

    @property
    def client_id(self) -> str:
        """How brokers know this client."""
        return self._inner.client_id

    def producer(
        self, group: str = names.DEFAULT_PRODUCER_GROUP, *, options: ProducerOptions | None = None
    ) -> Producer:
        """Make a producer."""
        made = self._loop.call(lambda: self._inner.producer(group, options=options))
        return Producer(made, self._loop, self._sockets)

    def transaction_producer(
        self,
        group: str,
        check: Check | None = None,
        *,
        options: ProducerOptions | None = None,
    ) -> TransactionProducer:
        """Make a producer of transactions; `check` runs on a thread of its own."""
        checked = None if check is None else on_a_thread(check)
        made = self._loop.call(
            lambda: self._inner.transaction_producer(group, checked, options=options)
        )
        return TransactionProducer(made, self._loop, self._sockets)

    def consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        *,
        start: Start = "latest",
        ordered: bool = False,
        options: ConsumerOptions | None = None,
    ) -> Consumer:
        """Make a consumer."""
        made = self._loop.call(
            lambda: self._inner.consumer(
                group, subscriptions, start=start, ordered=ordered, options=options
            )
        )
        return Consumer(made, self._loop)

    def pull_consumer(self, group: str, *, options: ConsumerOptions | None = None) -> PullConsumer:
        """Make a pull consumer."""
        made = self._loop.call(lambda: self._inner.pull_consumer(group, options=options))
        return PullConsumer(made, self._loop)

    def simple_consumer(
        self,
        group: str,
        subscriptions: Subscriptions,
        *,
        start: Literal["earliest", "latest"] = "latest",
        options: ConsumerOptions | None = None,
    ) -> SimpleConsumer:
        """Make a consumer that receives and acknowledges messages one by one."""
        made = self._loop.call(
            lambda: self._inner.simple_consumer(group, subscriptions, start=start, options=options)
        )
        return SimpleConsumer(made, self._loop)

    def subscriber(
        self,
        subscriptions: Subscriptions,
        *,
        group: str,
        concurrency: int = 20,
        start: Start = "latest",
        ordered: bool = False,
        options: ConsumerOptions | None = None,
    ) -> Callable[[Handler], Handler]:
        """Decorate the function that handles each message of a group; `run` or `serve` starts it.

        It is called on `concurrency` threads of its own.
        """
        made = self._inner.subscriber(
            subscriptions,
            group=group,
            concurrency=concurrency,
            start=start,
            ordered=ordered,
            options=options,
        )

        def register(handler: Handler) -> Handler:
            pool = self._pools.enter_context(ThreadPoolExecutor(max(1, concurrency)))

            async def handle(received: _received.Received) -> None:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(pool, handler, Received(received, self._loop))

            self._loop.call(lambda: made(handle))
            return handler

        return register

    def batch_subscriber(
        self,
        subscriptions: Subscriptions,
        *,
        group: str,
        size: int = 32,
        linger_s: float = 0.0,
        concurrency: int = 1,
        start: Start = "latest",
        options: ConsumerOptions | None = None,
    ) -> Callable[[BatchHandler], BatchHandler]:
        """Decorate the function that handles batches of a group; `run` or `serve` starts it.

        It is called on `concurrency` threads of its own.
        """
        made = self._inner.batch_subscriber(
            subscriptions,
            group=group,
            size=size,
            linger_s=linger_s,
            concurrency=concurrency,
            start=start,
            options=options,
        )

        def register(handler: BatchHandler) -> BatchHandler:
            pool = self._pools.enter_context(ThreadPoolExecutor(max(1, concurrency)))

            async def handle(batch: Sequence[_received.Received]) -> None:
                loop = asyncio.get_running_loop()
                wrapped = [Received(one, self._loop) for one in batch]
                await loop.run_in_executor(pool, handler, wrapped)

            self._loop.call(lambda: made(handle))
            return handler

        return register

    def transaction_checker(self, group: str) -> Callable[[Check], Check]:
        """Decorate the check of a group's transactions; it runs on a thread of its own."""
        register = self._inner.transaction_checker(group)

        def registered(check: Check) -> Check:
            register(on_a_thread(check))
            return check

        return registered

    def serve(self) -> None:
        """Consume for all subscribers until they are stopped. Raises what ends one of them."""
        self._loop.run(self._inner.serve())

    def drain(self, timeout_s: float = 30.0) -> bool:
        """End in good order: wait for what was submitted and what consumers gave out.

        Returns whether all was done in `timeout_s`. `close` ends the thread afterwards.
        """
        return self._loop.run(self._inner.drain(timeout_s))

    def stop_consumers(self) -> None:
        """Have consumers give out no more messages; `run` does it at a signal."""
        self._loop.post(self._inner.stop_consumers)

    def run(self, work: Callable[[], T]) -> T:
        """Call `work` and return its result; SIGTERM and SIGINT end its consumers' loops.

        For subscribers that is `mq.run(mq.serve)`.

        At the first signal they give out no more messages, so that `work` comes to its end; then
        they commit and leave their groups. A second one raises KeyboardInterrupt. Call it on the
        main thread.
        """
        with stop_at_signal(self.stop_consumers):
            return work()

    def admin(self) -> Admin:
        """Return the administrative calls."""
        return Admin(self._inner.admin(), self._loop)


def on_a_thread(check: Check) -> Callable[[StoredMessage], Awaitable[TransactionState]]:
    """Return the check as the asyncio client calls it."""

    async def checked(message: StoredMessage) -> TransactionState:
        return await asyncio.to_thread(check, message)

    return checked
