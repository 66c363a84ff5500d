"""POP over remoting: 200050 to 200056 and 200151.

These codes do not fit in the one-row header encoding, so they arrive as JSON only. Java clients
read the numbers of these answers without looking at the code: every answer to a request that could
be read has them (spec: wire §11, §20).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from roquet.acl.needs import batch_ack_needs
from roquet.broker.api.pop import (
    ChangeInvisibleRequest,
    LightAckRequest,
    LightInvisibleRequest,
    NotificationRequest,
    PeekRequest,
    PopAckRequest,
    PopBatchAck,
    PopRequest,
)
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.receive.polls import Poll, Waiting
from roquet.broker.pop.receive.reads import has_wanted
from roquet.broker.remoting.bodies import parts_of
from roquet.broker.remoting.clients.pop_requests import notification_request, pop_request
from roquet.broker.remoting.clients.waiting_pops import (
    WokenPop,
    may_still,
    unheld_code,
    waiting_request,
)
from roquet.broker.remoting.refusals import refusal_reply
from roquet.broker.services.light_reads import is_judged
from roquet.protocol.bodies import fields
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers import pop as headers
from roquet.protocol.pop import handle
from roquet.protocol.pop.batch_ack import BatchAckBody
from roquet.remoting.router import Ports, Request, Route
from roquet.store.results import GetStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.api.pop import PopResult
    from roquet.broker.light.pops import LightAcks
    from roquet.broker.pop.receive.acks import KnownBounds, PopAcks, Settling
    from roquet.broker.pop.receive.browse import PopBrowser
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.polls import PopPolls
    from roquet.broker.pop.receive.reads import Reader
    from roquet.broker.pop.receive.service import PopService
    from roquet.broker.remoting.callers import Readers
    from roquet.protocol.bodies.fields import Steps
    from roquet.remoting.router import Fail
    from roquet.service.lanes import Lane

_W = TypeVar("_W", PopRequest, NotificationRequest)
NOT_SET = "not set any response code"
"""The remark of 5.5.0 under some of its successes."""
_LOOKS_MAX = 32
"""New messages that an arrival looks at for a filter; with more a poll is woken anyway."""


class PopAdapter:
    """Answers pops, and has those wait that find nothing."""

    def __init__(
        self,
        service: PopService,
        checks: PopChecks,
        polls: PopPolls,
        *,
        store: Reader,
        lane: Lane,
        clock: Clock,
        readers: Readers,
    ) -> None:
        """`lane` runs the pops that were woken."""
        self._readers = readers
        self.in_core: Callable[[Request, PopRequest], bool] = _not_in_core
        """Has a pop that was woken answered by the fast path; False leaves it to the service."""
        self._lane = lane
        self._service = service
        self._checks = checks
        self._polls = polls
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the codes this answers; the fast port does not serve them."""
        return [
            Route((RequestCode.POP_MESSAGE,), self.pop, "pull", Ports.MAIN),
            Route((RequestCode.POLLING_INFO,), self.polling_info, "pull", Ports.MAIN),
            Route((RequestCode.POP_ROLLBACK,), self.rollback, "admin"),
        ]

    async def pop(self, request: Request) -> Command | None:
        """Answer 200050 now, or let it wait and return None."""
        return await self._answer(request, pop_request(request, self._readers, self._clock))

    def resume(self, request: Request, born_ms: int) -> None:
        """Answer a pop that has waited elsewhere, for a client that waits since `born_ms`."""
        wanted = pop_request(request, self._readers, self._clock, born_ms=born_ms)
        self._try_later(request, wanted)

    def polling_info(self, request: Request) -> Command:
        """Answer 200055: how many pops wait for messages of a queue."""
        header = headers.PollingInfoRequest.decode(request.command.ext)
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        try:
            self._checks.polling(topic, group, queue_id)
        except Refusal as refusal:
            ext = headers.PollingInfoResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        count = self._polls.count(topic, group, queue_id)
        ext = headers.PollingInfoResponse(polling_num=count).encode()
        return reply_to(request.command, remark=NOT_SET, ext=ext)

    def rollback(self, request: Request) -> Command:
        """Answer 200056: records go back from RocksDB to the revive topic, and all are there."""
        return reply_to(request.command, remark=NOT_SET)

    async def _answer(self, request: Request, wanted: PopRequest) -> Command | None:
        try:
            result = await self._service.pop(wanted)
        except Refusal as refusal:
            ext = headers.PopMessageResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        # A pop for all queues leaves nothing to one for a certain queue, and the reverse.
        key = wanted.topic, wanted.group, wanted.queue_id
        if result.messages:
            if result.rest > 0:
                self._polls.wake(*key)
            return _popped(request.command, wanted, result, ResponseCode.SUCCESS)
        waiting = Waiting.LATE
        if wanted.poll_ms > 0:
            poll = _poll(request, wanted, self._resume, store=self._store, checks=self._checks)
            waiting = self._polls.hold(poll)
        if waiting is Waiting.HELD:
            if result.advanced and result.rest > 0:
                self._polls.wake(*key)
            return None
        return _popped(request.command, wanted, result, unheld_code(waiting))

    def _resume(self, request: Request, wanted: PopRequest) -> None:
        if not request.peer.is_open:
            return
        refused = headers.PopMessageResponse().encode()
        if not may_still(request, wanted.check_waiting, refused):
            return
        if not self.in_core(request, wanted):
            self._try_later(request, wanted)

    def _try_later(self, request: Request, wanted: PopRequest) -> None:
        self._lane.submit(WokenPop(request, wanted, self._answer, self._clock.now_ms()))


