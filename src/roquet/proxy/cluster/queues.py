"""Single queues of the brokers of a cluster. The broker of a queue itself waits for messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.offsets import CommitResult
from roquet.broker.api.receive import ReceiveStatus
from roquet.broker.operations.table import (
    BY_TIME,
    COMMIT,
    COMMITTED,
    MAX_OFFSET,
    MIN_OFFSET,
    RECEIVE,
)
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import PullMessageRequest, PullMessageResponse
from roquet.protocol.headers.offset import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from roquet.protocol.messages import sys_flag
from roquet.proxy.brokers.api import Pulled
from roquet.proxy.cluster.receiving import unreadable
from roquet.proxy.rules.codes import Code, Rejected
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.offsets import (
        CommitRequest,
        CommittedRequest,
        OffsetByTimeRequest,
        QueueRequest,
    )
    from roquet.broker.api.receive import ReceiveRequest
    from roquet.protocol.command import Command
    from roquet.proxy.cluster.calls import Calls
    from roquet.proxy.cluster.guard import Gate

_STATUSES = {
    int(ResponseCode.SUCCESS): ReceiveStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): ReceiveStatus.NOT_FOUND,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): ReceiveStatus.RETRY,
    int(ResponseCode.PULL_OFFSET_MOVED): ReceiveStatus.OFFSET_MOVED,
}
LOOK_S = 6.0
"""A broker may answer so much later: RocketMQ's look at pulls that wait every 5 s."""
_KNOWN = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})


class ClusterQueues:
    """Queues, over the remoting protocol; `gate` is asked before a broker is."""

    def __init__(self, calls: Calls, gate: Gate) -> None:
        self._calls = calls
        self._gate = gate

    async def pull(self, broker: str, request: ReceiveRequest, caller: Caller) -> Pulled:
        """Read from a queue, waiting as long as the request says."""
        self._gate.require(RECEIVE, request, caller, broker)
        answer = await self._calls.ask(
            broker,
            RequestCode.PULL_MESSAGE,
            _header_of(request),
            timeout_s=(request.wait_ms or 0) / 1000 + LOOK_S,
            passed=_STATUSES.keys(),
            waits=True,
        )
        try:
            told = PullMessageResponse.decode(answer.ext)
            records = read_records(answer.body, check_crc=False)
        except (HeaderError, ValueError) as error:
            text = f"{broker} answers a pull that cannot be read: {error}"
            raise Rejected(Code.INTERNAL_SERVER_ERROR, text) from error
        topic, gate = request.topic, self._gate
        if not gate.is_open:
            # What is of a topic that the client may not read stays unseen.
            records = [it for it in records if gate.is_visible(it, topic, caller)]
        bounds = told.next_begin_offset, told.min_offset, told.max_offset
        return Pulled(_STATUSES[answer.code], records, *bounds)

    async def commit(self, broker: str, request: CommitRequest, caller: Caller) -> CommitResult:
        """Note how far a group has consumed a queue."""
        self._gate.require(COMMIT, request, caller, broker)
        header = UpdateConsumerOffsetRequest(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            commit_offset=request.offset,
        )
        answer = await self._calls.ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        # Both makes answer a success, and say by a remark alone that nothing was noted.
        return CommitResult.RESET_PENDING if answer.remark else CommitResult.STORED

    async def committed(self, broker: str, request: CommittedRequest, caller: Caller) -> int | None:
        """Return where a group continues in a queue; None: it has never been there."""
        self._gate.require(COMMITTED, request, caller, broker)
        header = QueryConsumerOffsetRequest(
            consumer_group=request.group,
            topic=request.topic,
            queue_id=request.queue_id,
            set_zero_if_not_found=request.may_begin_at_zero,
        )
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._calls.ask(broker, code, header, passed=_KNOWN)
        if answer.code != ResponseCode.SUCCESS:
            return None
        return _offset(broker, answer, QueryConsumerOffsetResponse)

    async def min_offset(self, broker: str, request: QueueRequest, caller: Caller) -> int:
        """Return the first offset of a queue."""
        self._gate.require(MIN_OFFSET, request, caller, broker)
        header = GetMinOffsetRequest(topic=request.topic, queue_id=request.queue_id)
        answer = await self._calls.ask(broker, RequestCode.GET_MIN_OFFSET, header)
        return _offset(broker, answer, GetMinOffsetResponse)

    async def max_offset(self, broker: str, request: QueueRequest, caller: Caller) -> int:
        """Return the offset that the next message of a queue will have."""
        self._gate.require(MAX_OFFSET, request, caller, broker)
        header = GetMaxOffsetRequest(topic=request.topic, queue_id=request.queue_id)
        answer = await self._calls.ask(broker, RequestCode.GET_MAX_OFFSET, header)
        return _offset(broker, answer, GetMaxOffsetResponse)

    async def by_time(self, broker: str, request: OffsetByTimeRequest, caller: Caller) -> int:
        """Return the offset for a store time."""
        self._gate.require(BY_TIME, request, caller, broker)
        header = SearchOffsetRequest(
            topic=request.topic, queue_id=request.queue_id, timestamp=request.time_ms
        )
        answer = await self._calls.ask(broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return _offset(broker, answer, SearchOffsetResponse)


def _offset(
    broker: str,
    answer: Command,
    kind: type[
        QueryConsumerOffsetResponse
        | GetMinOffsetResponse
        | GetMaxOffsetResponse
        | SearchOffsetResponse
    ],
) -> int:
    """Return the offset in an answer. Raises Rejected when there is none to be read."""
    try:
        return kind.decode(answer.ext).offset
    except HeaderError as error:
        raise unreadable(broker, error) from error


def _header_of(request: ReceiveRequest) -> PullMessageRequest:
    flags = sys_flag.PULL_SUBSCRIPTION if request.filter is not None else 0
    # Brokers move the end of a wait by up to a tenth, and look at it only now and then.
    wait_ms = (request.wait_ms or 0) * 4 // 5
    if wait_ms:
        flags |= sys_flag.PULL_SUSPEND
    own = request.filter
    return PullMessageRequest(
        consumer_group=request.group,
        topic=request.topic,
        queue_id=request.queue_id,
        queue_offset=request.offset,
        max_msg_nums=request.messages_max,
        sys_flag=flags,
        commit_offset=0,
        suspend_timeout_millis=wait_ms,
        subscription=None if own is None else own.expression,
        sub_version=request.version,
        expression_type=None if own is None else own.kind,
    )
