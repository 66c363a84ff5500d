"""Blocking form of Transaction: written by `python -m tools.sync_client`, do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.client._sending import transactions
    from roquet.service.loop_thread import LoopThread


class Transaction:
    """One message that is not decided yet, blocking."""

    def __init__(self, inner: transactions.Transaction, loop: LoopThread) -> None:
        """Wrap."""
        self._inner = inner
        self._loop = loop

    def commit(self) -> None:
        """Let consumers see the message.

        Raises Refused, Unreachable and OutcomeUnknown: then the broker will ask later.
        """
        self._loop.run(self._inner.commit())

    def rollback(self) -> None:
        """Drop the message. Raises as `commit` does."""
        self._loop.run(self._inner.rollback())

    def leave_open(self) -> None:
        """Say nothing now: the broker will ask `check`."""
        self._loop.call(self._inner.leave_open)
