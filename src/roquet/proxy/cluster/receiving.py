"""What a broker of a cluster gives to one receive. The broker itself waits for messages."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from roquet.base.overriding import override
from roquet.broker.api.pop import ChangeInvisibleRequest, LightPopRequest, PopRequest
from roquet.broker.api.refusal import Refusal
from roquet.broker.operations.table import POP
from roquet.broker.pop.receive.polls import Waiting
from roquet.model.message import ATTEMPTS_MAX
from roquet.model.subscription import ExpressionType
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.pop import (
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
    PopMessageRequest,
    PopMessageResponse,
)
from roquet.protocol.pop.handle import PopTables, ReceiptHandle, real_topic
from roquet.proxy.brokers.api import Found, Packed
from roquet.proxy.rules.codes import Code, Rejected
from roquet.remoting.headers import reader
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet._native import GrpcConsumers
    from roquet.broker.api.caller import Caller
    from roquet.broker.operations.wrapping import Operation
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.command import Command
    from roquet.protocol.header import Header
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.cluster.guard import Gate
    from roquet.remoting.router import Peer
    from roquet.store.records import Record

ANSWER_S = 3.0
"""A broker may answer so much later than it was to wait."""
GIVEN_BACK_MS = 1000
"""Invisible time of what was taken for a client that may not have it any more."""
PACKED_MAX = 1 << 20
"""Bytes of a broker's answer that go to a client at once; of more each message waits for room."""
_PASSED = frozenset(
    {
        int(ResponseCode.SUCCESS),
        int(ResponseCode.PULL_NOT_FOUND),
        int(ResponseCode.POLLING_FULL),
        int(ResponseCode.POLLING_TIMEOUT),
    }
)
"""Codes of answers to pops that are no refusals."""
_W = TypeVar("_W", PopRequest, LightPopRequest)
_read_popped = reader(PopMessageResponse)


class ClusterSource(abc.ABC, Generic[_W]):
    """What one broker has for a consumer; judged before the broker is asked, and again after."""

    operation: ClassVar[Operation]
    """What needs rights."""
    code: ClassVar[RequestCode]
    """What the broker is asked."""

    def __init__(self, calls: Calls, gate: Gate, broker: str, wanted: _W) -> None:
        self._calls = calls
        self._gate = gate
        self._broker = broker
        self.wanted: _W = wanted
        self._outcome = Waiting.LATE

    async def take(self, caller: Caller, now_ms: int) -> list[Found] | Packed:
        """Return what comes while the broker waits. Raises Refusal and Rejected."""
        wanted, gate = self.wanted, self._gate
        gate.require(self.operation, wanted, caller, self._broker)
        secret = gate.secret(caller)
        found = await self._pop(now_ms)
        if gate.is_open:
            return found
        assert not isinstance(found, Packed), "behind a gate every message is looked at"
        try:
            # The broker may have waited for long, and knows the proxy's account alone.
            gate.require_still(self.operation, wanted, caller, secret)
        except Refusal:
            for each in found:
                # One that cannot be given back comes when its own time is over.
                with contextlib.suppress(Refusal, Rejected):
                    await self._return(each)
            raise
        # What is of a topic that the client may not read stays unseen, and comes again.
        return [it for it in found if gate.is_visible(it.record, wanted.topic, caller)]

    @abc.abstractmethod
    async def _return(self, found: Found) -> None:
        """Have a message come back soon to others of the group. Raises Refusal and Rejected."""

    @abc.abstractmethod
    def _header(self, now_ms: int) -> Header:
        """Return the header of the request to the broker."""

    @abc.abstractmethod
    def _read(self, answer: Command) -> list[Found] | Packed:
        """Read an answer that has messages. Raises HeaderError and ValueError."""

    async def _pop(self, now_ms: int) -> list[Found] | Packed:
        """Ask the broker. Raises Refusal and Rejected."""
        answer = await self._calls.ask(
            self._broker,
            self.code,
            self._header(now_ms),
            timeout_s=self.wanted.poll_ms / 1000 + ANSWER_S,
            passed=_PASSED,
            waits=True,
        )
        if answer.code == ResponseCode.POLLING_FULL:
            self._outcome = Waiting.FULL
        if answer.code != ResponseCode.SUCCESS:
            return []
        try:
            return self._read(answer)
        except (HeaderError, ValueError) as error:
            text = f"{self._broker} answers a pop that cannot be read: {error}"
            raise Rejected(Code.INTERNAL_SERVER_ERROR, text) from error

    def pack(self, takes: SubscriptionData, attempts_max: int) -> None:
        """Have every message looked at."""
        del takes, attempts_max

    async def wait(self, peer: Peer) -> Waiting:
        """Return why there was nothing: the broker has waited already."""
        del peer
        return self._outcome


