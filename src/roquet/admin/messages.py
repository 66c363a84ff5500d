"""Messages: found by id, key, place or time, without a group."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from roquet._native import decode_messages
from roquet.admin.calls import Brokers, command, demand, read, read_header
from roquet.admin.topics import Topics
from roquet.base.arguments import checked
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.model.queue import MessageQueue
from roquet.model.topic import can_write
from roquet.protocol import hosts, names, properties
from roquet.protocol.bodies import stats
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import ConsumeMessageDirectlyResultRequest
from roquet.protocol.headers.message import (
    PullMessageRequest,
    PullMessageResponse,
    QueryMessageRequest,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    ViewMessageRequest,
)
from roquet.protocol.messages import message_id, records, sys_flag
from roquet.protocol.messages.compression import CompressionError
from roquet.protocol.messages.recall_handle import RecallHandle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from roquet.admin.calls import Calls
    from roquet.model.message import StoredMessage
    from roquet.protocol.bodies.stats import ConsumedDirectly

_GROUP = "TOOLS_CONSUMER"
_PULL_COUNT = 32
_NO_MESSAGE = re.compile(r"can not find message by the offset")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
FOREVER_MS = 2**63 - 1
_STORED_LESS_SAFELY = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_CARRIED = frozenset(
    {properties.TAGS, properties.KEYS, properties.UNIQ_KEY, properties.SHARDING_KEY}
)
"""Properties of RocketMQ's own that belong to the message and not to its delivery."""
_NOTHING = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Pulled:
    """Records of a queue as they are stored."""

    records: bytes
    next_offset: int
    """Where the queue goes on behind them."""


@dataclasses.dataclass(frozen=True, slots=True)
class SentAgain:
    """Where a copy of a message lies."""

    queue: MessageQueue
    queue_offset: int
    offset_id: str


def origin_of(message: StoredMessage) -> str:
    """Return the topic that a message was sent to, before it was retried or given up."""
    for name in (properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC):
        if message.properties.get(name):
            return message.properties[name]
    return message.topic


