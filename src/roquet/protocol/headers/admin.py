"""Headers of administration.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class CreateTopicRequest(Header):
    """Java: CreateTopicRequestHeader (UPDATE_AND_CREATE_TOPIC 17)."""

    topic: str = wire("topic", "str")
    default_topic: str = wire("defaultTopic", "str")
    read_queue_nums: int = wire("readQueueNums", "i32")
    write_queue_nums: int = wire("writeQueueNums", "i32")
    perm: int = wire("perm", "i32")
    topic_filter_type: str = wire("topicFilterType", "str")
    topic_sys_flag: int | None = wire("topicSysFlag", "i32", default=None)
    order: bool = wire("order", "bool")
    attributes: str | None = wire("attributes", "str", default=None)
    force: bool | None = wire("force", "bool", default=None)


class CreateTopicListRequest(Header):
    """Java: CreateTopicListRequestHeader (UPDATE_AND_CREATE_TOPIC_LIST 18)."""


class GetBrokerConfigResponse(Header):
    """Java: GetBrokerConfigResponseHeader (GET_BROKER_CONFIG 26)."""

    version: str = wire("version", "str")


class GetTopicStatsInfoRequest(Header):
    """Java: GetTopicStatsInfoRequestHeader (GET_TOPIC_STATS_INFO 202)."""

    topic: str = wire("topic", "str")


class GetConsumerConnectionListRequest(Header):
    """Java: GetConsumerConnectionListRequestHeader (GET_CONSUMER_CONNECTION_LIST 203)."""

    consumer_group: str = wire("consumerGroup", "str")


class GetProducerConnectionListRequest(Header):
    """Java: GetProducerConnectionListRequestHeader (GET_PRODUCER_CONNECTION_LIST 204)."""

    producer_group: str = wire("producerGroup", "str")


class DeleteSubscriptionGroupRequest(Header):
    """Java: DeleteSubscriptionGroupRequestHeader (DELETE_SUBSCRIPTIONGROUP 207)."""

    group_name: str = wire("groupName", "str")
    clean_offset: bool = wire("cleanOffset", "bool", default=False)


class GetConsumeStatsRequest(Header):
    """Java: GetConsumeStatsRequestHeader (GET_CONSUME_STATS 208)."""

    consumer_group: str = wire("consumerGroup", "str")
    topic: str | None = wire("topic", "str", default=None)
    topic_list: str | None = wire("topicList", "str", default=None)


class DeleteTopicRequest(Header):
    """Java: DeleteTopicRequestHeader (DELETE_TOPIC_IN_BROKER 215)."""

    topic: str = wire("topic", "str")


class QueryTopicConsumeByWhoRequest(Header):
    """Java: QueryTopicConsumeByWhoRequestHeader (QUERY_TOPIC_CONSUME_BY_WHO 300)."""

    topic: str = wire("topic", "str")


class QueryConsumeTimeSpanRequest(Header):
    """Java: QueryConsumeTimeSpanRequestHeader (QUERY_CONSUME_TIME_SPAN 303)."""

    topic: str = wire("topic", "str")
    group: str = wire("group", "str")


class GetConsumerRunningInfoRequest(Header):
    """Java: GetConsumerRunningInfoRequestHeader (GET_CONSUMER_RUNNING_INFO 307)."""

    consumer_group: str = wire("consumerGroup", "str")
    client_id: str = wire("clientId", "str")
    jstack_enable: bool = wire("jstackEnable", "bool", default=False)


class QueryCorrectionOffset(Header):
    """Java: QueryCorrectionOffsetHeader (QUERY_CORRECTION_OFFSET 308)."""

    filter_groups: str | None = wire("filterGroups", "str", default=None)
    compare_group: str = wire("compareGroup", "str")
    topic: str = wire("topic", "str")


class ConsumeMessageDirectlyResultRequest(Header):
    """Java: ConsumeMessageDirectlyResultRequestHeader (CONSUME_MESSAGE_DIRECTLY 309)."""

    consumer_group: str = wire("consumerGroup", "str")
    client_id: str | None = wire("clientId", "str", default=None)
    msg_id: str | None = wire("msgId", "str", default=None)
    broker_name: str | None = wire("brokerName", "str", default=None)
    topic: str | None = wire("topic", "str", default=None)
    topic_sys_flag: int | None = wire("topicSysFlag", "i32", default=None)
    group_sys_flag: int | None = wire("groupSysFlag", "i32", default=None)


class CloneGroupOffsetRequest(Header):
    """Java: CloneGroupOffsetRequestHeader (CLONE_GROUP_OFFSET 314)."""

    src_group: str = wire("srcGroup", "str")
    dest_group: str = wire("destGroup", "str")
    topic: str | None = wire("topic", "str", default=None)
    offline: bool = wire("offline", "bool", default=False)


class ViewBrokerStatsDataRequest(Header):
    """Java: ViewBrokerStatsDataRequestHeader (VIEW_BROKER_STATS_DATA 315)."""

    stats_name: str = wire("statsName", "str")
    stats_key: str = wire("statsKey", "str")


class GetConsumeStatsInBroker(Header):
    """Java: GetConsumeStatsInBrokerHeader (GET_BROKER_CONSUME_STATS 317)."""

    is_order: bool = wire("isOrder", "bool")
    lag_only: bool = wire("lagOnly", "bool", default=False)
    """Our own field: the answer has a number for each group and no queues (`GroupLags`). A broker
    that knows it says so in its runtime information, by `GROUP_LAGS`."""


class QueryConsumeQueueRequest(Header):
    """Java: QueryConsumeQueueRequestHeader (QUERY_CONSUME_QUEUE 321)."""

    topic: str | None = wire("topic", "str", default=None)
    queue_id: int = wire("queueId", "i32", default=0)
    index: int = wire("index", "i64", default=0)
    count: int = wire("count", "i32", default=0)
    consumer_group: str | None = wire("consumerGroup", "str", default=None)


class ResumeCheckHalfMessageRequest(Header):
    """Java: ResumeCheckHalfMessageRequestHeader (RESUME_CHECK_HALF_MESSAGE 323)."""

    topic: str | None = wire("topic", "str", default=None)
    msg_id: str | None = wire("msgId", "str", default=None)


class GetAllProducerInfoRequest(Header):
    """Java: GetAllProducerInfoRequestHeader (GET_ALL_PRODUCER_INFO 328)."""


class QueryTopicsByConsumerRequest(Header):
    """Java: QueryTopicsByConsumerRequestHeader (QUERY_TOPICS_BY_CONSUMER 343)."""

    group: str = wire("group", "str")


class QuerySubscriptionByConsumerRequest(Header):
    """Java: QuerySubscriptionByConsumerRequestHeader (QUERY_SUBSCRIPTION_BY_CONSUMER 345)."""

    group: str = wire("group", "str")
    topic: str | None = wire("topic", "str", default=None)


class GetTopicConfigRequest(Header):
    """Java: GetTopicConfigRequestHeader (GET_TOPIC_CONFIG 351)."""

    topic: str = wire("topic", "str")
    logical: bool | None = wire("lo", "bool", default=None)
    """Whether the mapping of a static topic is wanted as well."""


class GetSubscriptionGroupConfigRequest(Header):
    """Java: GetSubscriptionGroupConfigRequestHeader (GET_SUBSCRIPTIONGROUP_CONFIG 352)."""

    group: str = wire("group", "str")


class UpdateGroupForbiddenRequest(Header):
    """Java: UpdateGroupForbiddenRequestHeader (UPDATE_AND_GET_GROUP_FORBIDDEN 353)."""

    group: str = wire("group", "str")
    topic: str = wire("topic", "str")
    readable: bool | None = wire("readable", "bool", default=None)


class CheckRocksdbCqWriteProgressRequest(Header):
    """Java: CheckRocksdbCqWriteProgressRequestHeader (CHECK_ROCKSDB_CQ_WRITE_PROGRESS 354)."""

    topic: str = wire("topic", "str")
    check_store_time: int = wire("checkStoreTime", "i64", default=0)


class ExportRocksDBConfigToJsonRequest(Header):
    """Java: ExportRocksDBConfigToJsonRequestHeader (EXPORT_ROCKSDB_CONFIG_TO_JSON 355)."""

    config_type: str = wire("configType", "str")
