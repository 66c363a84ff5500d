"""Headers of the name server.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class PutKVConfigRequest(Header):
    """Java: PutKVConfigRequestHeader (PUT_KV_CONFIG 100)."""

    namespace: str = wire("namespace", "str")
    key: str = wire("key", "str")
    value: str = wire("value", "str")


class GetKVConfigRequest(Header):
    """Java: GetKVConfigRequestHeader (GET_KV_CONFIG 101)."""

    namespace: str = wire("namespace", "str")
    key: str = wire("key", "str")


class GetKVConfigResponse(Header):
    """Java: GetKVConfigResponseHeader (GET_KV_CONFIG 101)."""

    value: str | None = wire("value", "str", default=None)


class DeleteKVConfigRequest(Header):
    """Java: DeleteKVConfigRequestHeader (DELETE_KV_CONFIG 102)."""

    namespace: str = wire("namespace", "str")
    key: str = wire("key", "str")


class RegisterBrokerRequest(Header):
    """Java: RegisterBrokerRequestHeader (REGISTER_BROKER 103)."""

    broker_name: str = wire("brokerName", "str")
    broker_addr: str = wire("brokerAddr", "str")
    cluster_name: str = wire("clusterName", "str")
    ha_server_addr: str = wire("haServerAddr", "str")
    broker_id: int = wire("brokerId", "i64")
    heartbeat_timeout_millis: int | None = wire("heartbeatTimeoutMillis", "i64", default=None)
    enable_acting_master: bool | None = wire("enableActingMaster", "bool", default=None)
    compressed: bool = wire("compressed", "bool", default=False)
    body_crc32: int | None = wire("bodyCrc32", "i32", default=None)


class RegisterBrokerResponse(Header):
    """Java: RegisterBrokerResponseHeader (REGISTER_BROKER 103)."""

    ha_server_addr: str | None = wire("haServerAddr", "str", default=None)
    master_addr: str | None = wire("masterAddr", "str", default=None)


class UnRegisterBrokerRequest(Header):
    """Java: UnRegisterBrokerRequestHeader (UNREGISTER_BROKER 104)."""

    broker_name: str = wire("brokerName", "str")
    broker_addr: str = wire("brokerAddr", "str")
    cluster_name: str = wire("clusterName", "str")
    broker_id: int = wire("brokerId", "i64")


class GetRouteInfoRequest(Header):
    """Java: GetRouteInfoRequestHeader (GET_ROUTEINFO_BY_TOPIC 105)."""

    topic: str = wire("topic", "str")
    accept_standard_json_only: bool | None = wire("acceptStandardJsonOnly", "bool", default=None)


class WipeWritePermOfBrokerRequest(Header):
    """Java: WipeWritePermOfBrokerRequestHeader (WIPE_WRITE_PERM_OF_BROKER 205)."""

    broker_name: str = wire("brokerName", "str")


class WipeWritePermOfBrokerResponse(Header):
    """Java: WipeWritePermOfBrokerResponseHeader (WIPE_WRITE_PERM_OF_BROKER 205)."""

    wipe_topic_count: int = wire("wipeTopicCount", "i32")


class DeleteTopicFromNamesrvRequest(Header):
    """Java: DeleteTopicFromNamesrvRequestHeader (DELETE_TOPIC_IN_NAMESRV 216)."""

    topic: str = wire("topic", "str")
    cluster_name: str | None = wire("clusterName", "str", default=None)


class RegisterTopicRequest(Header):
    """Java: RegisterTopicRequestHeader (REGISTER_TOPIC_IN_NAMESRV 217)."""

    topic: str = wire("topic", "str")


class GetKVListByNamespaceRequest(Header):
    """Java: GetKVListByNamespaceRequestHeader (GET_KVLIST_BY_NAMESPACE 219)."""

    namespace: str = wire("namespace", "str")


class GetTopicsByClusterRequest(Header):
    """Java: GetTopicsByClusterRequestHeader (GET_TOPICS_BY_CLUSTER 224)."""

    cluster: str = wire("cluster", "str")


class QueryDataVersionRequest(Header):
    """Java: QueryDataVersionRequestHeader (QUERY_DATA_VERSION 322)."""

    broker_name: str = wire("brokerName", "str")
    broker_addr: str = wire("brokerAddr", "str")
    cluster_name: str = wire("clusterName", "str")
    broker_id: int = wire("brokerId", "i64")


class QueryDataVersionResponse(Header):
    """Java: QueryDataVersionResponseHeader (QUERY_DATA_VERSION 322)."""

    changed: bool = wire("changed", "bool")


class AddWritePermOfBrokerRequest(Header):
    """Java: AddWritePermOfBrokerRequestHeader (ADD_WRITE_PERM_OF_BROKER 327)."""

    broker_name: str = wire("brokerName", "str")


class AddWritePermOfBrokerResponse(Header):
    """Java: AddWritePermOfBrokerResponseHeader (ADD_WRITE_PERM_OF_BROKER 327)."""

    add_topic_count: int = wire("addTopicCount", "i32")


class GetBrokerMemberGroupRequest(Header):
    """Java: GetBrokerMemberGroupRequestHeader (GET_BROKER_MEMBER_GROUP 901)."""

    cluster_name: str = wire("clusterName", "str")
    broker_name: str = wire("brokerName", "str")