@checked
class Messages:
    """Messages of a cluster."""

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)
        self._topics = Topics(calls)

    async def by_offset_id(self, offset_id: str) -> StoredMessage:
        """Return a message by its offset id (`SendReceipt.offset_id`).

        Raises Refused when it is not there, UsageError for what is no such id and for one of a
        broker that is not ours: an id holds an address, and nobody is to make us connect just
        anywhere.
        """
        try:
            host, offset = message_id.parse_offset_id(offset_id)
            address = hosts.host_text(host)
        except ValueError as error:
            raise UsageError(f"{offset_id[:80]!r}: {error}") from error
        known = await self._brokers.known()
        if not any(address in data.addresses.values() for data in known.brokers.values()):
            hint = "the id that a producer makes is looked up with its topic"
            raise UsageError(f"{offset_id}: {address} is no broker of this cluster; {hint}")
        request = command(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequest(offset=offset))
        try:
            answer = await self._calls.ask(address, request)
        except Refused as refusal:
            # A place without a message is answered as any failure is.
            if refusal.code != ResponseCode.SYSTEM_ERROR or not _NO_MESSAGE.search(refusal.remark):
                raise
            text = f"there is no message at offset {offset} of {address}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, text) from refusal
        found = _messages(answer.body)
        if not found:
            raise Unreachable(f"message {offset_id} cannot be read: the answer is empty")
        return found[0]

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        count: int = 64,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
        by_tag: bool = False,
    ) -> list[StoredMessage]:
        """Return messages with a key, the oldest first, at most `count` from each broker.

        `begin_ms` and `end_ms` bound the store time, Unix milliseconds. `by_tag`: those with a tag,
        of brokers that keep tags in their index. Raises Refused with code 17 for an unknown topic,
        Unreachable.
        """
        kind = "T" if by_tag else None
        return await self._query(topic, key, count, (begin_ms, end_ms), by_id=False, kind=kind)

    async def by_id(
        self, topic: str, unique_id: str, *, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[StoredMessage]:
        """Return the copies of a message by the id that its producer made.

        Bounds and errors are those of `by_key`.
        """
        return await self._query(topic, unique_id, _PULL_COUNT, (begin_ms, end_ms), by_id=True)

    async def at(
        self, queue: MessageQueue, offset: int, count: int = 1, *, group: str | None = None
    ) -> list[StoredMessage]:
        """Return up to `count` messages of a queue from an offset on; none beyond its end.

        `group` is whose right to read is needed, TOOLS_CONSUMER's by default. Raises UsageError,
        Refused, Unreachable, OutcomeUnknown.
        """
        found: list[StoredMessage] = []
        address = (await self._brokers.of_topic(queue.topic)).get(queue.broker_name)
        if address is None:
            raise UsageError(f"{queue.topic} is not on {queue.broker_name}")
        while len(found) < count:
            left = count - len(found)
            more, offset = await self._pull(address, queue, offset, left, group)
            if not more:
                break
            found += more
        return found

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        broker: str | None = None,
        group: str | None = None,
    ) -> Pulled:
        """Return the records of up to `count` messages, at most 32, from an offset on.

        There are none at the queue's end. Its master is asked unless another `broker` is given, by
        an address; `group` is whose right to read is needed, TOOLS_CONSUMER's by default. Raises
        UsageError, Refused, Unreachable, OutcomeUnknown.
        """
        header = PullMessageRequest(
            consumer_group=group or _GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=min(count, _PULL_COUNT),
            sys_flag=sys_flag.PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        address = await self._brokers.address(broker or queue.broker_name)
        try:
            answer = await self._calls.ask(address, command(RequestCode.PULL_MESSAGE, header))
        except Refused as refusal:
            if refusal.code in _NOTHING:
                return Pulled(b"", offset)
            raise
        following = read_header(PullMessageResponse, answer).next_begin_offset
        return Pulled(answer.body, following)

    async def between(
        self,
        topic: str,
        begin_ms: int,
        end_ms: int,
        *,
        count: int = 1_000,
        wanted: Callable[[StoredMessage], bool] | None = None,
    ) -> AsyncGenerator[StoredMessage]:
        """Yield the messages of a topic stored from `begin_ms` to before `end_ms`, by queue.

        At most `count` of each queue, of those that `wanted` takes (see `admin.matching`). Raises
        as `at` does.
        """
        masters = await self._brokers.of_topic(topic)
        for queue, begin in sorted((await self._topics.offsets_at(topic, begin_ms)).items()):
            left, offset = count, begin
            while left > 0:
                found, offset = await self._pull(
                    masters[queue.broker_name],
                    queue,
                    offset,
                    _PULL_COUNT if wanted else left,
                )
                for message in found:
                    if message.store_timestamp >= end_ms:
                        found = []
                        break
                    if wanted is None or wanted(message):
                        left -= 1
                        yield message
                    if left == 0:
                        break
                if not found:
                    break

    async def send_again(
        self, message: StoredMessage, *, topic: str | None = None, group: str | None = None
    ) -> SentAgain:
        """Send a copy of a stored message; return where it lies.

        It goes to `topic`, without one to the message's own; with `group` only that group gets it:
        it goes to the group's retry topic and comes back under the topic that it had (`topic`).
        Body, tag, keys, the producer's id and the user's own properties are the same; what says how
        and when it was delivered is left out. Raises UsageError, Refused, Unreachable, and
        OutcomeUnknown when the copy may be stored.
        """
        origin = topic or origin_of(message)
        target = origin if group is None else names.retry_topic(group)
        demand(names.check_may_send(origin))
        carried = {
            name: value
            for name, value in message.properties.items()
            if name not in properties.RESERVED or name in _CARRIED
        }
        if group is not None:
            carried[properties.RETRY_TOPIC] = origin
            carried[properties.ORIGIN_MESSAGE_ID] = message.properties.get(
                properties.ORIGIN_MESSAGE_ID, message.msg_id
            )
        route = await self._topics.route(target)
        masters = {it.broker_name: it.master for it in route.brokers if it.master is not None}
        queues = [
            (it.broker_name, number)
            for it in route.queues
            if can_write(it.perm) and it.broker_name in masters
            for number in range(it.write_queues)
        ]
        if not queues:
            raise Unreachable(f"{target} has no queue that can be written to now")
        broker, number = queues[message.queue_offset % len(queues)]
        header = SendMessageRequest(
            producer_group=names.INNER_PRODUCER_GROUP,
            topic=target,
            default_topic=names.AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=number,
            # The body is here decompressed.
            sys_flag=message.sys_flag & sys_flag.MULTI_TAGS,
            born_timestamp=self._calls.clock.now_ms(),
            flag=message.flag,
            properties=properties.write(carried),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name=broker,
        )
        request = command(RequestCode.SEND_MESSAGE, header, message.body)
        try:
            answer = await self._calls.ask(masters[broker], request)
        except Refused as refusal:
            if refusal.code in _STORED_LESS_SAFELY:
                raise OutcomeUnknown(f"stored, but less safely than wanted: {refusal}") from refusal
            raise
        there = read_header(SendMessageResponse, answer)
        place = MessageQueue(target, broker, there.queue_id)
        return SentAgain(place, there.queue_offset, there.msg_id)

    async def consume_directly(
        self, group: str, client_id: str, message: StoredMessage
    ) -> ConsumedDirectly:
        """Have one member of a group consume a message now; return what it said.

        Raises Refused when the member is not online.
        """
        header = ConsumeMessageDirectlyResultRequest(
            consumer_group=group,
            client_id=client_id,
            msg_id=message.msg_id,
            broker_name=message.broker_name or None,
            topic=message.topic,
        )
        request = command(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        answer = await self._calls.ask(message.store_host, request)
        return read(stats.ConsumedDirectly.decode, answer)

    async def recall(self, message: StoredMessage) -> str:
        """Take back a timer message by its record in the timer topic; return its unique key.

        The broker stores the request beside the message; whoever is just due may come all the same.
        Raises UsageError for what is no timer message, Refused with the broker's reason (it needs
        `recallMessageEnable`), Unreachable, and OutcomeUnknown when it may be taken back.
        """
        found = message.properties
        topic, key = found.get(properties.REAL_TOPIC), message.unique_key
        due = found.get(properties.TIMER_OUT_MS, "")
        is_timer = message.topic == names.TIMER_TOPIC and _NUMBER.fullmatch(due) is not None
        if not topic or not key or not is_timer or properties.TIMER_DEL_UNIQKEY in found:
            raise UsageError(f"{message.msg_id} is no timer message that waits")
        brokers = (await self._brokers.known()).brokers
        broker = message.broker_name or next(
            (name for name, it in brokers.items() if message.store_host in it.addresses.values()),
            "",
        )
        handle = RecallHandle(topic, broker, int(due) + 1, key)
        header = RecallMessageRequest(
            producer_group=names.INNER_PRODUCER_GROUP, topic=topic, recall_handle=handle.encode()
        )
        address = (await self._brokers.masters([broker]))[broker]
        answer = await self._calls.ask(address, command(RequestCode.RECALL_MESSAGE, header))
        return read_header(RecallMessageResponse, answer).msg_id

    async def _query(
        self,
        topic: str,
        key: str,
        count: int,
        times: tuple[int, int],
        *,
        by_id: bool,
        kind: str | None = None,
    ) -> list[StoredMessage]:
        await self._topics.route(topic)
        header = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=count,
            begin_timestamp=times[0],
            end_timestamp=times[1],
            index_type=kind,
        )
        ext = header.encode() | {"_UNIQUE_KEY_QUERY": str(by_id).lower()}
        request = Command(code=int(RequestCode.QUERY_MESSAGE), ext=ext)
        found: list[StoredMessage] = []
        skip = (ResponseCode.QUERY_NOT_FOUND,)
        masters = await self._brokers.of_topic(topic)
        async for name, answer in self._brokers.each(masters, request, skip=skip):
            found += _messages(answer.body, name)
        return sorted(found, key=lambda it: (it.store_timestamp, it.broker_name, it.queue_offset))

    async def _pull(
        self,
        address: str,
        queue: MessageQueue,
        offset: int,
        count: int,
        group: str | None = None,
    ) -> tuple[list[StoredMessage], int]:
        """Return the next messages and the offset behind them; nothing at the queue's end."""
        pulled = await self.pull(queue, offset, count, broker=address, group=group)
        return _messages(pulled.records, queue.broker_name), pulled.next_offset


def _messages(body: bytes, broker: str = "") -> list[StoredMessage]:
    """Read records. Raises Unreachable for what is none."""
    try:
        return records.messages_of(decode_messages(body, broker, hosts.host_text))
    except (ValueError, CompressionError) as error:
        raise Unreachable(f"the messages of an answer cannot be read: {error}") from error
