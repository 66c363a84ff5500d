"""Messages of several sends on their way into the log together: one append, an outcome for each.

What a message must fulfil and how it is answered is the send processor's business, whether it came
alone or with others (broker/processors/send.py); here is only the order of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from roquet.broker.appender import Appender, Log
    from roquet.remoting.router import Fail, Request
    from roquet.store.results import Draft, PutResult

BYTES_MAX = 256 * 1024
"""Bodies appended together: so many bytes are written within a millisecond."""


@dataclasses.dataclass(slots=True)
class Sending:
    """A message that is about to be stored, and what its answer and the figures need to know."""

    request: Request
    draft: Draft
    queue_id: int
    """The queue that the producer is told, wherever the message waits until then."""
    counted_as: str = ""
    """The topic that it counts for."""
    half_of: str | None = None
    """The topic that it is a half message for."""


Outcome = tuple[Sending, "PutResult"]


class Answering(Protocol):
    """Answers messages whose outcome is known."""

    def __call__(self, outcomes: Sequence[Outcome], fail: Fail, /) -> None:
        """Count and answer each; what goes wrong with one of them is told through `fail`."""
        ...


class Group:
    """Collects messages, appends them in the order in which they came, has them answered."""

    def __init__(self, appender: Appender, log: Log, answer: Answering, fail: Fail) -> None:
        """Collect nothing yet."""
        self._appender = appender
        self._log = log
        self._answer = answer
        self._fail = fail
        self._collected: list[Sending] = []
        self._bytes = 0
        self._waiting: list[Outcome] = []

    def add(self, sending: Sending) -> None:
        """Take a message that the appender has made ready."""
        self._collected.append(sending)
        self._bytes += len(sending.draft.body)
        if self._bytes >= BYTES_MAX:
            self.append()

    def append(self) -> None:
        """Append what was collected; those are answered that need not wait to be durable."""
        collected, self._collected, self._bytes = self._collected, [], 0
        if not collected:
            return
        try:
            results = self._log.append([each.draft for each in collected])
        except Exception as error:  # noqa: BLE001  (the router sees it)
            for each in collected:
                self._fail(each.request, error)
            return
        outcomes = list(zip(collected, results, strict=True))
        is_settled = self._appender.is_settled
        late = [it for it in outcomes if not is_settled(it[1])]
        if late:
            self._waiting += late
            outcomes = [it for it in outcomes if is_settled(it[1])]
        self._answer(outcomes, self._fail)

    def ended(self) -> Coroutine[None, None, None] | None:
        """Append the rest; return what is to be waited for until all are answered."""
        self.append()
        return self._settled() if self._waiting else None

    async def _settled(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for outcome in self._waiting:
                tasks.create_task(self._settle(*outcome))

    async def _settle(self, sending: Sending, result: PutResult) -> None:
        try:
            result = await self._appender.settled(sending.draft, result)
        except Exception as error:  # noqa: BLE001  (the router sees it)
            self._fail(sending.request, error)
        else:
            self._answer([(sending, result)], self._fail)
