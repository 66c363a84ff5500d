"""SendMessage, EndTransaction and RecallMessage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from roquet.broker.api.send import RecallRequest, SendBatchRequest, SendRequest, SendStatus
from roquet.broker.api.transactions import EndTransactionRequest, Verdict
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.messages import batch
from roquet.protocol.messages.message_id import parse_offset_id
from roquet.proxy import messages as pb
from roquet.proxy.brokers.api import HalfPlace
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.polling import queue_of_group
from roquet.proxy.services import convert
from roquet.proxy.services.routes import writable_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.broker.api.send import SendResult
    from roquet.proxy.brokers.api import Brokers, Place
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
BROKER_LENGTH_MAX = 255
MESSAGE_ID_MAX = 255
"""Characters of a message's id."""
RECALL_S = 2.0


class Producing:
    """Takes messages of producers."""

    def __init__(self, brokers: Brokers, routes: Routes, rules: ProxyLimits) -> None:
        self._brokers = brokers
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
        topic = await self._routes.topic(context, name)
        made: list[dict[str, str]] = []
        for message in given:
            checks.check_body(len(message.body), self._rules)
            made.append(convert.properties_of(message, context, self._rules))
        if self._rules.check_type and not (names.is_retry(name) or names.is_dlq(name)):
            checks.check_type(topic.kind, made[0])
        places = writable_of(topic)
        if len(given) == 1:
            group = made[0].get(props.SHARDING_KEY) or made[0].get(props.LITE_TOPIC)
            queue = self._queue(group, places)
            result = await self._send_one(context, given[0], made[0], queue)
        else:
            queue = self._queue(None, places)
            result = await self._send_batch(context, given, made, queue)
        return sent(given, result, queue.broker)

    async def _send_one(
        self, context: Context, message: Any, properties: dict[str, str], queue: _Queue
    ) -> SendResult:
        name = message.topic.name
        attempts = message.system_properties.delivery_attempt
        request = SendRequest(
            topic=name,
            queue_id=queue.number,
            body=message.body,
            properties=properties,
            producer_group=name,
            born_ms=convert.born_ms_of(message, context),
            sys_flag=convert.sys_flag_of(message),
            attempts=attempts if names.is_retry(name) else None,
        )
        return await self._brokers.send(queue.broker, request, context.caller)

    async def _send_batch(
        self, context: Context, given: Any, made: list[dict[str, str]], queue: _Queue
    ) -> SendResult:
        name = given[0].topic.name
        elements = [
            (0, message.body, props.write(properties).encode())
            for message, properties in zip(given, made, strict=True)
        ]
        request = SendBatchRequest(
            topic=name,
            queue_id=queue.number,
            messages=batch.encode(elements),
            properties={props.UNIQ_KEY: made[0][props.UNIQ_KEY]},
            producer_group=name,
            born_ms=convert.born_ms_of(given[0], context),
        )
        return await self._brokers.send_batch(queue.broker, request, context.caller)

    def _queue(self, group: str | None, places: Sequence[Place]) -> _Queue:
        """Return the queue of a message group, or the next in turn."""
        total = sum(place.write_queues for place in places)
        if group is not None:
            return _queue_at(queue_of_group(group, total), places)
        self._turn += 1
        return _queue_at(self._turn % total, places)

    async def end_transaction(self, context: Context, request: Any) -> Any:
        """Commit a half message or roll it back.

        Its place rides in the id of the transaction and is checked by the broker's own record, so
        that any front before this broker can end it.
        """
        checks.check_topic(request.topic.name)
        if not request.transaction_id.strip():
            raise Rejected(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        place = place_of(request.transaction_id)
        name, text = request.topic.name, request.transaction_id
        is_id = len(text) <= MESSAGE_ID_MAX and text.isprintable()
        if is_id and (place is None or not await self._brokers.has(place.broker, name)):
            # RocketMQ's proxies name a transaction by the id of its message, whose 34 digits may
            # look like a place on a broker that has two of them as its name.
            place = await self._brokers.find_half(name, text, context.caller) or place
        if place is None:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        asked = EndTransactionRequest(
            producer_group=request.topic.name,
            physical_offset=place.physical_offset,
            half_offset=place.half_offset,
            verdict=_VERDICTS.get(request.resolution, Verdict.UNKNOWN),
            is_answer=request.source == _SERVER_CHECK,
        )
        await self._brokers.end_transaction(place.broker, asked, context.caller)
        return pb.EndTransactionResponse()

    async def recall(self, context: Context, request: Any) -> Any:
        """Take a message back that is not due yet."""
        checks.check_topic(request.topic.name)
        asked = RecallRequest(topic=request.topic.name, handle=request.recall_handle)
        recalled = self._brokers.recall(asked, context.caller)
        try:
            message_id = await asyncio.wait_for(recalled, RECALL_S)
        except TimeoutError as error:
            raise Rejected(Code.PROXY_TIMEOUT, "the broker did not answer in time") from error
        return pb.RecallMessageResponse(message_id=message_id)


def transaction_id(physical_offset: int, half_offset: int, broker: str) -> str:
    """Return the id that says where a half message is."""
    return f"{physical_offset:016X}{half_offset:016X}{broker}"


def place_of(text: str) -> HalfPlace | None:
    """Return where the half message of a transaction is; None for what is no id of ours."""
    numbers, broker = text[:_PLACE_LENGTH], text[_PLACE_LENGTH:]
    if len(numbers) != _PLACE_LENGTH or not numbers.isascii() or not numbers.isalnum():
        return None
    if len(broker) > BROKER_LENGTH_MAX:
        return None
    try:
        place = HalfPlace(int(numbers[:16], 16), int(numbers[16:], 16), broker)
    except ValueError:
        return None
    return place if max(place[:2]) < 1 << 63 else None


class _Queue(NamedTuple):
    """A queue of a topic."""

    broker: str
    number: int


def _queue_at(index: int, places: Sequence[Place]) -> _Queue:
    """Return the queue with this number of all those that can be written to."""
    for place in places:
        if index < place.write_queues:
            return _Queue(place.broker, index)
        index -= place.write_queues
    raise AssertionError("the index is one of a queue")


def sent(given: Any, result: SendResult, broker: str) -> Any:
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
            entry.transaction_id = transaction_id(physical_offset, result.queue_offset, broker)
        elif result.transaction_id:
            entry.transaction_id = result.transaction_id
        if result.recall_handle:
            entry.recall_handle = result.recall_handle
    return answer
