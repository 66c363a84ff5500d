"""Plugins that look at sends and reads, around the operations of every front."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from roquet.base.errors import Refused
from roquet.broker.api.receive import ReceiveRequest, ReceiveResult
from roquet.broker.api.refusal import Refusal
from roquet.broker.api.replies import ReplyResult
from roquet.broker.api.send import SendBatchRequest, SendRequest, SendResult
from roquet.broker.hooks import ConsumeContext, Outcome, SendContext
from roquet.broker.operations import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.broker.api.caller import Caller
    from roquet.broker.hooks import ConsumeHook, SendHook
    from roquet.broker.operations.wrapping import End, Operation

log = logging.getLogger(__name__)

_C = TypeVar("_C")
_A = TypeVar("_A")


class Codes(Protocol):
    """The response codes by which plugins know outcomes: those of the remoting front."""

    def of(self, result: object, error: Exception | None) -> int:
        """Return the code of an outcome."""
        ...

    def refusal(self, refused: Refused) -> Refusal:
        """Return the refusal that a plugin means by a code of its own choice."""
        ...


class SendHooks:
    """Shows messages, batches and replies to plugins."""

    def __init__(self, hooks: Sequence[SendHook], codes: Codes) -> None:
        self._hooks = hooks
        self._codes = codes

    def begin(self, operation: Operation, request: object, caller: Caller) -> End | None:
        """Let plugins look at a send. Raises Refusal when one of them refuses it."""
        if not isinstance(request, SendRequest | SendBatchRequest):
            return None
        is_batch = isinstance(request, SendBatchRequest)
        body = request.messages if isinstance(request, SendBatchRequest) else request.body
        context = SendContext(
            producer_group=request.producer_group,
            topic=request.topic,
            queue_id=request.queue_id,
            # The service makes the properties the message's own.
            properties=dict(request.properties),
            body_size=len(body),
            born_timestamp=request.born_ms,
            is_batch=is_batch,
            is_reply=operation is table.REPLY,
            peer=caller.address,
        )
        for hook in self._hooks:
            _before(hook.before_send, context, self._codes)

        def end(result: object, error: Exception | None) -> None:
            outcome = _outcome(self._codes, result, error)
            for hook in self._hooks:
                _after(hook.after_send, context, outcome)

        return end


class ConsumeHooks:
    """Shows reads to plugins."""

    def __init__(self, hooks: Sequence[ConsumeHook], codes: Codes) -> None:
        self._hooks = hooks
        self._codes = codes

    def begin(self, operation: Operation, request: object, caller: Caller) -> End | None:
        """Let plugins look at a read. Raises Refusal when one of them refuses it."""
        if not isinstance(request, ReceiveRequest):
            return None
        context = ConsumeContext(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            queue_offset=request.offset,
            peer=caller.address,
        )
        # One that was held has been looked at before it was.
        if operation is not table.RESUME:
            for hook in self._hooks:
                _before(hook.before_consume, context, self._codes)

        def end(result: object, error: Exception | None) -> None:
            outcome = _outcome(self._codes, result, error)
            for hook in self._hooks:
                _after(hook.after_consume, context, outcome)

        return end


def _before(look: Callable[[_C], None], context: _C, codes: Codes) -> None:
    try:
        look(context)
    except Refused as refused:
        raise codes.refusal(refused) from refused
    except Refusal:
        raise
    except Exception:
        log.exception("a hook failed")


def _after(look: Callable[[_C, _A], None], context: _C, outcome: _A) -> None:
    try:
        look(context, outcome)
    except Exception:
        log.exception("a hook failed")


def _outcome(codes: Codes, result: object, error: Exception | None) -> Outcome:
    code = codes.of(result, error)
    if isinstance(error, Refusal):
        return Outcome(code=code, remark=error.text or None)
    if error is not None:
        return Outcome(code=code, remark="the request failed or has no answer")
    found = Outcome(code=code, remark=None)
    if isinstance(result, SendResult):
        ids = ",".join(result.message_ids)
        return dataclasses.replace(found, message_id=ids, queue_offset=result.queue_offset)
    if isinstance(result, ReplyResult):
        return dataclasses.replace(
            found,
            remark=result.fault,
            message_id=result.message_id,
            queue_offset=result.queue_offset,
        )
    if isinstance(result, ReceiveResult):
        return dataclasses.replace(found, remark=result.detail, messages_size=len(result.records))
    return found
