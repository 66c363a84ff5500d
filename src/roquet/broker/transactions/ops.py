"""Op records: which half messages are settled, written down some at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.broker.transactions.drafts import op_draft
from roquet.protocol import names
from roquet.service.background import Tasks

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.metrics.traffic import InnerTraffic
    from roquet.broker.state import Identity
    from roquet.broker.transactions.book import TransactionBook
    from roquet.broker.transactions.verdict import TransactionConfig
    from roquet.store.results import Draft, PutResult

log = logging.getLogger(__name__)

RETRY_S = 1.0


class Writer(Protocol):
    """Where op records go."""

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append a message."""
        ...


class OpWriter:
    """Gathers settled half offsets and writes them down; none is dropped while the store takes any.

    What a crash keeps from being written is asked about again after the restart.
    """

    def __init__(
        self,
        store: Writer,
        book: TransactionBook,
        identity: Identity,
        rules: TransactionConfig,
        clock: Clock,
        *,
        traffic: InnerTraffic,
    ) -> None:
        self._store = store
        self._traffic = traffic
        self._identity = identity
        self._book = book
        self._rules = rules
        self._clock = clock
        self._waiting: list[int] = []
        self._bytes = 0
        self._writing = False
        self._tasks = Tasks()

    def follow(self, rules: TransactionConfig) -> None:
        """Gather by other rules from now on."""
        self._rules = rules

    def add(self, half_offset: int) -> None:
        """Have an offset written down soon."""
        self._waiting.append(half_offset)
        self._bytes += len(str(half_offset)) + 1
        if self._bytes >= self._rules.op_bytes_max:
            self._tasks.spawn(self._write_full(), "full op record")
        if not self._writing:
            self._writing = True
            self._tasks.spawn(self._write_soon(), "op records")

    def begin(self) -> None:
        """Forget what could not be written before the last stop: it is asked about again."""
        self._waiting.clear()
        self._bytes = 0
        self._writing = False

    async def stop(self) -> None:
        """Write down what is left."""
        await self._tasks.stop()
        self._writing = False
        await self.write()

    async def write(self) -> bool:
        """Write down all that waits; tell whether the store took it."""
        while self._waiting:
            part = self._take()
            host, now_ms = self._identity.store_host, self._clock.now_ms()
            result = await self._store.put(op_draft(part, host, now_ms), wait=False)
            if not result.status.is_stored:
                log.warning("an op record was not stored: %s %s", result.status.name, result.why)
                self._waiting[:0] = part
                self._bytes += sum(len(str(offset)) + 1 for offset in part)
                return False
            self._traffic.moved(names.TRANS_OP_HALF_TOPIC, result.size)
            self._book.note_op(result.queue_offset, max(part))
        return True

    def _take(self) -> list[int]:
        part: list[int] = []
        size = 0
        for offset in self._waiting:
            size += len(str(offset)) + 1
            if part and size > self._rules.op_bytes_max:
                size -= len(str(offset)) + 1
                break
            part.append(offset)
        del self._waiting[: len(part)]
        self._bytes -= size
        return part

    async def _write_full(self) -> None:
        await self.write()

    async def _write_soon(self) -> None:
        try:
            await self._clock.sleep(self._rules.op_interval_ms / 1000)
            while not await self.write():
                await self._clock.sleep(RETRY_S)
        finally:
            self._writing = False
