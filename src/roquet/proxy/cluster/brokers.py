"""The brokers of a cluster, as the front sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendResult, SendStatus
from roquet.broker.api.transactions import Verdict
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
)
from roquet.protocol.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    ChangeInvisibleTimeResponse,
)
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.recall_handle import RecallHandle
from roquet.protocol.names import AUTO_CREATE_TOPIC
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.proxy.cluster.receiving import ClusterSource
from roquet.proxy.cluster.transactions import KINDS
from roquet.proxy.rules.codes import Code, Rejected
from roquet.remoting.headers import reader

if TYPE_CHECKING:
    from roquet.acl.rights import RequestGuard
    from roquet.base.clock import Clock
    from roquet.broker.api import send as sends
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import (
        ChangeInvisibleRequest,
        LightPopRequest,
        PopAckRequest,
        PopRequest,
    )
    from roquet.broker.api.transactions import EndTransactionRequest as End
    from roquet.broker.clients.registry import Client
    from roquet.broker.operations.light import LightOperations
    from roquet.model.group import SubscriptionGroupConfig
    from roquet.protocol.bodies.clients import HeartbeatData
    from roquet.proxy.brokers.api import Source, Topic
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.cluster.directory import Directory
    from roquet.proxy.cluster.transactions import Producers
    from roquet.remoting.router import Peer
    from roquet.service.metrics import Metrics

SEND_S = 3.0
TEMPLATE_QUEUES = 4
_STATUSES = {
    int(ResponseCode.SUCCESS): SendStatus.STORED,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.REPLICA_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.NO_REPLICA,
}
"""Answers by which a message is stored."""
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
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._calls = calls
        self._directory = directory
        self._producers = producers
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
        """Nothing: nobody signs here."""
        return None

    @property
    def light(self) -> LightOperations | None:
        """Nothing: light topics are served by the brokers alone."""
        return None

    async def topic(self, name: str, caller: Caller) -> Topic:
        """Return a topic."""
        del caller
        return await self._directory.topic(name)

    async def group(self, name: str, caller: Caller) -> SubscriptionGroupConfig:
        """Return a group, which may be made by that."""
        del caller
        return await self._directory.group(name)

    async def has(self, broker: str, topic: str) -> bool:
        """Tell whether messages of a topic may lie on a broker."""
        return await self._directory.has(broker, topic)

    # --- send ------------------------------------------------------------------------------------

    async def send(self, broker: str, request: sends.SendRequest, caller: Caller) -> SendResult:
        """Store one message."""
        del caller
        header = _header_of(request, broker, request.sys_flag, request.attempts or 0)
        return await self._sent(broker, RequestCode.SEND_MESSAGE_V2, header, request.body)

    async def send_batch(
        self, broker: str, request: sends.SendBatchRequest, caller: Caller
    ) -> SendResult:
        """Store several messages for one queue."""
        del caller
        header = _header_of(request, broker, is_batch=True)
        return await self._sent(broker, RequestCode.SEND_BATCH_MESSAGE, header, request.messages)

    async def _sent(
        self, broker: str, code: RequestCode, header: SendMessageRequest, body: bytes
    ) -> SendResult:
        answer = await self._calls.ask(
            broker, code, header, body=body, timeout_s=SEND_S, passed=_STATUSES, short=True
        )
        try:
            found = _read_sent(answer)
        except HeaderError as error:
            raise _unreadable(broker, error) from error
        return SendResult(
            status=_STATUSES[answer.code],
            message_ids=found.msg_id.split(","),
            queue_id=found.queue_id,
            queue_offset=found.queue_offset,
            transaction_id=found.transaction_id,
            recall_handle=found.recall_handle,
        )

    async def recall(self, request: sends.RecallRequest, caller: Caller) -> str:
        """Take a message back that is not due yet; return its id."""
        del caller
        try:
            handle = RecallHandle.decode(request.handle)
        except ValueError as error:
            raise Refusal(Reason.INVALID_ARGUMENT, str(error)) from error
        if not await self.has(handle.broker_name, request.topic):
            text = f"broker {handle.broker_name[:255]} is not known here"
            raise Rejected(Code.BAD_REQUEST, text)
        header = RecallMessageRequest(
            producer_group=request.topic, topic=request.topic, recall_handle=request.handle
        )
        answer = await self._calls.ask(handle.broker_name, RequestCode.RECALL_MESSAGE, header)
        try:
            return RecallMessageResponse.decode(answer.ext).msg_id
        except HeaderError as error:
            raise _unreadable(handle.broker_name, error) from error

    async def end_transaction(self, broker: str, request: End, caller: Caller) -> None:
        """Commit a half message or roll it back."""
        topic = request.producer_group
        known = {place.broker for place in (await self.topic(topic, caller)).places}
        if broker not in known:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "cannot found transaction data")
        end = None if request.verdict is None else _ENDS.get(request.verdict)
        if end is None:
            # A broker would not answer: it asks again by itself.
            return
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
        async with self._producers.member(topic):
            await self._calls.ask(broker, RequestCode.END_TRANSACTION, header)

    # --- receive ---------------------------------------------------------------------------------

    def source(self, broker: str, wanted: PopRequest) -> Source:
        """Return what gives messages of a topic."""
        return ClusterSource(self._calls, broker, wanted)

    def light_source(self, wanted: LightPopRequest) -> Source:
        """Refuse: light topics are not served. Raises Refusal."""
        raise Refusal(Reason.UNSUPPORTED, f"light topics are not served here: {wanted.topic}")

    async def ack(self, broker: str, request: PopAckRequest, caller: Caller) -> None:
        """End the flight of a message."""
        del caller
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
        del caller
        header = ChangeInvisibleTimeRequest(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            extra_info=request.handle,
            offset=request.offset,
            invisible_time=request.invisible_ms,
            suspend=request.is_suspended,
        )
        answer = await self._calls.ask(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        try:
            now = ChangeInvisibleTimeResponse.decode(answer.ext)
        except HeaderError as error:
            raise _unreadable(broker, error) from error
        return ReceiptHandle.decode(request.handle)._replace(
            start_offset=request.offset,
            pop_time_ms=now.pop_time,
            invisible_ms=now.invisible_time,
            revive_queue=now.revive_qid,
        )

    async def send_back(
        self, broker: str, topic: str, request: sends.SendBackRequest, caller: Caller
    ) -> None:
        """Have a message of a topic delivered again later, or put among the dead letters."""
        del caller
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
        halves = [name for name in data.producers if (await self.topic(name, caller)).kind in KINDS]
        self._producers.put(client.peer, halves)

    def left(self, peer: Peer) -> None:
        """Forget a client."""
        self._producers.left(peer)


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


def _unreadable(broker: str, error: HeaderError) -> Rejected:
    text = f"{broker} answers without its fields: {error}"
    return Rejected(Code.INTERNAL_SERVER_ERROR, text)
