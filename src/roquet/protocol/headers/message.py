"""Headers of sending, pulling and finding messages.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from roquet.protocol.header import Header, wire

if TYPE_CHECKING:
    from collections.abc import Mapping


class SendMessageRequest(Header):
    """Java: SendMessageRequestHeader (SEND_MESSAGE 10)."""

    SHORT_NAMES: ClassVar[Mapping[str, str]] = {
        "producerGroup": "a",
        "topic": "b",
        "defaultTopic": "c",
        "defaultTopicQueueNums": "d",
        "queueId": "e",
        "sysFlag": "f",
        "bornTimestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsumeTimes": "j",
        "unitMode": "k",
        "maxReconsumeTimes": "l",
        "batch": "m",
        "bname": "n",
    }

    producer_group: str = wire("producerGroup", "str", default="")
    topic: str = wire("topic", "str")
    default_topic: str = wire("defaultTopic", "str")
    default_topic_queue_nums: int = wire("defaultTopicQueueNums", "i32")
    queue_id: int = wire("queueId", "i32")
    sys_flag: int = wire("sysFlag", "i32")
    born_timestamp: int = wire("bornTimestamp", "i64")
    flag: int = wire("flag", "i32")
    properties: str | None = wire("properties", "str", default=None)
    reconsume_times: int | None = wire("reconsumeTimes", "i32", default=None)
    unit_mode: bool | None = wire("unitMode", "bool", default=None)
    batch: bool | None = wire("batch", "bool", default=None)
    max_reconsume_times: int | None = wire("maxReconsumeTimes", "i32", default=None)
    broker_name: str | None = wire("bname", "str", default=None)


class SendMessageResponse(Header):
    """Java: SendMessageResponseHeader (SEND_MESSAGE 10)."""

    msg_id: str = wire("msgId", "str")
    queue_id: int = wire("queueId", "i32")
    queue_offset: int = wire("queueOffset", "i64")
    transaction_id: str | None = wire("transactionId", "str", default=None)
    batch_uniq_id: str | None = wire("batchUniqId", "str", default=None)
    recall_handle: str | None = wire("recallHandle", "str", default=None)


class SendInSequenceRequest(Header):
    """Our own (SEND_IN_SEQUENCE 7001); the body is that of SEND_BATCH_MESSAGE."""

    producer_group: str = wire("producerGroup", "str", default="")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    born_timestamp: int = wire("bornTimestamp", "i64")
    producer: str = wire("producer", "str")
    epoch: int = wire("epoch", "i64")
    first: int = wire("first", "i64")
    """Number of the first message."""
    chain: str = wire("chain", "str")
    """The chain in front of it, 16 hexadecimal digits."""
    broker_name: str | None = wire("bname", "str", default=None)


class SendInSequenceResponse(Header):
    """Our own (SEND_IN_SEQUENCE 7001)."""

    next: int = wire("next", "i64")
    """Number of the message that the broker takes next."""
    chain: str = wire("chain", "str")
    """The chain in front of that message: of other messages behind the request, too."""
    appended: int = wire("appended", "i32")
    """Messages of the request that were not there yet."""


class GetSequencesRequest(Header):
    """Our own (GET_SEQUENCES 7002)."""

    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    producer: str = wire("producer", "str")
    broker_name: str | None = wire("bname", "str", default=None)


class GetSequencesResponse(Header):
    """Our own (GET_SEQUENCES 7002)."""

    epoch: int = wire("epoch", "i64")
    """-1: the broker knows nothing of the producer in this queue."""
    next: int = wire("next", "i64")
    chain: str = wire("chain", "str")
    since: int = wire("since", "i64")
    """Unix milliseconds: of what was stored from then on nothing is forgotten."""


class PullMessageRequest(Header):
    """Java: PullMessageRequestHeader (PULL_MESSAGE 11)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    queue_offset: int = wire("queueOffset", "i64")
    max_msg_nums: int = wire("maxMsgNums", "i32")
    sys_flag: int = wire("sysFlag", "i32")
    commit_offset: int = wire("commitOffset", "i64")
    suspend_timeout_millis: int = wire("suspendTimeoutMillis", "i64")
    subscription: str | None = wire("subscription", "str", default=None)
    sub_version: int = wire("subVersion", "i64")
    expression_type: str | None = wire("expressionType", "str", default=None)
    max_msg_bytes: int | None = wire("maxMsgBytes", "i32", default=None)
    request_source: int | None = wire("requestSource", "i32", default=None)
    proxy_froward_client_id: str | None = wire("proxyFrowardClientId", "str", default=None)
    lite_topic: str | None = wire("liteTopic", "str", default=None)
    projection: str | None = wire("projection", "str", default=None)
    """Not RocketMQ's: which fields of the messages are wanted.

    `headers`, `properties` or `properties:NAME,NAME`; brokers that do not know it pass over it.
    The rule: crates/core/src/codec/projection.rs.
    """


