"""Headers between brokers, and of metadata copies.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class GetAllTopicConfigRequest(Header):
    """Java: GetAllTopicConfigRequestHeader (GET_ALL_TOPIC_CONFIG 21)."""

    topic_seq: int = wire("topicSeq", "i32")
    data_version: str | None = wire("dataVersion", "str", default=None)
    max_topic_num: int | None = wire("maxTopicNum", "i32", default=None)


class GetAllTopicConfigResponse(Header):
    """Java: GetAllTopicConfigResponseHeader (GET_ALL_TOPIC_CONFIG 21)."""

    total_topic_num: int | None = wire("totalTopicNum", "i32", default=None)


class GetAllSubscriptionGroupRequest(Header):
    """Java: GetAllSubscriptionGroupRequestHeader (GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201)."""

    group_seq: int = wire("groupSeq", "i32")
    data_version: str | None = wire("dataVersion", "str", default=None)
    max_group_num: int | None = wire("maxGroupNum", "i32", default=None)


class GetAllSubscriptionGroupResponse(Header):
    """Java: GetAllSubscriptionGroupResponseHeader (GET_ALL_SUBSCRIPTIONGROUP_CONFIG 201)."""

    total_group_num: int = wire("totalGroupNum", "i32")


class AddBrokerRequest(Header):
    """Java: AddBrokerRequestHeader (ADD_BROKER 902)."""

    config_path: str | None = wire("configPath", "str", default=None)


class RemoveBrokerRequest(Header):
    """Java: RemoveBrokerRequestHeader (REMOVE_BROKER 903)."""

    broker_name: str = wire("brokerName", "str")
    broker_cluster_name: str = wire("brokerClusterName", "str")
    broker_id: int = wire("brokerId", "i64")


class BrokerHeartbeatRequest(Header):
    """Java: BrokerHeartbeatRequestHeader (BROKER_HEARTBEAT 904)."""

    cluster_name: str = wire("clusterName", "str")
    broker_addr: str = wire("brokerAddr", "str")
    broker_name: str = wire("brokerName", "str")
    broker_id: int | None = wire("brokerId", "i64", default=None)
    epoch: int | None = wire("epoch", "i32", default=None)
    max_offset: int | None = wire("maxOffset", "i64", default=None)
    confirm_offset: int | None = wire("confirmOffset", "i64", default=None)
    heartbeat_timeout_mills: int | None = wire("heartbeatTimeoutMills", "i64", default=None)
    election_priority: int | None = wire("electionPriority", "i32", default=None)


class NotifyMinBrokerIdChangeRequest(Header):
    """Java: NotifyMinBrokerIdChangeRequestHeader (NOTIFY_MIN_BROKER_ID_CHANGE 905)."""

    min_broker_id: int | None = wire("minBrokerId", "i64", default=None)
    broker_name: str | None = wire("brokerName", "str", default=None)
    min_broker_addr: str | None = wire("minBrokerAddr", "str", default=None)
    offline_broker_addr: str | None = wire("offlineBrokerAddr", "str", default=None)
    ha_broker_addr: str | None = wire("haBrokerAddr", "str", default=None)


class ExchangeHAInfoRequest(Header):
    """Java: ExchangeHAInfoRequestHeader (EXCHANGE_BROKER_HA_INFO 906)."""

    master_ha_address: str | None = wire("masterHaAddress", "str", default=None)
    master_flush_offset: int | None = wire("masterFlushOffset", "i64", default=None)
    master_address: str | None = wire("masterAddress", "str", default=None)


class ExchangeHAInfoResponse(Header):
    """Java: ExchangeHAInfoResponseHeader (EXCHANGE_BROKER_HA_INFO 906)."""

    master_ha_address: str | None = wire("masterHaAddress", "str", default=None)
    master_flush_offset: int | None = wire("masterFlushOffset", "i64", default=None)
    master_address: str | None = wire("masterAddress", "str", default=None)


class ResetMasterFlushOffsetRequest(Header):
    """Java: ResetMasterFlushOffsetHeader (RESET_MASTER_FLUSH_OFFSET 908)."""

    master_flush_offset: int = wire("masterFlushOffset", "i64")