class PopAckAdapter:
    """Takes acknowledgements and other invisible times."""

    def __init__(self, acks: PopAcks, lights: LightAcks, readers: Readers) -> None:
        """`lights` settles messages of light topics."""
        self._readers = readers
        self._acks = acks
        self._lights = lights

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.ACK_MESSAGE,), self.ack, "ack", batch=self.acks),
            Route((RequestCode.BATCH_ACK_MESSAGE,), self.ack_batch, "ack"),
            Route((RequestCode.CHANGE_MESSAGE_INVISIBLETIME,), self.change_invisible, "ack"),
        ]

    async def ack(self, request: Request) -> Command:
        """Answer 200051 when the acknowledgement is stored."""
        settling = self._begin(request, {})
        if settling is not None:
            (result,) = await self._acks.store([settling])
            self._acks.check_stored(result)
        return reply_to(request.command)

    def _begin(self, request: Request, known: KnownBounds) -> Settling | None:
        """Check an acknowledgement; return what has to be stored of it, None when it is done."""
        header = headers.AckMessageRequest.decode(request.command.ext)
        if _is_light(header.lite_topic):
            self._lights.ack(_light_ack(header), request.peer.address)
            return None
        return self._acks.begin(_ack_of(header), request.peer.address, known)

    def acks(self, requests: Iterator[Request], fail: Fail) -> Awaitable[None] | None:
        """Answer requests as `ack` does; those that were read together are stored together."""
        # Nothing else runs meanwhile: what was found of a queue holds for all of them.
        known: KnownBounds = {}
        waiting: list[tuple[Request, Settling]] = []
        for request in requests:
            try:
                settling = self._begin(request, known)
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
                continue
            if settling is None:
                request.reply(reply_to(request.command))
            else:
                waiting.append((request, settling))
        return self._store(waiting, fail) if waiting else None

    async def _store(self, waiting: Sequence[tuple[Request, Settling]], fail: Fail) -> None:
        try:
            results = await self._acks.store([settling for _, settling in waiting])
        except Exception as error:  # noqa: BLE001  (the router sees it)
            for request, _ in waiting:
                fail(request, error)
            return
        for (request, _), result in zip(waiting, results, strict=True):
            try:
                self._acks.check_stored(result)
            except Refusal as refusal:
                fail(request, refusal)
            else:
                request.reply(reply_to(request.command))

    async def ack_batch(self, request: Request) -> Command:
        """Answer 200151 when all of them are stored."""
        command = request.command
        if not command.body:
            self._acks.check_count(0)
        prefix = "the batch cannot be read: "
        body = await parts_of(command, self._batch, Reason.FAILED, prefix)
        await self._readers.require(request, batch_ack_needs(body))
        batches = [
            PopBatchAck(
                topic=handle.real_topic(it.topic, it.group, it.retry_flag),
                group=it.group,
                queue_id=it.queue_id,
                start_offset=it.start_offset,
                pop_time_ms=it.pop_time_ms,
                invisible_ms=it.invisible_ms,
                revive_queue=it.revive_queue,
                offsets=it.offsets,
            )
            for it in body.acks
        ]
        await self._acks.ack_batch(body.broker_name, batches)
        return reply_to(command)

    def _batch(self, source: Mapping[str, Any]) -> Steps[BatchAckBody]:
        """Read a batch, unless it has more rows than one may have."""
        self._acks.check_count(len(fields.array(source, "acks")))
        return BatchAckBody.of_json(source)

    async def change_invisible(self, request: Request) -> Command:
        """Answer 200053 when the new time is stored."""
        header = headers.ChangeInvisibleTimeRequest.decode(request.command.ext)
        if _is_light(header.lite_topic):
            return self._light_invisible(request, header)
        wanted = ChangeInvisibleRequest(
            topic=header.topic,
            group=header.consumer_group,
            queue_id=header.queue_id,
            offset=header.offset,
            handle=header.extra_info,
            invisible_ms=header.invisible_time,
            is_suspended=header.suspend,
            may_read=self._readers.of(request),
        )
        try:
            changed = await self._acks.change_invisible(wanted, request.peer.address)
        except Refusal as refusal:
            ext = headers.ChangeInvisibleTimeResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        ext = headers.ChangeInvisibleTimeResponse.written(
            pop_time=changed.pop_time_ms,
            invisible_time=changed.invisible_ms,
            revive_qid=changed.revive_queue,
        )
        return reply_to(request.command, remark=NOT_SET, ext=ext)

    def _light_invisible(
        self, request: Request, header: headers.ChangeInvisibleTimeRequest
    ) -> Command:
        wanted = LightInvisibleRequest(
            topic=header.topic,
            name=header.lite_topic or "",
            group=header.consumer_group,
            queue_id=header.queue_id,
            offset=header.offset,
            handle=header.extra_info,
            invisible_ms=header.invisible_time,
            is_suspended=header.suspend,
        )
        try:
            changed = self._lights.change_invisible(wanted, request.peer.address)
        except Refusal as refusal:
            ext = headers.ChangeInvisibleTimeResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        ext = headers.ChangeInvisibleTimeResponse().encode()
        if changed is not None:
            ext = headers.ChangeInvisibleTimeResponse.written(
                pop_time=changed.pop_time_ms,
                invisible_time=changed.invisible_ms,
                revive_qid=changed.revive_queue,
            )
        return reply_to(request.command, ext=ext)


