"""What a pop or a question for messages to pop wants, read from its frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.pop import NotificationRequest, PopRequest
from roquet.broker.pop.receive.orders import ATTEMPT_LENGTH_MAX
from roquet.broker.remoting.clients.waiting_pops import pledge
from roquet.protocol.headers import pop as headers

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.remoting.callers import Readers
    from roquet.remoting.router import Request


def pop_request(
    request: Request, readers: Readers, clock: Clock, *, born_ms: int | None = None
) -> PopRequest:
    """Return what a 200050 wants. Raises HeaderError.

    `born_ms` is since when its client waits, where that is not for its frame to say.
    """
    header = headers.PopMessageRequest.decode(request.command.ext)
    return PopRequest(
        topic=header.topic,
        group=header.consumer_group,
        queue_id=header.queue_id,
        max_messages=header.max_msg_nums,
        invisible_ms=header.invisible_time,
        poll_ms=header.poll_time,
        born_ms=born_ms or header.born_time or clock.now_ms(),
        from_first=header.init_mode == 0,
        expression_type=header.exp_type,
        expression=header.exp,
        is_ordered=header.order,
        attempt_id=_attempt(header.attempt_id),
        may_read=readers.of(request),
        check_waiting=pledge(readers, request, header),
    )


def notification_request(request: Request, readers: Readers, clock: Clock) -> NotificationRequest:
    """Return what a 200054 wants. Raises HeaderError."""
    header = headers.NotificationRequest.decode(request.command.ext)
    return NotificationRequest(
        topic=header.topic,
        group=header.consumer_group,
        queue_id=header.queue_id,
        poll_ms=header.poll_time,
        born_ms=header.born_time or clock.now_ms(),
        is_ordered=header.order,
        attempt_id=_attempt(header.attempt_id),
        expression_type=header.exp_type,
        expression=header.exp,
        may_read=readers.of(request),
        check_waiting=pledge(readers, request, header),
    )


def _attempt(attempt_id: str | None) -> str | None:
    """Return what is kept of the name of an attempt: 100,000 requests may wait with one."""
    return None if attempt_id is None else attempt_id[:ATTEMPT_LENGTH_MAX]
