"""Transactions of the blocking client; see sync.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from roquet.client._sync.send import Producer
from roquet.client._sync_client import transactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.client._sending import transactions as _transactions
    from roquet.client._sending.receipt import SendReceipt
    from roquet.client._sending.transactions import TransactionState
    from roquet.client._sync.sockets import Sockets
    from roquet.client.codecs.base import Codec
    from roquet.model.message import Message
    from roquet.model.queue import MessageQueue
    from roquet.service.loop_thread import LoopThread


class Transaction(transactions.Transaction):
    """One message that is not decided yet, blocking. Leaving its `with` block commits it."""

    def __enter__(self) -> Self:
        """Begin the work."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, unless it is decided or an exception leaves it to the check."""
        if kind is None and self.state is None:
            self.commit()

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message is."""
        return self._inner.receipt

    @property
    def state(self) -> TransactionState | None:
        """What was told to the broker."""
        return self._inner.state


class TransactionProducer(Producer):
    """A producer whose messages may depend on work of its own, blocking."""

    def __init__(
        self, inner: _transactions.TransactionProducer, loop: LoopThread, sockets: Sockets
    ) -> None:
        """Wrap."""
        super().__init__(inner, loop, sockets)
        self._transactional = inner

    def begin(
        self,
        topic: str | Message,
        body: object = b"",
        *,
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        codec: Codec | None = None,
        order_key: str | None = None,
        queue: MessageQueue | None = None,
        check_after_s: int | None = None,
        timeout_s: float | None = None,
    ) -> Transaction:
        """Send a message that nobody sees before its commit."""
        inner = self._loop.run(
            self._transactional.begin(
                topic,
                body,
                tag=tag,
                keys=keys,
                properties=properties,
                codec=codec,
                order_key=order_key,
                queue=queue,
                check_after_s=check_after_s,
                timeout_s=timeout_s,
            )
        )
        return Transaction(inner, self._loop)
