"""Commands of RocketMQ's mqadmin whose feature the product does not have."""

from __future__ import annotations

from roquet.cli.mqadmin.table.declared import Java

ABSENT: tuple[Java, ...] = (
    Java(
        "addBroker",
        "Starts another broker inside a broker container from a config file",
        "c:brokerContainerAddr! b:brokerConfigPath!",
        lacks="broker containers",
    ),
    Java(
        "removeBroker",
        "Stops one broker inside a broker container",
        "c:brokerContainerAddr! b:brokerIdentity!",
        lacks="broker containers",
    ),
    Java(
        "updateStaticTopic",
        "Creates or extends a topic with a fixed number of logical queues",
        "c:clusters b:brokers t:topic! qn:totalQueueNum! mf:mapFile fr:forceReplace",
        one_of=("brokers", "clusters"),
        lacks="static topics",
    ),
    Java(
        "remappingStaticTopic",
        "Moves the logical queues of a static topic to other brokers",
        "c:clusters b:brokers t:topic! mf:mapFile fr:forceReplace",
        one_of=("brokers", "clusters"),
        lacks="static topics",
    ),
    Java(
        "exportMetadataInRocksDB",
        "Prints metadata from a RocksDB directory on the local disk",
        "p:path! t:configType! j:jsonEnable",
        lacks="metadata or queues in RocksDB",
    ),
    Java(
        "getSyncStateSet",
        "Prints in-sync and out-of-sync replicas from the controller",
        "a:controllerAddress! c:clusterName b:brokerName i:interval",
        lacks="the controller",
    ),
    Java(
        "getBrokerEpoch",
        "Prints the epoch list of each replica",
        "c:clusterName b:brokerName i:interval",
        lacks="the controller",
    ),
    Java(
        "getControllerMetaData",
        "Prints leader and peers of the controller group",
        "a:controllerAddress!",
        lacks="the controller",
    ),
    Java(
        "getControllerConfig",
        "Prints the properties of controllers",
        "a:controllerAddress!",
        lacks="the controller",
    ),
    Java(
        "updateControllerConfig",
        "Changes one property of controllers",
        "a:controllerAddress! k:key! v:value!",
        lacks="the controller",
    ),
    Java(
        "electMaster",
        "Asks the controller to make the named replica the master",
        "a:controllerAddress! b:brokerId! bn:brokerName! c:clusterName!",
        lacks="the controller",
    ),
    Java(
        "cleanBrokerMetadata",
        "Removes replicas or a whole broker set from the controller",
        "a:controllerAddress! b:brokerControllerIdsToClean bn:brokerName! c:clusterName "
        "l:cleanLivingBroker-",
        lacks="the controller",
    ),
    Java(
        "dumpCompactionLog",
        "Decodes a compaction log file to text",
        "f:file",
        lacks="compaction",
    ),
    Java(
        "getColdDataFlowCtrInfo",
        "Prints cold read control state and counters",
        "b:brokerAddr c:clusterName",
        lacks="cold data flow control",
    ),
    Java(
        "updateColdDataFlowCtrGroupConfig",
        "Sets the cold read limit of a group",
        "b:brokerAddr c:clusterName g:consumerGroup! v:threshold!",
        lacks="cold data flow control",
    ),
    Java(
        "removeColdDataFlowCtrGroupConfig",
        "Removes the cold read limit of a group",
        "b:brokerAddr c:clusterName g:consumerGroup!",
        lacks="cold data flow control",
    ),
    Java(
        "setCommitLogReadAheadMode",
        "Sets the OS read-ahead advice for commit log files",
        "b:brokerAddr c:clusterName m:commitLogReadAheadMode!",
        lacks="cold data flow control",
    ),
    Java(
        "rocksDBConfigToJson",
        "Converts RocksDB metadata to JSON, from local files or through a broker call",
        "t:configType p:configPath e:exportFile j:jsonEnable c:cluster b:brokerAddr",
        lacks="metadata or queues in RocksDB",
    ),
    Java(
        "checkRocksdbCqWriteProgress",
        "Compares RocksDB consume queues with file ones on a cluster",
        "c:cluster! t:topic cf:checkFrom",
        lacks="metadata or queues in RocksDB",
    ),
    Java(
        "switchTimerEngine",
        "Switches the timer engine of a broker or of a cluster's masters",
        "b:brokerAddr c:clusterName e:engineType!",
        one_of=("brokerAddr", "clusterName"),
        lacks="metadata or queues in RocksDB",
    ),
    Java(
        "startMonitoring",
        "Reports undone and deleted messages and failing clients, on and on",
        "",
        lacks="monitor that writes into log files",
    ),
)
"""`table.declared` says for each thing that is lacking what to type instead."""
