"""Sends that were read together go into the log with one append; each has an answer of its own.

The rules are those of broker/services/send/service.py, step by step; here is only their order:
`ready` for each message, one append, `finished` for each. A message that may have to wait before
it is appended (a topic to be made, a retry, a batch) goes through `SendAdapter.send`, alone, and
those behind it wait for the next turn: the messages of a connection keep their order.

Why here and not in the store: docs/decisions/0006-sends-are-batched-in-the-adapter.md.
"""

from __future__ import annotations

import asyncio
import operator
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Refusal
from roquet.broker.remoting.send.frames import header_of, message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from roquet.broker.messages.appender import Appender, AppendLog
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.remoting.send.frames import SendAnswers
    from roquet.broker.services.send.service import Sending, Sends
    from roquet.model.topic import TopicConfig
    from roquet.protocol.command import Command
    from roquet.remoting.router import Fail, Request
    from roquet.store.results import PutResult

BYTES_MAX = 256 * 1024
"""Bodies appended together: so many bytes are written within a millisecond."""

_Outcome = tuple["Request", "Sending", "PutResult"]


_DRAFT = operator.attrgetter("draft")


class SendBatching:
    """Takes the sends that wait one behind the other."""

    def __init__(
        self,
        sends: Sends,
        callers: Callers,
        appender: Appender,
        log: AppendLog,
        *,
        answers: SendAnswers,
        alone: Callable[[Request], Awaitable[Command]],
    ) -> None:
        """`alone` answers a request that cannot go with others."""
        self._sends = sends
        self._callers = callers
        self.is_settled = appender.is_settled
        """Tells whether a message need not wait to be durable."""
        self._appender = appender
        self.log = log
        """Takes drafts together."""
        self._answers = answers
        self._alone = alone

    def run(self, requests: Iterator[Request], fail: Fail) -> Awaitable[None] | None:
        """Answer requests as `SendAdapter.send` does; return what is to be waited for."""
        try:
            self._sends.check_open()
        except Refusal as closed:
            for request in requests:
                fail(request, closed)
            return None
        group = _Group(self, fail)
        # Nothing else runs meanwhile: what was found of a topic holds for all of these messages.
        known: dict[str, TopicConfig] = {}
        for request in requests:
            try:
                header = header_of(request)
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
                continue
            if header.batch:
                return self._beside(request, fail, group.ended())
            try:
                caller = self._callers.of(request)
                sending = self._sends.ready(message(request, header), caller, known)
            except Refusal as refusal:
                request.reply(self._answers.refused(request, refusal))
                continue
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
                continue
            if sending is None:
                return self._beside(request, fail, group.ended())
            group.add(request, sending)
        return group.ended()

    async def _beside(
        self, request: Request, fail: Fail, others: Coroutine[None, None, None] | None
    ) -> None:
        """Send one alone, while the others wait to be durable."""
        async with asyncio.TaskGroup() as tasks:
            if others is not None:
                tasks.create_task(others)
            try:
                request.reply(await self._alone(request))
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)

    # --- for groups --------------------------------------------------------------------------

    async def settled(self, sending: Sending, result: PutResult) -> PutResult:
        """Wait until it is durable."""
        return await self._appender.settled(sending.draft, result)

    def answer(self, outcomes: Sequence[_Outcome], fail: Fail) -> None:
        """Count what was stored, then answer."""
        answers: list[tuple[Request, Command]] = []
        stored: list[tuple[Sending, PutResult]] = []
        for request, sending, result in outcomes:
            try:
                answer = self._answers.stored(request, self._sends.finished(sending, result))
            except Refusal as refusal:
                answers.append((request, self._answers.refused(request, refusal)))
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
            else:
                answers.append((request, answer))
                stored.append((sending, result))
        self._sends.count(stored)
        for request, answer in answers:
            request.reply(answer)


class _Group:
    """Collects messages, appends them in the order in which they came, has them answered."""

    def __init__(self, batching: SendBatching, fail: Fail) -> None:
        """Collect nothing yet."""
        self._batching = batching
        self._fail = fail
        self._requests: list[Request] = []
        self._sendings: list[Sending] = []
        self._bytes = 0
        self._waiting: list[_Outcome] = []

    def add(self, request: Request, sending: Sending) -> None:
        """Take a message that is ready."""
        self._requests.append(request)
        self._sendings.append(sending)
        self._bytes += len(sending.draft.body)
        if self._bytes >= BYTES_MAX:
            self.append()

    def append(self) -> None:
        """Append what was collected; those are answered that need not wait to be durable."""
        requests, sendings = self._requests, self._sendings
        if not requests:
            return
        self._requests, self._sendings, self._bytes = [], [], 0
        try:
            results = self._batching.log.append(list(map(_DRAFT, sendings)))
        except Exception as error:  # noqa: BLE001  (the router sees it)
            for request in requests:
                self._fail(request, error)
            return
        settled: list[_Outcome] = []
        for outcome in zip(requests, sendings, results, strict=True):
            is_settled = self._batching.is_settled(outcome[2])
            (settled if is_settled else self._waiting).append(outcome)
        self._batching.answer(settled, self._fail)

    def ended(self) -> Coroutine[None, None, None] | None:
        """Append the rest; return what is to be waited for until all are answered."""
        self.append()
        return self._settled() if self._waiting else None

    async def _settled(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for outcome in self._waiting:
                tasks.create_task(self._settle(*outcome))

    async def _settle(self, request: Request, sending: Sending, result: PutResult) -> None:
        try:
            result = await self._batching.settled(sending, result)
        except Exception as error:  # noqa: BLE001  (the router sees it)
            self._fail(request, error)
        else:
            self._batching.answer([(request, sending, result)], self._fail)
