"""The last step before the store, the same for every message that the broker itself appends.

Runs the put hooks (`put_hooks.py`), then appends and waits as long as the message asks. Sends and
send-backs go through here; a delivery of a delayed message does not, since the record still asks
for the delay that it has had.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol

from roquet.broker.messages.put_hooks import Put
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.store.results import BatchDraft, BatchResult, Draft, PutResult, PutStatus
from roquet.store.store import waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.broker.messages.put_hooks import PutHooks

_IPV6_HOST_SIZE = 20


class Store(Protocol):
    """What the appender needs of the message store."""

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append one message and wait for its durability; `wait` overrides property WAIT."""
        ...

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        """Append the messages of a batch."""
        ...


class AppendLog(Protocol):
    """The message store without anything around it."""

    def append(self, drafts: Sequence[Draft]) -> list[PutResult]:
        """Append messages together; each has an outcome of its own. Waits for nothing."""
        ...

    def is_settled(self, end_offset: int) -> bool:
        """Tell whether nothing up to an offset waits for its durability."""
        ...

    async def settled(self, result: PutResult, wait: bool) -> PutResult:
        """Wait for the durability of an appended message."""
        ...


class Copies(Protocol):
    """Knows what slaves have."""

    async def copied(self, end: int) -> tuple[PutStatus, str]:
        """Wait until the log up to `end` is on as many slaves as are asked for."""
        ...

    def has(self, end: int) -> bool:
        """Tell whether it is there, or no copy is asked for."""
        ...


class Appender:
    """Appends drafts after the checks."""

    def __init__(
        self,
        store: Store,
        hooks: PutHooks,
        copies: Copies | None = None,
        *,
        log: AppendLog | None = None,
    ) -> None:
        """Without `copies` nothing waits for slaves, without `log` nothing is appended together."""
        self._store = store
        self._hooks = hooks
        self._copies = copies
        self._log = log
        self._is_inner = False

    @property
    def inner(self) -> Appender:
        """The same for what the broker appends by itself.

        That goes on for a moment when no more is taken of clients; the store refuses what comes too
        late.
        """
        inner = copy.copy(self)
        inner._is_inner = True  # noqa: SLF001  (its own)
        return inner

    @property
    def log(self) -> AppendLog | None:
        """What drafts can be appended to together, once they were made ready."""
        return self._log

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Check, convert, append, wait. The draft may be changed; failures are statuses.

        `wait` overrides the message's own property WAIT.
        """
        refused = self.made_ready(draft)
        return await self.put(draft, wait=wait) if refused is None else refused

    async def append_all(
        self, drafts: Sequence[Draft], *, wait: bool | None = None
    ) -> list[PutResult]:
        """Append drafts as `append` does, but together; each has an outcome of its own."""
        if self._log is None:
            return [await self.append(draft, wait=wait) for draft in drafts]
        results = [self.made_ready(draft) for draft in drafts]
        ready = [draft for draft, why in zip(drafts, results, strict=True) if why is None]
        placed = iter(self._log.append(ready) if ready else [])
        done: list[PutResult] = []
        for draft, why in zip(drafts, results, strict=True):
            result = next(placed) if why is None else why
            if why is None and not self.is_settled(result):
                result = await self.settled(draft, result, wait=wait)
            done.append(result)
        return done

    def made_ready(
        self, draft: Draft, *, as_it_is: bool = False, is_new: bool = True, sent: bool = False
    ) -> PutResult | None:
        """Run the put hooks; return why a draft cannot be appended. May raise Refusal.

        `as_it_is`, `is_new` and `sent` are those of `Put`.
        """
        draft.accepted = not is_new
        refused = self._hooks(draft, Put(sent, self._is_inner, is_new, as_it_is))
        if refused is None:
            draft.sys_flag = with_hosts(draft.sys_flag, draft.born_host, draft.store_host)
        return refused

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append a draft that was made ready, and wait."""
        result = await self._store.put(draft, wait=wait)
        return await self._with_copies(draft, result)

    def is_settled(self, result: PutResult) -> bool:
        """Tell whether there is nothing to wait for after an append to the log."""
        if result.status is not PutStatus.PUT_OK:
            return True
        end = result.physical_offset + result.size
        if self._log is not None and not self._log.is_settled(end):
            return False
        return self._copies is None or self._copies.has(end)

    async def settled(
        self, draft: Draft, result: PutResult, *, wait: bool | None = None
    ) -> PutResult:
        """Wait as long as the durability of a message asks that was appended to the log.

        `wait` overrides the message's own property WAIT.
        """
        assert self._log is not None, "nothing is appended together here"
        result = await self._log.settled(result, waits(draft) if wait is None else wait)
        return await self._with_copies(draft, result)

    async def _with_copies(self, draft: Draft, result: PutResult) -> PutResult:
        # What the message says counts, as in Java; `wait` is about the flush.
        is_done = self._copies is None or result.status is not PutStatus.PUT_OK
        if is_done or draft.properties.get(props.WAIT) == "false":
            return result
        status, why = await self.copied(result.physical_offset + result.size)
        return result._replace(status=status, why=why)

    async def append_as_is(self, drafts: Sequence[Draft]) -> list[PutResult]:
        """Append messages that the broker moves, whatever delay they have had; waits for nothing.

        Each has an outcome of its own; failures are statuses.
        """
        refused = [self.made_ready(draft, as_it_is=True, is_new=False) for draft in drafts]
        ready = [draft for draft, why in zip(drafts, refused, strict=True) if why is None]
        if self._log is None:
            placed = [await self._store.put(draft, wait=False) for draft in ready]
        else:
            placed = self._log.append(ready) if ready else []
        stored = iter(placed)
        return [next(stored) if why is None else why for why in refused]

    def beyond_core(self, topic: str) -> frozenset[str] | None:
        """Return the properties whose messages only `append_as_is` may store under a topic.

        None: all of them, since the topic is refused or each message has to be seen.
        """
        if self._log is None or self._hooks.refused_topic(topic, inner=self._is_inner) is not None:
            return None
        return self._hooks.beyond_core

    async def append_batch(self, batch: BatchDraft) -> BatchResult:
        """Check and append a batch, all or none."""
        refused = self._hooks.refused_topic(batch.topic, inner=self._is_inner)
        if refused is not None:
            return BatchResult(refused.status, [], why=refused.why)
        batch.sys_flag = with_hosts(batch.sys_flag, batch.born_host, batch.store_host)
        result = await self._store.put_batch(batch)
        if not batch.wait or result.status is not PutStatus.PUT_OK:
            return result
        status, why = await self.copied(result.physical_offsets[0] + result.size)
        return result._replace(status=status, why=why)

    async def copied(self, end: int) -> tuple[PutStatus, str]:
        """Return the status of a stored message that may need copies on slaves."""
        if self._copies is None:
            return PutStatus.PUT_OK, ""
        return await self._copies.copied(end)


def with_hosts(flag: int, born_host: bytes, store_host: bytes) -> int:
    """Return a message's flag with the address-family bits that its hosts really have."""
    flag &= ~sys_flag.HOST_BITS
    if len(born_host) == _IPV6_HOST_SIZE:
        flag |= sys_flag.BORN_HOST_V6
    if len(store_host) == _IPV6_HOST_SIZE:
        flag |= sys_flag.STORE_HOST_V6
    return flag
