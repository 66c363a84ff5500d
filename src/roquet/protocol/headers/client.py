"""Headers of what clients say about themselves and are told.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class HeartbeatRequest(Header):
    """Java: HeartbeatRequestHeader (HEART_BEAT 34)."""


class UnregisterClientRequest(Header):
    """Java: UnregisterClientRequestHeader (UNREGISTER_CLIENT 35)."""

    client_id: str = wire("clientID", "str")
    producer_group: str | None = wire("producerGroup", "str", default=None)
    consumer_group: str | None = wire("consumerGroup", "str", default=None)


class UnregisterClientResponse(Header):
    """Java: UnregisterClientResponseHeader (UNREGISTER_CLIENT 35)."""


class GetConsumerListByGroupRequest(Header):
    """Java: GetConsumerListByGroupRequestHeader (GET_CONSUMER_LIST_BY_GROUP 38)."""

    consumer_group: str = wire("consumerGroup", "str")


class GetConsumerListByGroupResponse(Header):
    """Java: GetConsumerListByGroupResponseHeader (GET_CONSUMER_LIST_BY_GROUP 38)."""


class CheckTransactionStateRequest(Header):
    """Java: CheckTransactionStateRequestHeader (CHECK_TRANSACTION_STATE 39)."""

    topic: str | None = wire("topic", "str", default=None)
    tran_state_table_offset: int = wire("tranStateTableOffset", "i64")
    commit_log_offset: int = wire("commitLogOffset", "i64")
    msg_id: str | None = wire("msgId", "str", default=None)
    transaction_id: str | None = wire("transactionId", "str", default=None)
    offset_msg_id: str | None = wire("offsetMsgId", "str", default=None)
    broker_name: str | None = wire("bname", "str", default=None)


class NotifyConsumerIdsChangedRequest(Header):
    """Java: NotifyConsumerIdsChangedRequestHeader (NOTIFY_CONSUMER_IDS_CHANGED 40)."""

    consumer_group: str = wire("consumerGroup", "str")


class LockBatchMqRequest(Header):
    """Java: LockBatchMqRequestHeader (LOCK_BATCH_MQ 41)."""


class UnlockBatchMqRequest(Header):
    """Java: UnlockBatchMqRequestHeader (UNLOCK_BATCH_MQ 42)."""


class ResetOffsetRequest(Header):
    """Java: ResetOffsetRequestHeader (RESET_CONSUMER_CLIENT_OFFSET 220)."""

    group: str = wire("group", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32", default=0)
    offset: int | None = wire("offset", "i64", default=None)
    timestamp: int = wire("timestamp", "i64")
    is_force: bool = wire("isForce", "bool")


class GetConsumerStatusRequest(Header):
    """Java: GetConsumerStatusRequestHeader (GET_CONSUMER_STATUS_FROM_CLIENT 221)."""

    topic: str = wire("topic", "str")
    group: str = wire("group", "str")
    client_addr: str | None = wire("clientAddr", "str", default=None)