class PopBrowseAdapter:
    """Answers peeks, and tells when there is something to pop."""

    def __init__(
        self,
        browser: PopBrowser,
        checks: PopChecks,
        polls: PopPolls,
        *,
        store: Reader,
        clock: Clock,
        readers: Readers,
    ) -> None:
        self._readers = readers
        self._browser = browser
        self._checks = checks
        self._polls = polls
        self._store = store
        self._clock = clock

    def routes(self) -> list[Route]:
        """Return the codes this answers; the fast port does not serve them."""
        return [
            Route((RequestCode.PEEK_MESSAGE,), self.peek, "pull", Ports.MAIN),
            Route((RequestCode.NOTIFICATION,), self.notification, "pull", Ports.MAIN),
        ]

    def peek(self, request: Request) -> Command:
        """Answer 200052: what a group would get next."""
        header = headers.PeekMessageRequest.decode(request.command.ext)
        wanted = PeekRequest(
            topic=header.topic,
            group=header.consumer_group,
            queue_id=header.queue_id,
            max_messages=header.max_msg_nums,
            may_read=self._readers.of(request),
        )
        try:
            result = self._browser.peek(wanted)
        except Refusal as refusal:
            ext = headers.PopMessageResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        found = result.messages > 0
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_NOT_FOUND
        status = GetStatus.FOUND if found else GetStatus.NO_MESSAGE_IN_QUEUE
        ext = headers.PopMessageResponse.written(rest_num=result.rest)
        return reply_to(request.command, code, remark=status.name, ext=ext, body=result.records)

    def notification(self, request: Request) -> Command | None:
        """Answer 200054 now, or when a message comes, or when its time is over."""
        return self._answer(request, notification_request(request, self._readers, self._clock))

    def _answer(self, request: Request, wanted: NotificationRequest) -> Command | None:
        try:
            found = self._browser.has_messages(wanted)
        except Refusal as refusal:
            ext = headers.NotificationResponse().encode()
            return refusal_reply(request.command, refusal, ext=ext)
        waiting = Waiting.LATE
        if not found and wanted.poll_ms > 0:
            poll = _poll(request, wanted, self._resume, store=self._store, checks=self._checks)
            waiting = self._polls.hold(poll)
        if waiting is Waiting.HELD:
            return None
        ext = headers.NotificationResponse.written(
            has_msg=found, polling_full=waiting is Waiting.FULL
        )
        return reply_to(request.command, remark=NOT_SET, ext=ext)

    def _resume(self, request: Request, wanted: NotificationRequest) -> None:
        if not may_still(request, wanted.check_waiting, headers.NotificationResponse().encode()):
            return
        answer = self._answer(request, wanted)
        if answer is not None:
            request.reply(answer)