class TopicSource(ClusterSource[PopRequest]):
    """The queues that a topic has on one broker."""

    operation = POP
    code = RequestCode.POP_MESSAGE

    def __init__(
        self, calls: Calls, gate: Gate, broker: str, wanted: PopRequest, shown: GrpcConsumers
    ) -> None:
        """`shown` packs what needs no further look."""
        super().__init__(calls, gate, broker, wanted)
        self._shown = shown
        self._tags: list[str] | None = None
        """Those that are wanted, where an answer may be packed."""
        self._attempts_max = 0

    @override
    def pack(self, takes: SubscriptionData, attempts_max: int) -> None:
        """Have the answer of the broker packed, if it is plain."""
        by_tag = takes.expression_type == ExpressionType.TAG
        if self._gate.is_open and by_tag and not self.wanted.is_ordered:
            self._tags = sorted(takes.tags)
            self._attempts_max = min(attempts_max, ATTEMPTS_MAX)

    @override
    async def _return(self, found: Found) -> None:
        handle, wanted = ReceiptHandle.decode(found.handle), self.wanted
        request = ChangeInvisibleRequest(
            topic=real_topic(wanted.topic, wanted.group, handle.retry_flag),
            group=wanted.group,
            queue_id=handle.queue_id,
            offset=handle.queue_offset,
            handle=handle.encode(),
            invisible_ms=GIVEN_BACK_MS,
        )
        await change_invisible(self._calls, self._broker, request)

    @override
    def _header(self, now_ms: int) -> PopMessageRequest:
        wanted = self.wanted
        return PopMessageRequest(
            consumer_group=wanted.group,
            topic=wanted.topic,
            queue_id=wanted.queue_id,
            max_msg_nums=wanted.max_messages,
            invisible_time=wanted.invisible_ms,
            poll_time=wanted.poll_ms,
            born_time=now_ms,
            init_mode=0 if wanted.from_first else 1,
            exp_type=wanted.expression_type,
            exp=wanted.expression,
            order=wanted.is_ordered,
            attempt_id=wanted.attempt_id,
        )

    @override
    def _read(self, answer: Command) -> list[Found] | Packed:
        given = _read_popped(answer)
        packed = self._packed(given, answer.body)
        if packed is not None:
            return packed
        records = read_records(answer.body, check_crc=False)
        return _found(records, given, self._broker, is_ordered=self.wanted.is_ordered)

    def _packed(self, given: PopMessageResponse, stored: bytes) -> Packed | None:
        """Return the answer to the client; None when a message of it has to be looked at."""
        wanted, is_long = self.wanted, len(stored) > PACKED_MAX
        if self._tags is None or is_long or given.invisible_time != wanted.invisible_ms:
            return None
        if given.order_count_info:
            return None
        found = self._shown.popped(
            stored,
            topic=wanted.topic,
            broker=self._broker,
            pop=(given.pop_time, given.invisible_time, given.revive_qid),
            tables=(given.start_offset_info or "", given.msg_offset_info or ""),
            tags=self._tags,
            attempts_max=self._attempts_max,
            now_ms=self._calls.clock.now_ms(),
        )
        return None if found is None else Packed(*found)


async def change_invisible(
    calls: Calls, broker: str, request: ChangeInvisibleRequest
) -> ReceiptHandle:
    """Have a message come back at another time; return its handle from now on.

    Raises Refusal and Rejected.
    """
    header = ChangeInvisibleTimeRequest(
        consumer_group=request.group,
        topic=request.topic,
        queue_id=request.queue_id,
        extra_info=request.handle,
        offset=request.offset,
        invisible_time=request.invisible_ms,
        suspend=request.is_suspended,
    )
    answer = await calls.ask(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
    try:
        now = ChangeInvisibleTimeResponse.decode(answer.ext)
    except HeaderError as error:
        raise unreadable(broker, error) from error
    return ReceiptHandle.decode(request.handle)._replace(
        start_offset=request.offset,
        pop_time_ms=now.pop_time,
        invisible_ms=now.invisible_time,
        revive_queue=now.revive_qid,
    )


def unreadable(broker: str, error: HeaderError) -> Rejected:
    """Return what a client is told of a broker's answer that has not its fields."""
    text = f"{broker} answers without its fields: {error}"
    return Rejected(Code.INTERNAL_SERVER_ERROR, text)


def _found(
    records: Sequence[Record], answer: PopMessageResponse, broker: str, *, is_ordered: bool
) -> list[Found]:
    """Give each message its handle. Raises HandleError for tables that do not fit."""
    tables = PopTables(answer, broker)
    found: list[Found] = []
    for record in records:
        given = props.read(record.properties).get(props.POP_CK)
        if given is None:
            handle = tables.handle(record.topic, record.queue_id, record.queue_offset)
        else:
            handle = ReceiptHandle.decode(given)
        count = tables.deliveries(handle) if is_ordered else 0
        counted = record._replace(reconsume_times=count) if count > 0 else record
        found.append(Found(counted, f"{handle.encode()} {record.physical_offset}"))
    return found
