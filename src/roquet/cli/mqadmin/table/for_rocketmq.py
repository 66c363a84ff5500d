"""Commands for what RocketMQ's servers have and the product has not: they work against those."""

from __future__ import annotations

from roquet.cli.mqadmin.table.declared import Java

FOR_ROCKETMQ: tuple[Java, ...] = (
    Java(
        "addBroker",
        "Starts another broker inside a broker container from a config file",
        "c:brokerContainerAddr! b:brokerConfigPath!",
        lacks="broker containers",
        work="rocketmq.extras:add_broker",
    ),
    Java(
        "removeBroker",
        "Stops one broker inside a broker container",
        "c:brokerContainerAddr! b:brokerIdentity!",
        lacks="broker containers",
        work="rocketmq.extras:remove_broker",
    ),
    Java(
        "updateStaticTopic",
        "Creates or extends a topic with a fixed number of logical queues",
        "c:clusters b:brokers t:topic! qn:totalQueueNum! mf:mapFile fr:forceReplace",
        one_of=("brokers", "clusters"),
        lacks="static topics",
        work="rocketmq.static_topics:update",
    ),
    Java(
        "remappingStaticTopic",
        "Moves the logical queues of a static topic to other brokers",
        "c:clusters b:brokers t:topic! mf:mapFile fr:forceReplace",
        one_of=("brokers", "clusters"),
        lacks="static topics",
        work="rocketmq.static_topics:remap",
    ),
    Java(
        "getSyncStateSet",
        "Prints in-sync and out-of-sync replicas from the controller",
        "a:controllerAddress! c:clusterName b:brokerName i:interval",
        lacks="the controller",
        work="rocketmq.controllers:get_sync_state_set",
    ),
    Java(
        "getBrokerEpoch",
        "Prints the epoch list of each replica",
        "c:clusterName b:brokerName i:interval",
        lacks="the controller",
        work="rocketmq.controllers:get_broker_epoch",
    ),
    Java(
        "getControllerMetaData",
        "Prints leader and peers of the controller group",
        "a:controllerAddress!",
        lacks="the controller",
        work="rocketmq.controllers:get_metadata",
    ),
    Java(
        "getControllerConfig",
        "Prints the properties of controllers",
        "a:controllerAddress!",
        lacks="the controller",
        work="rocketmq.controllers:get_config",
    ),
    Java(
        "updateControllerConfig",
        "Changes one property of controllers",
        "a:controllerAddress! k:key! v:value!",
        lacks="the controller",
        work="rocketmq.controllers:update_config",
    ),
    Java(
        "electMaster",
        "Asks the controller to make the named replica the master",
        "a:controllerAddress! b:brokerId! bn:brokerName! c:clusterName!",
        lacks="the controller",
        work="rocketmq.controllers:elect_master",
    ),
    Java(
        "cleanBrokerMetadata",
        "Removes replicas or a whole broker set from the controller",
        "a:controllerAddress! b:brokerControllerIdsToClean bn:brokerName! c:clusterName "
        "l:cleanLivingBroker-",
        lacks="the controller",
        work="rocketmq.controllers:clean_broker_metadata",
    ),
    Java(
        "dumpCompactionLog",
        "Decodes a compaction log file to text",
        "f:file",
        lacks="compaction",
        work="rocketmq.files:dump_compaction_log",
        local=True,
    ),
    Java(
        "getColdDataFlowCtrInfo",
        "Prints cold read control state and counters",
        "b:brokerAddr c:clusterName",
        lacks="cold data flow control",
        work="rocketmq.extras:get_cold_reads",
    ),
    Java(
        "updateColdDataFlowCtrGroupConfig",
        "Sets the cold read limit of a group",
        "b:brokerAddr c:clusterName g:consumerGroup! v:threshold!",
        lacks="cold data flow control",
        work="rocketmq.extras:update_cold_reads",
    ),
    Java(
        "removeColdDataFlowCtrGroupConfig",
        "Removes the cold read limit of a group",
        "b:brokerAddr c:clusterName g:consumerGroup!",
        lacks="cold data flow control",
        work="rocketmq.extras:remove_cold_reads",
    ),
    Java(
        "setCommitLogReadAheadMode",
        "Sets the OS read-ahead advice for commit log files",
        "b:brokerAddr c:clusterName m:commitLogReadAheadMode!",
        lacks="cold data flow control",
        work="rocketmq.extras:set_read_ahead",
    ),
    Java(
        "rocksDBConfigToJson",
        "Converts RocksDB metadata to JSON, from local files or through a broker call",
        "t:configType p:configPath e:exportFile j:jsonEnable c:cluster b:brokerAddr",
        lacks="metadata or queues in RocksDB",
        work="rocketmq.extras:export_rocksdb",
    ),
    Java(
        "checkRocksdbCqWriteProgress",
        "Compares RocksDB consume queues with file ones on a cluster",
        "c:cluster! t:topic cf:checkFrom",
        lacks="metadata or queues in RocksDB",
        work="rocketmq.extras:check_queues",
    ),
    Java(
        "switchTimerEngine",
        "Switches the timer engine of a broker or of a cluster's masters",
        "b:brokerAddr c:clusterName e:engineType!",
        one_of=("brokerAddr", "clusterName"),
        lacks="metadata or queues in RocksDB",
        work="rocketmq.extras:switch_timer_engine",
    ),
)
"""`table.declared` says for each thing that ours lack what to type instead."""
