"""What consumers ask brokers, typed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, Unreachable
from roquet.client._cluster.requests import request
from roquet.model.route import MASTER_ID
from roquet.protocol import names, tags
from roquet.protocol.bodies import clients, locks
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.client import GetConsumerListByGroupRequest, LockBatchMqRequest
from roquet.protocol.headers.message import (
    ConsumerSendMsgBackRequest,
    PullMessageRequest,
    PullMessageResponse,
)
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
from roquet.remoting.headers import reader
from roquet.remoting.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.client._cluster.session import Session
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.model.subscription import SubscriptionData

PULL_STATUSES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_read_pulled = reader(PullMessageResponse)
LOCK_TIMEOUT_S = 1.0
SEND_BACK_TIMEOUT_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """One pull request."""

    queue: MessageQueue
    group: str
    offset: int
    subscription: SubscriptionData
    count: int
    suspend_s: float
    timeout_s: float
    commit_offset: int = 0
    """Committed by the way when greater than 0."""
    with_subscription: bool = False
    """Carry the expression, for groups that brokers know of no heartbeat."""
    broker_id: int = MASTER_ID


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """Its answer: one of the PULL_STATUSES."""

    status: int
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    records: bytes


class BrokerCalls:
    """Requests about queues; each goes to the broker that has the queue."""

    def __init__(self, session: Session) -> None:
        """Use the session's routes and connections."""
        self._session = session

    async def pull(self, pull: Pull) -> Pulled:
        """Fetch messages; waits at the broker for up to `suspend_s` when there is none.

        Raises Refused, Unreachable, OutcomeUnknown.
        """
        session, queue = self._session, pull.queue
        address = session.reader(queue.broker_name, pull.broker_id)
        flag = sys_flag.PULL_SUSPEND if pull.suspend_s > 0 else 0
        if pull.commit_offset > 0 and address == session.book.master(queue.broker_name):
            flag |= sys_flag.PULL_COMMIT_OFFSET
        if pull.with_subscription:
            flag |= sys_flag.PULL_SUBSCRIPTION
        header = PullMessageRequest(
            consumer_group=pull.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=pull.offset,
            max_msg_nums=pull.count,
            sys_flag=flag,
            commit_offset=max(0, pull.commit_offset),
            suspend_timeout_millis=int(pull.suspend_s * 1000),
            subscription=pull.subscription.expression if pull.with_subscription else None,
            sub_version=pull.subscription.version,
            expression_type=str(pull.subscription.expression_type),
        )
        command = request(RequestCode.PULL_MESSAGE, header, broker=queue.broker_name)
        answer = await session.client.call(address, command, pull.timeout_s)
        if answer.code not in PULL_STATUSES:
            raise refused(answer.code, answer.remark)
        try:
            found = _read_pulled(answer)
        except HeaderError as error:
            raise Unreachable(f"{address} answers a pull without its fields: {error}") from error
        return Pulled(
            status=answer.code,
            next_offset=found.next_begin_offset,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            suggested_broker_id=found.suggest_which_broker_id,
            records=answer.body,
        )

    async def pull_nothing(self, group: str, queue: MessageQueue, timeout_s: float = 3.0) -> None:
        """Pull where nothing is: a group's first pull creates it, a commit does not.

        Raises as `pull` does.
        """
        nothing = Pull(
            queue=queue,
            group=group,
            offset=await self.max_offset(queue),
            subscription=tags.subscribe(queue.topic, "*"),
            count=1,
            suspend_s=0,
            timeout_s=timeout_s,
            with_subscription=True,
        )
        await self.pull(nothing)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset that a group has committed, None when there is none."""
        header = QueryConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            # Otherwise a queue that still has its first message counts as committed at 0.
            set_zero_if_not_found=False,
        )
        try:
            answer = await self._session.ask(
                self._session.reader(queue.broker_name),
                request(RequestCode.QUERY_CONSUMER_OFFSET, header, broker=queue.broker_name),
            )
        except Refused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return QueryConsumerOffsetResponse.decode(answer.ext).offset

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, wait: bool = False
    ) -> None:
        """Commit an offset: one-way, or waiting for the broker's word."""
        header = UpdateConsumerOffsetRequest(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        command = request(RequestCode.UPDATE_CONSUMER_OFFSET, header, broker=queue.broker_name)
        address = self._session.master(queue.broker_name)
        if wait:
            await self._session.ask(address, command)
        else:
            await self._session.tell(address, command)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset after the last message."""
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._session.ask(
            self._session.reader(queue.broker_name),
            request(RequestCode.GET_MAX_OFFSET, header, broker=queue.broker_name),
        )
        return GetMaxOffsetResponse.decode(answer.ext).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset still there."""
        header = GetMinOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._session.ask(
            self._session.reader(queue.broker_name),
            request(RequestCode.GET_MIN_OFFSET, header, broker=queue.broker_name),
        )
        return GetMinOffsetResponse.decode(answer.ext).offset

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time."""
        header = SearchOffsetRequest(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = await self._session.ask(
            self._session.reader(queue.broker_name),
            request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header, broker=queue.broker_name),
        )
        return SearchOffsetResponse.decode(answer.ext).offset

    async def client_ids(self, group: str, broker_name: str) -> list[str]:
        """Return the members of a group as a broker knows them."""
        header = GetConsumerListByGroupRequest(consumer_group=group)
        answer = await self._session.ask(
            self._session.reader(broker_name),
            request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, broker=broker_name),
        )
        try:
            return clients.decode_consumer_ids(answer.body)
        except JsonError as error:
            raise Unreachable(f"the members of {group} cannot be read: {error}") from error

    async def lock(
        self, group: str, broker_name: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Ask for the locks of queues of one broker; return those that are ours now."""
        body = self._lock_body(group, queues)
        answer = await self._session.ask(
            self._session.master(broker_name),
            request(RequestCode.LOCK_BATCH_MQ, LockBatchMqRequest(), body, broker=broker_name),
            LOCK_TIMEOUT_S,
        )
        try:
            return locks.decode_locked(answer.body)
        except JsonError as error:
            raise Unreachable(f"the locks of {group} cannot be read: {error}") from error

    async def unlock(self, group: str, broker_name: str, queues: Iterable[MessageQueue]) -> None:
        """Give locks back, one-way."""
        body = self._lock_body(group, queues)
        command = request(
            RequestCode.UNLOCK_BATCH_MQ, LockBatchMqRequest(), body, broker=broker_name
        )
        await self._session.tell(self._session.master(broker_name), command)

    async def send_back(
        self, group: str, message: StoredMessage, delay_level: int, retry_times_max: int
    ) -> None:
        """Have a broker deliver a message again later, or make it a dead letter."""
        header = ConsumerSendMsgBackRequest(
            offset=message.physical_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=retry_times_max if retry_times_max >= 0 else 16,
        )
        await self._session.ask(
            self._session.master(message.broker_name),
            request(RequestCode.CONSUMER_SEND_MSG_BACK, header, broker=message.broker_name),
            SEND_BACK_TIMEOUT_S,
        )

    def _lock_body(self, group: str, queues: Iterable[MessageQueue]) -> bytes:
        return locks.LockRequest(
            client_id=self._session.members.client_id, group=group, queues=frozenset(queues)
        ).encode()


def is_retry_of(queue: MessageQueue, group: str) -> bool:
    """Tell whether a queue belongs to the group's retry topic."""
    return queue.topic == names.retry_topic(group)
