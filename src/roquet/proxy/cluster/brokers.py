"""The brokers of a cluster, as the front sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl.needs import heartbeat_needs
from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendResult, SendStatus
from roquet.broker.api.transactions import Verdict
from roquet.broker.operations.table import (
    ACK,
    CHANGE_INVISIBLE,
    END,
    GROUP,
    RECALL,
    SEND,
    SEND_BACK,
    SEND_BATCH,
    TOPIC,
)
from roquet.broker.services.clients.heartbeats import GROUPS_AT_ONCE
from roquet.broker.services.send_back import require_readable
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import (
    ConsumerSendMsgBackRequest,
    EndTransactionRequest,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    ViewMessageRequest,
)
from roquet.protocol.headers.pop import AckMessageRequest
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.recall_handle import RecallHandle
from roquet.protocol.names import AUTO_CREATE_TOPIC
from roquet.proxy.brokers.api import HALF_INDEXED_S
from roquet.proxy.cluster.halves import find_half
from roquet.proxy.cluster.queues import ClusterQueues
from roquet.proxy.cluster.receiving import TopicSource, change_invisible, unreadable
from roquet.proxy.cluster.transactions import KINDS
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.plain import consumers
from roquet.remoting.headers import reader
from roquet.service.slices import in_slices
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.acl.rights import RequestGuard
    from roquet.base.clock import Clock
    from roquet.broker.api import send as sends
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import (
        ChangeInvisibleRequest,
        PopAckRequest,
        PopRequest,
    )
    from roquet.broker.api.transactions import EndTransactionRequest as End
    from roquet.broker.clients.registry import Client
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.protocol.bodies.clients import HeartbeatData
    from roquet.protocol.command import Command
    from roquet.protocol.pop.handle import ReceiptHandle
    from roquet.proxy.brokers.api import HalfPlace, Source, Topic
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.cluster.directory import Directory
    from roquet.proxy.cluster.guard import Gate
    from roquet.proxy.cluster.lights import ClusterLights
    from roquet.proxy.cluster.transactions import Producers
    from roquet.remoting.router import Peer
    from roquet.service.metrics import Metrics
    from roquet.store.records import Record

SEND_S = 3.0
TEMPLATE_QUEUES = 4
_STATUSES = {
    int(ResponseCode.SUCCESS): SendStatus.STORED,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.REPLICA_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.NO_REPLICA,
}
STORED = frozenset(_STATUSES)
"""Codes of answers by which a message is stored."""
_ENDS = {
    Verdict.COMMIT: sys_flag.TRANSACTION_COMMIT,
    Verdict.ROLLBACK: sys_flag.TRANSACTION_ROLLBACK,
}
_read_sent = reader(SendMessageResponse)


class ClusterBrokers:
    """Brokers over the remoting protocol."""

    def __init__(
        self,
        calls: Calls,
        directory: Directory,
        producers: Producers,
        gate: Gate,
        light: ClusterLights,
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`gate` stands before what is asked of brokers in a client's name."""
        self._calls = calls
        self._directory = directory
        self._producers = producers
        self._gate = gate
        self._light = light
        self._queues = ClusterQueues(calls, gate)
        self._shown = consumers()
        self._clock = clock
        self._metrics = metrics

    @property
    def name(self) -> str:
        """Nothing: there are several."""
        return ""

    @property
    def clock(self) -> Clock:
        """What the time is."""
        return self._clock

    @property
    def metrics(self) -> Metrics:
        """Where figures are counted."""
        return self._metrics

    @property
    def guard(self) -> RequestGuard | None:
        """Knows whose signature is good; None where nobody needs an account."""
        return self._gate.guard

    @property
    def light(self) -> ClusterLights:
        """Who serves light topics."""
        return self._light

    @property
    def queues(self) -> ClusterQueues:
        """Who serves single queues."""
        return self._queues

    async def topic(self, name: str, caller: Caller) -> Topic:
        """Return a topic."""
        self._gate.require(TOPIC, name, caller)
        return await self._directory.topic(name)

    async def group(self, name: str, caller: Caller) -> SubscriptionGroupConfig:
        """Return a group, which may be made by that."""
        self._gate.require(GROUP, name, caller)
        return await self._directory.group(name)

    async def has(self, broker: str, topic: str) -> bool:
        """Tell whether messages of a topic may lie on a broker."""
        return await self._directory.has(broker, topic)

    # --- send ------------------------------------------------------------------------------------

    async def send(self, broker: str, request: sends.SendRequest, caller: Caller) -> SendResult:
        """Store one message."""
        self._gate.require(SEND, request, caller, broker)
        header = _header_of(request, broker, request.sys_flag, request.attempts or 0)
        return await self._sent(broker, RequestCode.SEND_MESSAGE_V2, header, request.body)

    async def send_batch(
        self, broker: str, request: sends.SendBatchRequest, caller: Caller
    ) -> SendResult:
        """Store several messages for one queue."""
        self._gate.require(SEND_BATCH, request, caller, broker)
        header = _header_of(request, broker, is_batch=True)
        return await self._sent(broker, RequestCode.SEND_BATCH_MESSAGE, header, request.messages)

    async def _sent(
        self, broker: str, code: RequestCode, header: SendMessageRequest, body: bytes
    ) -> SendResult:
        answer = await self._calls.ask(
            broker, code, header, body=body, timeout_s=SEND_S, passed=STORED, short=True
        )
        return result_of(broker, answer)

    async def recall(self, request: sends.RecallRequest, caller: Caller) -> str:
        """Take a message back that is not due yet; return its id."""
        self._gate.require(RECALL, request, caller)
        try:
            handle = RecallHandle.decode(request.handle)
        except ValueError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, str(error)) from error
        if not await self.has(handle.broker_name, request.topic):
            text = f"broker {handle.broker_name[:255]} is not known here"
            raise Rejected(Code.BAD_REQUEST, text)
        self._gate.require(RECALL, request, caller, handle.broker_name)
        header = RecallMessageRequest(
            producer_group=request.topic, topic=request.topic, recall_handle=request.handle
        )
        answer = await self._calls.ask(handle.broker_name, RequestCode.RECALL_MESSAGE, header)
        try:
            return RecallMessageResponse.decode(answer.ext).msg_id
        except HeaderError as error:
            raise unreadable(handle.broker_name, error) from error

    async def end_transaction(self, broker: str, request: End, caller: Caller) -> None:
        """Commit a half message or roll it back."""
        topic = request.producer_group
        self._gate.require(END, request, caller)
        self._gate.access.require_write(caller, topic)
        known = {place.broker for place in (await self.topic(topic, caller)).places}
        if broker not in known:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        end = None if request.verdict is None else _ENDS.get(request.verdict)
        if end is None:
            # A broker would not answer: it asks again by itself.
            return
        if not self._gate.is_open:
            self._gate.require(END, request, caller, broker)
            await self._require_half(broker, request, topic)
        header = EndTransactionRequest(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=request.half_offset,
            commit_log_offset=request.physical_offset,
            commit_or_rollback=end,
            from_transaction_check=request.is_answer,
            msg_id="",
            transaction_id="",
        )
        try:
            async with self._producers.member(topic, broker):
                await self._calls.ask(broker, RequestCode.END_TRANSACTION, header)
        except (OutcomeUnknown, Unreachable) as error:
            raise self._calls.away(broker, error) from error

    async def find_half(self, topic: str, transaction: str, caller: Caller) -> HalfPlace | None:
        """Return where the half message of a transaction is that another proxy has begun.

        Raises Refusal for a caller who may not end it, Rejected when a broker does not answer.
        """
        self._gate.access.require_write(caller, topic)
        for pause_s in HALF_INDEXED_S:
            await self._clock.sleep(pause_s)
            for place in (await self.topic(topic, caller)).places:
                found = await find_half(self._calls, place.broker, topic, transaction)
                if found is not None:
                    return found
        return None

    async def _require_half(self, broker: str, request: End, topic: str) -> None:
        """Raise Refusal unless a half message is of a topic: the id that names it is a client's."""
        half = await self._record(broker, request.physical_offset)
        if props.read(half.properties).get(props.REAL_TOPIC) != topic:
            text = f"the transaction id names no half message of {topic[:255]}"
            raise Refusal(Reason.ACCOUNT_REFUSED, text)

    async def _record(self, broker: str, physical_offset: int) -> Record:
        """Return a message by its place. Raises Refusal and Rejected."""
        header = ViewMessageRequest(offset=physical_offset)
        answer = await self._calls.ask(broker, RequestCode.VIEW_MESSAGE_BY_ID, header)
        try:
            (record,) = read_records(answer.body, check_crc=False)
        except ValueError as error:
            text = f"{broker} shows a message that cannot be read: {error}"
            raise Rejected(Code.INTERNAL_SERVER_ERROR, text) from error
        return record

    # --- receive ---------------------------------------------------------------------------------

    def source(self, broker: str, wanted: PopRequest) -> Source:
        """Return what gives messages of a topic."""
        return TopicSource(self._calls, self._gate, broker, wanted, self._shown)

    async def ack(self, broker: str, request: PopAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        self._gate.require(ACK, request, caller, broker)
        header = AckMessageRequest(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            extra_info=request.handle,
            offset=request.offset,
        )
        await self._calls.ask(broker, RequestCode.ACK_MESSAGE, header)

    async def change_invisible(
        self, broker: str, request: ChangeInvisibleRequest, caller: Caller
    ) -> ReceiptHandle:
        """Have a message come back at another time; return its handle from now on."""
        self._gate.require(CHANGE_INVISIBLE, request, caller, broker)
        return await change_invisible(self._calls, broker, request)

    async def send_back(
        self, broker: str, topic: str, request: sends.SendBackRequest, caller: Caller
    ) -> None:
        """Have a message of a topic delivered again later, or put among the dead letters."""
        self._gate.require(SEND_BACK, request, caller, broker)
        if not self._gate.is_open:
            # The place is the client's word, and the proxy may read every message.
            record = await self._record(broker, request.physical_offset)
            require_readable(self._gate.access, caller, record, request.group)
        header = ConsumerSendMsgBackRequest(
            offset=request.physical_offset,
            group=request.group,
            delay_level=request.delay_level,
            # RocketMQ 5.5.0 fails without it.
            origin_topic=topic,
            max_reconsume_times=request.attempts_max,
        )
        await self._calls.ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=SEND_S)

    # --- clients ---------------------------------------------------------------------------------

    async def register(self, data: HeartbeatData, client: Client, caller: Caller) -> None:
        """Know a client; brokers hear of producers of transactions alone."""
        async for needs in in_slices(heartbeat_needs(data), GROUPS_AT_ONCE):
            self._gate.access.require(caller, needs)
        halves = [name for name in data.producers if (await self.topic(name, caller)).kind in KINDS]
        self._producers.put(client.peer, halves)

    def left(self, peer: Peer) -> None:
        """Forget a client."""
        self._producers.left(peer)


def result_of(broker: str, answer: Command) -> SendResult:
    """Return what an answer says whose code is one of `STORED`. Raises Rejected."""
    try:
        found = _read_sent(answer)
    except HeaderError as error:
        raise unreadable(broker, error) from error
    return SendResult(
        status=_STATUSES[answer.code],
        message_ids=found.msg_id.split(","),
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        transaction_id=found.transaction_id,
        recall_handle=found.recall_handle,
    )


def _header_of(
    request: sends.SendRequest | sends.SendBatchRequest,
    broker: str,
    flags: int = 0,
    attempts: int = 0,
    *,
    is_batch: bool = False,
) -> SendMessageRequest:
    return SendMessageRequest(
        producer_group=request.producer_group,
        topic=request.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=TEMPLATE_QUEUES,
        queue_id=request.queue_id,
        sys_flag=flags,
        born_timestamp=request.born_ms,
        flag=0,
        properties=props.write(request.properties),
        reconsume_times=attempts,
        unit_mode=False,
        batch=is_batch,
        broker_name=broker,
    )