class PullMessageResponse(Header):
    """Java: PullMessageResponseHeader (PULL_MESSAGE 11)."""

    suggest_which_broker_id: int = wire("suggestWhichBrokerId", "i64")
    next_begin_offset: int = wire("nextBeginOffset", "i64")
    min_offset: int = wire("minOffset", "i64")
    max_offset: int = wire("maxOffset", "i64")
    offset_delta: int | None = wire("offsetDelta", "i64", default=None)
    topic_sys_flag: int | None = wire("topicSysFlag", "i32", default=None)
    group_sys_flag: int | None = wire("groupSysFlag", "i32", default=None)
    forbidden_type: int | None = wire("forbiddenType", "i32", default=None)
    projection: str | None = wire("projection", "str", default=None)
    """Not RocketMQ's: `1` where the broker left out what was not wanted."""


class GetSumsRequest(Header):
    """Our own (GET_SUMS 7004)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str = wire("topic", "str")
    queue_id: int = wire("queueId", "i32")
    begin: int = wire("begin", "i64")
    """The first offset."""
    end: int = wire("end", "i64")
    """The offset behind the last."""
    stored_begin: int | None = wire("storedBegin", "i64", default=None)
    """Only messages stored at this time or later, Unix milliseconds."""
    stored_end: int | None = wire("storedEnd", "i64", default=None)
    """Only messages stored before this time."""
    broker_name: str | None = wire("bname", "str", default=None)


class GetSumsResponse(Header):
    """Our own (GET_SUMS 7004)."""

    count: int = wire("count", "i64")
    xor: int = wire("xor", "i64")
    """Of the checksums of the messages: crates/core/src/arrow/sums.rs has the rule."""
    first: int = wire("first", "i64")
    """The first offset that has a message; -1: none has."""
    last: int = wire("last", "i64")
    next: int = wire("next", "i64")
    """The offset to go on at; the end that was asked for when all was summed up."""


class QueryMessageRequest(Header):
    """Java: QueryMessageRequestHeader (QUERY_MESSAGE 12)."""

    topic: str = wire("topic", "str")
    key: str = wire("key", "str")
    max_num: int = wire("maxNum", "i32")
    begin_timestamp: int = wire("beginTimestamp", "i64")
    end_timestamp: int = wire("endTimestamp", "i64")
    index_type: str | None = wire("indexType", "str", default=None)
    last_key: str | None = wire("lastKey", "str", default=None)


class QueryMessageResponse(Header):
    """Java: QueryMessageResponseHeader (QUERY_MESSAGE 12)."""

    index_last_update_timestamp: int = wire("indexLastUpdateTimestamp", "i64")
    index_last_update_phyoffset: int = wire("indexLastUpdatePhyoffset", "i64")


class ViewMessageRequest(Header):
    """Java: ViewMessageRequestHeader (VIEW_MESSAGE_BY_ID 33)."""

    topic: str | None = wire("topic", "str", default=None)
    offset: int = wire("offset", "i64")


class ConsumerSendMsgBackRequest(Header):
    """Java: ConsumerSendMsgBackRequestHeader (CONSUMER_SEND_MSG_BACK 36)."""

    offset: int = wire("offset", "i64")
    group: str = wire("group", "str")
    delay_level: int = wire("delayLevel", "i32")
    origin_msg_id: str | None = wire("originMsgId", "str", default=None)
    origin_topic: str | None = wire("originTopic", "str", default=None)
    unit_mode: bool = wire("unitMode", "bool", default=False)
    max_reconsume_times: int | None = wire("maxReconsumeTimes", "i32", default=None)


class EndTransactionRequest(Header):
    """Java: EndTransactionRequestHeader (END_TRANSACTION 37)."""

    topic: str | None = wire("topic", "str", default=None)
    producer_group: str = wire("producerGroup", "str")
    tran_state_table_offset: int = wire("tranStateTableOffset", "i64")
    commit_log_offset: int = wire("commitLogOffset", "i64")
    commit_or_rollback: int = wire("commitOrRollback", "i32")
    from_transaction_check: bool | None = wire("fromTransactionCheck", "bool", default=None)
    msg_id: str = wire("msgId", "str")
    transaction_id: str | None = wire("transactionId", "str", default=None)


class ReplyMessageRequest(Header):
    """Java: ReplyMessageRequestHeader (PUSH_REPLY_MESSAGE_TO_CLIENT 326)."""

    producer_group: str = wire("producerGroup", "str")
    topic: str = wire("topic", "str")
    default_topic: str = wire("defaultTopic", "str")
    default_topic_queue_nums: int = wire("defaultTopicQueueNums", "i32")
    queue_id: int = wire("queueId", "i32")
    sys_flag: int = wire("sysFlag", "i32")
    born_timestamp: int = wire("bornTimestamp", "i64")
    flag: int = wire("flag", "i32")
    properties: str | None = wire("properties", "str", default=None)
    reconsume_times: int | None = wire("reconsumeTimes", "i32", default=None)
    unit_mode: bool = wire("unitMode", "bool", default=False)
    born_host: str = wire("bornHost", "str")
    store_host: str = wire("storeHost", "str")
    store_timestamp: int = wire("storeTimestamp", "i64")


class RecallMessageRequest(Header):
    """Java: RecallMessageRequestHeader (RECALL_MESSAGE 370)."""

    producer_group: str | None = wire("producerGroup", "str", default=None)
    topic: str = wire("topic", "str")
    recall_handle: str = wire("recallHandle", "str")


class RecallMessageResponse(Header):
    """Java: RecallMessageResponseHeader (RECALL_MESSAGE 370)."""

    msg_id: str = wire("msgId", "str")
