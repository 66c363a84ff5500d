"""The client for programs without asyncio: the same calls, blocking.

with roquet.sync.connect("rmq://127.0.0.1:9876") as mq, mq.producer("orders") as producer:
    producer.send("orders", b"hello")

Everything runs on one private thread with an event loop. Objects may be used from any thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from roquet.client import _mq
from roquet.client._signals import stop_at_signal
from roquet.client._sync_admin import Admin
from roquet.client._sync_client.simple_consumer import SimpleConsumer
from roquet.client._sync_receive import Consumer, PullConsumer, Received
from roquet.client._sync_send import Producer
from roquet.client._sync_transactions import Transaction, TransactionProducer
from roquet.protocol import names
from roquet.service.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.credentials import Credentials
    from roquet.client._mq import Subscriptions
    from roquet.client._offsets import Start
    from roquet.client._options import ConsumerOptions, ProducerOptions
    from roquet.client._transactions import TransactionState
    from roquet.model.message import StoredMessage
    from roquet.remoting.tls import TlsOptions

    Check = Callable[[StoredMessage], TransactionState]

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
    url: str, *, tls: TlsOptions | bool | None = None, credentials: Credentials | None = None
) -> MQ:
    """Make a client, as `roquet.connect` does; use it as `with roquet.sync.connect(...) as mq:`."""
    return MQ(_mq.connect(url, tls=tls, credentials=credentials))


class MQ:
    """A client of one cluster, blocking."""

    def __init__(self, inner: _mq.MQ) -> None:
        """Wrap; nothing runs yet."""
        self._inner = inner
        self._loop = LoopThread("roquet-client")

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
        try:
            self._loop.run(self._inner.close())
        finally:
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
        return Producer(made, self._loop)

    def transaction_producer(
        self,
        group: str,
        check: Check,
        *,
        options: ProducerOptions | None = None,
    ) -> TransactionProducer:
        """Make a producer of transactions; `check` runs on a thread of its own."""

        async def checked(message: StoredMessage) -> TransactionState:
            return await asyncio.to_thread(check, message)

        made = self._loop.call(
            lambda: self._inner.transaction_producer(group, checked, options=options)
        )
        return TransactionProducer(made, self._loop)

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

    def stop_consumers(self) -> None:
        """Have consumers give out no more messages; `run` does it at a signal."""
        self._loop.soon(self._inner.stop_consumers)

    def run(self, work: Callable[[], T]) -> T:
        """Call `work` and return its result; SIGTERM and SIGINT end its consumers' loops.

        At the first signal they give out no more messages, so that `work` comes to its end; then
        they commit and leave their groups. A second one raises KeyboardInterrupt. Call it on the
        main thread.
        """
        with stop_at_signal(self.stop_consumers):
            return work()

    def admin(self) -> Admin:
        """Return the administrative calls."""
        return Admin(self._inner.admin(), self._loop)
