"""Recall of timer messages (370), and what slaves copy of the wheel (60, 61).

Spec: broker.md "RECALL 370", wire §8.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused
from roquet.protocol import hosts
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import RecallMessageRequest, RecallMessageResponse
from roquet.protocol.recall_handle import RecallHandle
from roquet.remoting.router import Request, Route
from roquet.store.results import Draft

if TYPE_CHECKING:
    from roquet.broker.appender import Appender
    from roquet.broker.stamps import Stamps
    from roquet.broker.state import BrokerState
    from roquet.broker.timers.rules import TimerRules
    from roquet.broker.timers.service import TimerService
    from roquet.store.topics import TopicTable

TAG = "_RECALL_TAG_"
BODY = b"0"
_OFF = "the timer wheel is off (timerWheelEnable)"


class TimerProcessor:
    """Takes recalls, and answers slaves."""

    def __init__(
        self,
        service: TimerService,
        appender: Appender,
        topics: TopicTable,
        *,
        rules: TimerRules,
        stamps: Stamps,
        state: BrokerState,
    ) -> None:
        self._service = service
        self._appender = appender
        self._topics = topics
        self._rules = rules
        self._stamps = stamps
        self._state = state

    def follow(self, rules: TimerRules) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.RECALL_MESSAGE,), self.recall, "send"),
            Route((RequestCode.GET_TIMER_CHECK_POINT,), self.checkpoint, "admin"),
            Route((RequestCode.GET_TIMER_METRICS,), self.metrics, "admin"),
        ]

    async def recall(self, request: Request) -> Command:
        """Store the request to cancel a message in the step at which the message is due."""
        header = RecallMessageRequest.decode(request.command.ext)
        # Java's clients learn the region from a refusal as well.
        region = {props.MSG_REGION: self._stamps.rules.region}
        try:
            answer = await self._recalled(request, header)
        except Refused as error:
            return reply_to(request.command, error.code, remark=error.remark, ext=region)
        return reply_to(request.command, ext={**region, **answer.encode()})

    async def _recalled(
        self, request: Request, header: RecallMessageRequest
    ) -> RecallMessageResponse:
        self._check_open()
        if self._topics.get(header.topic) is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist"
            )
        handle = self._handle(header)
        result = await self._appender.append(self._draft(request, handle))
        if not result.status.is_stored:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"recall failed, {result.status.name} {result.why}"
            )
        return RecallMessageResponse(msg_id=handle.unique_key)

    def _check_open(self) -> None:
        if not self._rules.recall:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden (recallMessageEnable is false)",
            )
        if self._state.is_slave:
            raise Refused(
                ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
            )
        opens_ms = self._state.accept_sends_from_ms
        closed = self._stamps.clock.now_ms() < opens_ms
        unwritable = not self._state.is_writable and not self._rules.recall_unwritable
        if closed or unwritable:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
            )

    def _handle(self, header: RecallMessageRequest) -> RecallHandle:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError as error:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        left_ms = handle.due_ms - self._stamps.clock.now_ms()
        why = ""
        if handle.topic != header.topic:
            why = "topic not match"
        elif handle.broker_name != self._stamps.identity.name:
            why = "broker service not available: the message is another broker's"
        elif not 0 < left_ms < self._rules.delay_max_s * 1000:
            why = "timestamp invalid: the message was due already, or is beyond the longest delay"
        if why:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {why}")
        return handle

    def _draft(self, request: Request, handle: RecallHandle) -> Draft:
        key = handle.unique_key
        if self._rules.key_has_topic:
            key = f"{handle.topic}+{key}"
        properties = {
            props.TAGS: TAG,
            props.TIMER_DEL_UNIQKEY: key,
            props.TIMER_DELIVER_MS: str(handle.due_ms),
        }
        self._stamps.stamp(properties)
        return Draft(
            topic=handle.topic,
            queue_id=0,
            body=BODY,
            properties=properties,
            born_timestamp=self._stamps.clock.now_ms(),
            born_host=hosts.host_bytes(request.peer.address),
            store_host=self._stamps.identity.store_host,
        )

    def checkpoint(self, request: Request) -> Command:
        """Return how far the wheel is, for a slave."""
        body = self._service.checkpoint()
        if body is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, _OFF)
        return reply_to(request.command, body=body)

    def metrics(self, request: Request) -> Command:
        """Return the waiting messages by topic, for a slave."""
        body = self._service.export()
        if body is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, _OFF)
        return reply_to(request.command, body=body.encode())
