"""Commands of RocketMQ's mqadmin that only RocketMQ's own tool has: it works with our servers."""

from __future__ import annotations

from roquet.cli.mqadmin.declared import Java

JAVA_ONLY: tuple[Java, ...] = (
    Java(
        "updateTopicList",
        "Applies a JSON file of topic configurations to a broker or a cluster",
        "b:brokerAddr c:clusterName f:filename!",
        one_of=("brokerAddr", "clusterName"),
        java_only=True,
    ),
    Java(
        "updateSubGroupList",
        "Applies a JSON file of consumer group configurations in bulk",
        "b:brokerAddr c:clusterName f:filename!",
        one_of=("brokerAddr", "clusterName"),
        java_only=True,
    ),
    Java(
        "setConsumeMode",
        "Chooses PULL or POP delivery for a topic and group pair",
        "b:brokerAddr c:clusterName t:topicName! g:groupName! m:mode! q:popShareQueueNum",
        java_only=True,
    ),
    Java(
        "resetMasterFlushOffset",
        "Overwrites the master flush position remembered by a slave",
        "b:brokerAddr o:offset",
        java_only=True,
    ),
    Java(
        "queryMsgTraceById",
        "Reads trace records of a message and prints the send and consume history",
        "i:msgId! t:traceTopic b:beginTimestamp e:endTimestamp c:maxNum",
        java_only=True,
    ),
    Java(
        "printMsgByQueue",
        "Dumps the messages of one queue within a time range, optionally counting tags",
        "t:topic! a:brokerName! i:queueId! c:charsetName s:subExpression b:beginTimestamp "
        "e:endTimestamp p:print_msg d:printBody f:calculate",
        java_only=True,
    ),
    Java(
        "sendMsgStatus",
        "Sends test messages to a broker and prints send result and latency",
        "b:brokerName! s:messageSize c:count",
        java_only=True,
    ),
    Java(
        "brokerConsumeStats",
        "Prints the lag of every topic and group on a broker",
        "b:brokerAddr! t:timeoutMillis l:level o:order",
        java_only=True,
    ),
    Java(
        "consumerStatus",
        "Fetches the state of each client of a group; can save thread dumps",
        "g:consumerGroup! i:clientId b:brokerAddr s:jstack-",
        java_only=True,
    ),
    Java(
        "producer",
        "Lists every producer client known to a broker",
        "b:broker!",
        java_only=True,
    ),
    Java(
        "updateOrderConf",
        "Reads, writes or deletes the order configuration of a topic",
        "t:topic! v:orderConf m:method!",
        java_only=True,
    ),
    Java(
        "startMonitoring",
        "Reports undone and deleted messages and failing clients, on and on",
        "",
        java_only=True,
    ),
    Java(
        "statsAll",
        "Prints produce and consume rates and lag of all topics",
        "a:activeTopic- t:topic",
        java_only=True,
    ),
    Java(
        "checkMsgSendRT",
        "Measures average send latency of a topic",
        "t:topic! a:amount s:size",
        java_only=True,
    ),
    Java(
        "clusterRT",
        "Measures send latency of every cluster with the cluster topics",
        "a:amount s:size c:cluster p:print_log m:machine_room i:interval",
        java_only=True,
    ),
    Java(
        "getConsumerConfig",
        "Prints the group configuration on every broker",
        "g:groupName!",
        java_only=True,
    ),
    Java(
        "queryCq",
        "Prints consume queue entries and how a group would filter them",
        "t:topic! q:queue! i:index! c:count b:broker g:consumer",
        java_only=True,
    ),
    Java(
        "sendMessage",
        "Sends one message",
        "t:topic! p:body! k:key c:tags b:broker i:qid m:msgTraceEnable",
        java_only=True,
    ),
    Java(
        "consumeMessage",
        "Reads messages of a topic by queue offset or by time",
        "t:topic! b:brokerName i:queueId o:offset g:consumerGroup s:beginTimestamp "
        "e:endTimestamp c:MessageNumber",
        java_only=True,
    ),
    Java(
        "exportMetadata",
        "Writes topics and groups to JSON files",
        "c:clusterName b:brokerAddr f:filePath t:topic- g:subscriptionGroup- s:specialTopic-",
        java_only=True,
    ),
    Java(
        "exportConfigs",
        "Writes name server list and selected broker properties to JSON",
        "c:clusterName! f:filePath",
        java_only=True,
    ),
    Java(
        "exportMetrics",
        "Writes capacity and rate figures of brokers to JSON",
        "c:clusterName! f:filePath",
        java_only=True,
    ),
    Java(
        "exportPopRecord",
        "Makes brokers move pop records from the key-value store to the file store",
        "c:clusterName b:brokerAddr d:dryRun",
        java_only=True,
    ),
    Java(
        "haStatus",
        "Prints replication state of a broker set",
        "c:clusterName b:brokerAddr i:interval",
        java_only=True,
    ),
)
