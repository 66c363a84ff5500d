"""Recall of timer messages (spec: broker.md "RECALL 370")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol import hosts
from roquet.protocol import properties as props
from roquet.protocol.messages.recall_handle import RecallHandle
from roquet.store.results import Draft

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.send import RecallRequest
    from roquet.broker.messages.appender import Appender
    from roquet.broker.messages.broker_properties import BrokerProperties
    from roquet.broker.state import BrokerState
    from roquet.broker.timers.rules import TimerConfig
    from roquet.store.tables.topics import TopicTable

TAG = "_RECALL_TAG_"
BODY = b"0"


class Recalls:
    """Takes back timer messages that are not due yet."""

    def __init__(
        self,
        appender: Appender,
        topics: TopicTable,
        *,
        rules: TimerConfig,
        broker_properties: BrokerProperties,
        state: BrokerState,
    ) -> None:
        self._appender = appender
        self._topics = topics
        self._rules = rules
        self._broker_properties = broker_properties
        self._state = state

    def follow(self, rules: TimerConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    async def recall(self, request: RecallRequest, caller: Caller) -> str:
        """Store the request to cancel a message in the step at which the message is due.

        Returns the unique key of the message. Raises Refusal.
        """
        self._check_open()
        topic = request.topic
        if self._topics.get(topic) is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"recall failed, the topic[{topic}] not exist")
        handle = self._handle(topic, request.handle)
        result = await self._appender.append(self._draft(handle, caller.address))
        if not result.status.is_stored:
            raise Refusal(Reason.FAILED, f"recall failed, {result.status.name} {result.why}")
        return handle.unique_key

    def _check_open(self) -> None:
        if not self._rules.recall:
            raise Refusal(
                Reason.FORBIDDEN,
                "recall failed, operation is forbidden (recallMessageEnable is false)",
            )
        if self._state.is_slave:
            raise Refusal(Reason.NOT_MASTER, "recall failed, broker service not available")
        opens_ms = self._state.accept_sends_from_ms
        closed = self._broker_properties.clock.now_ms() < opens_ms
        unwritable = not self._state.is_writable and not self._rules.recall_unwritable
        if closed or unwritable:
            raise Refusal(Reason.STORE_UNAVAILABLE, "recall failed, broker service not available")

    def _handle(self, topic: str, text: str) -> RecallHandle:
        try:
            handle = RecallHandle.decode(text)
        except ValueError as error:
            raise Refusal(Reason.ILLEGAL_OPERATION, str(error)) from error
        left_ms = handle.due_ms - self._broker_properties.clock.now_ms()
        why = ""
        if handle.topic != topic:
            why = "topic not match"
        elif handle.broker_name != self._broker_properties.identity.name:
            why = "broker service not available: the message is another broker's"
        elif not 0 < left_ms < self._rules.delay_max_s * 1000:
            why = "timestamp invalid: the message was due already, or is beyond the longest delay"
        if why:
            raise Refusal(Reason.ILLEGAL_OPERATION, f"recall failed, {why}")
        return handle

    def _draft(self, handle: RecallHandle, address: str) -> Draft:
        key = handle.unique_key
        if self._rules.key_has_topic:
            key = f"{handle.topic}+{key}"
        properties = {
            props.TAGS: TAG,
            props.TIMER_DEL_UNIQKEY: key,
            props.TIMER_DELIVER_MS: str(handle.due_ms),
        }
        self._broker_properties.stamp(properties)
        return Draft(
            topic=handle.topic,
            queue_id=0,
            body=BODY,
            properties=properties,
            born_timestamp=self._broker_properties.clock.now_ms(),
            born_host=hosts.host_bytes(address),
            store_host=self._broker_properties.identity.store_host,
        )
