"""SendMessage, EndTransaction and RecallMessage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from roquet.broker.api.send import RecallRequest, SendBatchRequest, SendRequest, SendStatus
from roquet.broker.api.transactions import EndTransactionRequest, Verdict
from roquet.model.topic import can_write
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import batch
from roquet.protocol.messages.message_id import parse_offset_id
from roquet.proxy import messages as pb
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.polling import queue_of_group
from roquet.proxy.services import convert
from roquet.proxy.services.routes import type_of

if TYPE_CHECKING:
    from roquet.broker.api.send import SendResult
    from roquet.broker.operations.local import LocalBroker
    from roquet.model.topic import TopicConfig
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.routes import Routes

CODES = {
    SendStatus.STORED: (Code.OK, ""),
    SendStatus.FLUSH_TIMEOUT: (Code.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    SendStatus.REPLICA_TIMEOUT: (Code.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    SendStatus.NO_REPLICA: (Code.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}
_VERDICTS = {1: Verdict.COMMIT, 2: Verdict.ROLLBACK}
_SERVER_CHECK = 2
_PLACE_LENGTH = 32
RECALL_S = 2.0


class Producing:
    """Takes messages of producers."""

    def __init__(self, broker: LocalBroker, routes: Routes, rules: ProxyLimits) -> None:
        self._broker = broker
        self._routes = routes
        self._rules = rules
        self._turn = 0

    async def send(self, context: Context, request: Any) -> Any:
        """Store messages of one topic."""
        given = request.messages
        if not given:
            raise Rejected(Code.MESSAGE_CORRUPTED, "no message to send")
        name = given[0].topic.name
        checks.check_topic(name)
        if any(message.topic.name != name for message in given):
            raise Rejected(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        topic = self._routes.topic(context, name)
        made: list[dict[str, str]] = []
        for message in given:
            checks.check_body(len(message.body), self._rules)
            made.append(convert.properties_of(message, context, self._rules))
        if self._rules.check_type and not (names.is_retry(name) or names.is_dlq(name)):
            checks.check_type(type_of(topic), made[0])
        if not can_write(topic.perm) or topic.write_queues <= 0:
            raise Rejected(Code.FORBIDDEN, "no writable queue")
        if len(given) == 1:
            result = await self._send_one(context, given[0], made[0], topic)
        else:
            result = await self._send_batch(context, given, made, topic)
        return _sent(given, result)

    async def _send_one(
        self, context: Context, message: Any, properties: dict[str, str], topic: TopicConfig
    ) -> SendResult:
        group = properties.get(props.SHARDING_KEY) or properties.get(props.LITE_TOPIC)
        attempts = message.system_properties.delivery_attempt
        request = SendRequest(
            topic=topic.name,
            queue_id=self._queue(group, topic),
            body=message.body,
            properties=properties,
            producer_group=topic.name,
            born_ms=convert.born_ms_of(message, context),
            sys_flag=convert.sys_flag_of(message),
            attempts=attempts if names.is_retry(topic.name) else None,
        )
        return await self._broker.operations.send(request, context.caller)

    async def _send_batch(
        self, context: Context, given: Any, made: list[dict[str, str]], topic: TopicConfig
    ) -> SendResult:
        elements = [
            (0, message.body, props.write(properties).encode())
            for message, properties in zip(given, made, strict=True)
        ]
        request = SendBatchRequest(
            topic=topic.name,
            queue_id=self._queue(None, topic),
            messages=batch.encode(elements),
            properties={props.UNIQ_KEY: made[0][props.UNIQ_KEY]},
            producer_group=topic.name,
            born_ms=convert.born_ms_of(given[0], context),
        )
        return await self._broker.operations.send_batch(request, context.caller)

    def _queue(self, group: str | None, topic: TopicConfig) -> int:
        if group is not None:
            return queue_of_group(group, topic.write_queues)
        self._turn += 1
        return self._turn % topic.write_queues

    async def end_transaction(self, context: Context, request: Any) -> Any:
        """Commit a half message or roll it back.

        Its place rides in the id of the transaction and is checked by the broker's own record, so
        that any front of this broker can end it.
        """
        checks.check_topic(request.topic.name)
        if not request.transaction_id.strip():
            raise Rejected(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        place = place_of(request.transaction_id)
        if place is None:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        asked = EndTransactionRequest(
            producer_group=request.topic.name,
            physical_offset=place[0],
            half_offset=place[1],
            verdict=_VERDICTS.get(request.resolution, Verdict.UNKNOWN),
            is_answer=request.source == _SERVER_CHECK,
        )
        await self._broker.operations.end_transaction(asked, context.caller)
        return pb.EndTransactionResponse()

    async def recall(self, context: Context, request: Any) -> Any:
        """Take a message back that is not due yet."""
        checks.check_topic(request.topic.name)
        asked = RecallRequest(topic=request.topic.name, handle=request.recall_handle)
        recalled = self._broker.operations.recall(asked, context.caller)
        try:
            message_id = await asyncio.wait_for(recalled, RECALL_S)
        except TimeoutError as error:
            raise Rejected(Code.PROXY_TIMEOUT, "the broker did not answer in time") from error
        return pb.RecallMessageResponse(message_id=message_id)


def transaction_id(physical_offset: int, half_offset: int) -> str:
    """Return the id that says where a half message is."""
    return f"{physical_offset:016X}{half_offset:016X}"


def place_of(text: str) -> tuple[int, int] | None:
    """Return where the half message of a transaction is; None for what is no id of ours."""
    if len(text) != _PLACE_LENGTH or not text.isascii() or not text.isalnum():
        return None
    try:
        place = int(text[:16], 16), int(text[16:], 16)
    except ValueError:
        return None
    return place if max(place) < 1 << 63 else None


def _sent(given: Any, result: SendResult) -> Any:
    """Return an answer with an entry for each message."""
    code, why = CODES[result.status]
    text = "OK" if code is Code.OK else f"send message failed, sendStatus={why}"
    answer = pb.SendMessageResponse()
    answer.status.code, answer.status.message = code, text
    is_half = given[0].system_properties.message_type == convert.TRANSACTION
    for number, message in enumerate(given):
        entry = answer.entries.add()
        entry.status.code, entry.status.message = code, text
        entry.message_id = message.system_properties.message_id
        entry.offset = result.queue_offset + number
        if is_half:
            _, physical_offset = parse_offset_id(result.message_ids[number])
            entry.transaction_id = transaction_id(physical_offset, result.queue_offset)
        elif result.transaction_id:
            entry.transaction_id = result.transaction_id
        if result.recall_handle:
            entry.recall_handle = result.recall_handle
    return answer
