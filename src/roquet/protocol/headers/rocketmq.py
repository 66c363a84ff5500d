"""Headers of requests that only RocketMQ's servers answer: controllers, containers, RocksDB.

Class and field names are ours; `wire` holds the Java field name, the docstring the Java class.
"""

from __future__ import annotations

from roquet.protocol.header import Header, wire


class ControllerMetadataResponse(Header):
    """Java: GetMetaDataResponseHeader (CONTROLLER_GET_METADATA_INFO 1005)."""

    group: str | None = wire("group", "str", default=None)
    leader_id: str | None = wire("controllerLeaderId", "str", default=None)
    leader_address: str | None = wire("controllerLeaderAddress", "str", default=None)
    is_leader: bool = wire("isLeader", "bool", default=False)
    peers: str | None = wire("peers", "str", default=None)


class ElectMasterRequest(Header):
    """Java: ElectMasterRequestHeader (CONTROLLER_ELECT_MASTER 1002)."""

    cluster: str = wire("clusterName", "str")
    broker_name: str = wire("brokerName", "str")
    broker_id: int = wire("brokerId", "i64")
    designated: bool = wire("designateElect", "bool")
    time_ms: int = wire("invokeTime", "i64")


class ElectMasterResponse(Header):
    """Java: ElectMasterResponseHeader (CONTROLLER_ELECT_MASTER 1002)."""

    master_id: int | None = wire("masterBrokerId", "i64", default=None)
    master_address: str | None = wire("masterAddress", "str", default=None)
    master_epoch: int | None = wire("masterEpoch", "i32", default=None)
    set_epoch: int | None = wire("syncStateSetEpoch", "i32", default=None)


class CleanBrokerDataRequest(Header):
    """Java: CleanControllerBrokerDataRequestHeader (CLEAN_BROKER_DATA 1011)."""

    cluster: str | None = wire("clusterName", "str", default=None)
    broker_name: str = wire("brokerName", "str")
    ids: str | None = wire("brokerControllerIdsToClean", "str", default=None)
    living: bool = wire("isCleanLivingBroker", "bool")
    time_ms: int = wire("invokeTime", "i64")


class AddBrokerRequest(Header):
    """Java: AddBrokerRequestHeader (ADD_BROKER 902)."""

    file: str = wire("configPath", "str")


class RemoveBrokerRequest(Header):
    """Java: RemoveBrokerRequestHeader (REMOVE_BROKER 903)."""

    cluster: str = wire("brokerClusterName", "str")
    broker_name: str = wire("brokerName", "str")
    broker_id: int = wire("brokerId", "i64")


class CheckQueuesInRocksDbRequest(Header):
    """Java: CheckRocksdbCqWriteProgressRequestHeader (CHECK_ROCKSDB_CQ_WRITE_PROGRESS 354)."""

    topic: str = wire("topic", "str")
    since_ms: int = wire("checkStoreTime", "i64")


class ExportRocksDbRequest(Header):
    """Java: ExportRocksDBConfigToJsonRequestHeader (EXPORT_ROCKSDB_CONFIG_TO_JSON 355)."""

    kinds: str = wire("configType", "str")


class ReadAheadRequest(Header):
    """The field of SET_COMMITLOG_READ_MODE 2004, which has no header class in Java."""

    mode: int = wire("READ_AHEAD_MODE", "i32")


class SwitchTimerEngineRequest(Header):
    """The field of SWITCH_TIMER_ENGINE 5001, which has no header class in Java."""

    engine: str = wire("E_T", "str")