def _ack_of(header: headers.AckMessageRequest) -> PopAckRequest:
    return PopAckRequest(
        topic=header.topic,
        group=header.consumer_group,
        queue_id=header.queue_id,
        offset=header.offset,
        handle=header.extra_info,
    )


def _light_ack(header: headers.AckMessageRequest) -> LightAckRequest:
    return LightAckRequest(
        topic=header.topic,
        name=header.lite_topic or "",
        group=header.consumer_group,
        queue_id=header.queue_id,
        offset=header.offset,
        handle=header.extra_info,
    )


def _not_in_core(request: Request, wanted: PopRequest) -> bool:
    """Leave every pop to the service, as long as there is no fast path."""
    del request, wanted
    return False


def _is_light(name: str | None) -> bool:
    """Tell whether a request is about a light topic, by the name that it gives."""
    return name is not None and bool(name.strip())


def _popped(command: Command, wanted: PopRequest, result: PopResult, code: ResponseCode) -> Command:
    found = code is ResponseCode.SUCCESS
    counts = result.order_counts
    ext = headers.PopMessageResponse.written(
        pop_time=result.pop_time_ms,
        invisible_time=wanted.invisible_ms,
        revive_qid=result.revive_queue,
        rest_num=result.rest,
        start_offset_info=handle.start_offset_info(result.taken),
        msg_offset_info=handle.msg_offset_info(result.taken),
        order_count_info=None if counts is None else handle.order_count_info(counts),
    )
    status = GetStatus.FOUND if found else GetStatus.NO_MESSAGE_IN_QUEUE
    return reply_to(command, code, remark=status.name, ext=ext, body=result.records)


def _poll(
    request: Request,
    wanted: _W,
    resume: Callable[[Request, _W], None],
    *,
    store: Reader,
    checks: PopChecks,
) -> Poll:
    """Return a request that waits."""
    waiting = waiting_request(request)

    def matches(queue_id: int, begin: int, end: int) -> bool:
        # Worked out once and remembered there: a poll itself keeps no more than the text.
        takes = checks.wanted(wanted.topic, wanted.expression, wanted.expression_type)
        return has_wanted(
            *(store, (wanted.topic, queue_id), begin, end),
            wanted=takes,
            most=_LOOKS_MAX,
            may_read=wanted.may_read,
        )

    looks = wanted.expression not in {None, "", "*"} or is_judged(wanted.topic, wanted.may_read)
    return Poll(
        topic=wanted.topic,
        group=wanted.group,
        queue_id=wanted.queue_id,
        peer=request.peer,
        expires_ms=wanted.born_ms + wanted.poll_ms,
        resume=functools.partial(resume, waiting, wanted),
        matches=matches if looks else None,
    )
