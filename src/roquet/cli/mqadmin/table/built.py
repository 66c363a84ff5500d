"""Commands of RocketMQ's mqadmin that this one has."""

from __future__ import annotations

from roquet.cli.mqadmin.table.declared import Java

BUILT: tuple[Java, ...] = (
    Java(
        "updateTopic",
        "Creates or changes a topic, on one broker or on every master of a cluster",
        "b:brokerAddr c:clusterName a:attributes t:topic! r:readQueueNums w:writeQueueNums "
        "p:perm o:order u:unit s:hasUnitSub",
        one_of=("brokerAddr", "clusterName"),
        work="topics:update_topic",
    ),
    Java(
        "deleteTopic",
        "Removes a topic from a cluster and from the name servers",
        "t:topic! c:clusterName!",
        work="topics:delete_topic",
    ),
    Java(
        "updateSubGroup",
        "Creates or changes a consumer group configuration",
        "b:brokerAddr c:clusterName g:groupName! s:consumeEnable m:consumeFromMinEnable "
        "d:consumeBroadcastEnable o:consumeMessageOrderly q:retryQueueNums r:retryMaxTimes "
        "p:groupRetryPolicy~ i:brokerId w:whichBrokerWhenConsumeSlowly "
        "a:notifyConsumerIdsChanged :attributes",
        work="groups:update_sub_group",
    ),
    Java(
        "deleteSubGroup",
        "Removes a consumer group, and on a cluster also its retry and dead-letter topics",
        "b:brokerAddr c:clusterName g:groupName! r:removeOffset",
        work="groups:delete_sub_group",
    ),
    Java(
        "updateBrokerConfig",
        "Changes one runtime property of a broker and persists it",
        "b:brokerAddr c:clusterName a:updateAllBroker~ k:key! v:value!",
        work="brokers:update_broker_config",
    ),
    Java(
        "updateTopicPerm",
        "Changes only the permission of a topic on a broker or a cluster",
        "b:brokerAddr c:clusterName t:topic! p:perm!",
        work="topics:update_topic_perm",
    ),
    Java(
        "topicRoute",
        "Prints the route of a topic as held by the name server",
        "t:topic! l:list-",
        work="topics:topic_route",
    ),
    Java(
        "topicStatus",
        "Prints min and max offset and last store time for each queue of a topic",
        "t:topic! c:cluster~",
        work="topics:topic_status",
    ),
    Java(
        "topicClusterList",
        "Prints the clusters that host a topic",
        "t:topic!",
        work="topics:topic_cluster_list",
    ),
    Java(
        "brokerStatus",
        "Prints the key/value runtime report of a broker or all brokers of a cluster",
        "b:brokerAddr c:clusterName",
        one_of=("brokerAddr", "clusterName"),
        work="brokers:broker_status",
    ),
    Java(
        "queryMsgById",
        "Looks up messages by offset message id; can also resend them or push them to one client",
        "t:topic! i:msgId! g:consumerGroup~ d:clientId~ s:sendMessage~ u:unitName~ "
        "f:bodyFormat~ c:cluster~",
        work="messages:query_msg_by_id",
    ),
    Java(
        "queryMsgByKey",
        "Searches the index for messages with a given key",
        "t:topic! k:msgKey! b:beginTimestamp e:endTimestamp m:maxNum c:cluster~ p:keyType "
        "l:lastKey~",
        work="messages:query_msg_by_key",
    ),
    Java(
        "queryMsgByUniqueKey",
        "Searches for messages by the client generated unique id; can push to one client",
        "i:msgId! g:consumerGroup~ d:clientId~ t:topic! a:showAll- c:cluster~ s:startTime~ "
        "e:endTime~",
        work="messages:query_msg_by_unique_key",
    ),
    Java(
        "queryMsgByOffset",
        "Reads one message at a queue offset",
        "t:topic! b:brokerName! i:queueId! o:offset! f:bodyFormat~",
        work="messages:query_msg_by_offset",
    ),
    Java(
        "printMsg",
        "Dumps the messages of all queues of a topic within a time range",
        "t:topic! c:charsetName~ s:subExpression b:beginTimestamp e:endTimestamp "
        "d:printBody l:lmqParentTopic~",
        work="messages:print_msg",
    ),
    Java(
        "producerConnection",
        "Lists connected clients of a producer group for a topic",
        "g:producerGroup! t:topic!",
        work="groups:producer_connection",
    ),
    Java(
        "consumerConnection",
        "Lists connected clients, subscriptions and modes of a consumer group",
        "g:consumerGroup! b:brokerAddr~",
        work="groups:consumer_connection",
    ),
    Java(
        "consumerProgress",
        "Prints lag and rate per queue of a group, or a summary of all groups",
        "g:groupName t:topicName s:showClientIP c:cluster~",
        work="groups:consumer_progress",
    ),
    Java(
        "cloneGroupOffset",
        "Copies the offsets of one group to another for a topic",
        "s:srcGroup! d:destGroup! t:topic! o:offline",
        work="groups:clone_group_offset",
    ),
    Java(
        "clusterList",
        "Lists clusters, brokers, versions, rates and storage hints",
        "m:moreStats- i:interval~ c:clusterName",
        work="brokers:cluster_list",
    ),
    Java(
        "topicList",
        "Lists all topics, optionally with cluster and groups",
        "c:clusterModel-",
        work="topics:topic_list",
    ),
    Java(
        "updateKvConfig",
        "Writes a key into the name server KV store",
        "s:namespace! k:key! v:value!",
        work="brokers:update_kv_config",
    ),
    Java(
        "deleteKvConfig",
        "Deletes a key from the name server KV store",
        "s:namespace! k:key!",
        work="brokers:delete_kv_config",
    ),
    Java(
        "wipeWritePerm",
        "Removes write permission of a broker in every name server",
        "b:brokerName!",
        work="brokers:wipe_write_perm",
    ),
    Java(
        "addWritePerm",
        "Gives back read and write permission of a broker in every name server",
        "b:brokerName!",
        work="brokers:add_write_perm",
    ),
    Java(
        "resetOffsetByTime",
        "Moves the offsets of a group to a time (or a given offset) without restarting clients",
        "g:group! t:topic! s:timestamp! f:force c:cplus-~ b:broker q:queue o:offset c:cluster~",
        work="groups:reset_offset_by_time",
    ),
    Java(
        "skipAccumulatedMessage",
        "Moves the offsets of a group to the end of the topic",
        "g:group! t:topic! f:force c:cluster~",
        work="groups:skip_accumulated_message",
    ),
    Java(
        "cleanExpiredCQ",
        "Triggers removal of consume queue files that point to deleted log files",
        "b:brokerAddr c:cluster",
        work="brokers:clean_expired_cq",
    ),
    Java(
        "deleteExpiredCommitLog",
        "Triggers removal of expired commit log files",
        "b:brokerAddr c:cluster",
        work="brokers:delete_expired_commit_log",
    ),
    Java(
        "cleanUnusedTopic",
        "Triggers removal of queue data of topics that no longer exist",
        "b:brokerAddr c:cluster",
        work="brokers:clean_unused_topic",
    ),
    Java(
        "allocateMQ",
        "Shows how the average strategy would spread a topic over given clients",
        "t:topic! i:ipList!",
        work="topics:allocate_mq",
    ),
    Java(
        "getNamesrvConfig",
        "Prints the properties of the name servers",
        "",
        work="brokers:get_namesrv_config",
    ),
    Java(
        "updateNamesrvConfig",
        "Changes one property of the name servers",
        "k:key! v:value!",
        work="brokers:update_namesrv_config",
    ),
    Java(
        "getBrokerConfig",
        "Prints the properties of a broker or all brokers of a cluster",
        "b:brokerAddr c:clusterName",
        one_of=("brokerAddr", "clusterName"),
        work="brokers:get_broker_config",
    ),
    Java(
        "getBrokerLiteInfo",
        "Shows light-topic counters of a broker or cluster",
        "b:brokerAddr c:cluster d:showDetail-",
        one_of=("brokerAddr", "cluster"),
        work="light_topics:broker_info",
    ),
    Java(
        "getParentTopicInfo",
        "Shows a parent topic's life time, groups and number of light topics per broker",
        "p:parentTopic!",
        work="light_topics:parent_info",
    ),
    Java(
        "getLiteTopicInfo",
        "Shows offsets and subscribers of one light topic",
        "p:parentTopic! l:liteTopic! s:showClientId-",
        work="light_topics:topic_info",
    ),
    Java(
        "getLiteClientInfo",
        "Shows the light subscription of one client",
        "p:parentTopic! g:group! c:clientId! s:showDetail-",
        work="light_topics:client_info",
    ),
    Java(
        "getLiteGroupInfo",
        "Shows lag of a light group, or of one light topic in it",
        "p:parentTopic! g:group! l:liteTopic k:topK",
        work="light_topics:group_info",
    ),
    Java(
        "triggerLiteDispatch",
        "Makes brokers compare all offsets and wake light consumers",
        "p:parentTopic! g:group! c:clientId b:brokerName",
        work="light_topics:trigger_dispatch",
    ),
    Java(
        "updateTopicList",
        "Applies a JSON file of topic configurations to a broker or a cluster",
        "b:brokerAddr c:clusterName f:filename!",
        one_of=("brokerAddr", "clusterName"),
        work="topics:update_topic_list",
    ),
    Java(
        "updateSubGroupList",
        "Applies a JSON file of consumer group configurations in bulk",
        "b:brokerAddr c:clusterName f:filename!",
        one_of=("brokerAddr", "clusterName"),
        work="groups:update_sub_group_list",
    ),
    Java(
        "setConsumeMode",
        "Chooses PULL or POP delivery for a topic and group pair",
        "b:brokerAddr c:clusterName t:topicName! g:groupName! m:mode! q:popShareQueueNum",
        work="groups:set_consume_mode",
    ),
    Java(
        "resetMasterFlushOffset",
        "Overwrites the master flush position remembered by a slave",
        "b:brokerAddr o:offset",
        work="brokers:reset_master_flush_offset",
    ),
    Java(
        "queryMsgTraceById",
        "Reads trace records of a message and prints the send and consume history",
        "i:msgId! t:traceTopic b:beginTimestamp e:endTimestamp c:maxNum",
        work="reading:query_msg_trace_by_id",
    ),
    Java(
        "printMsgByQueue",
        "Dumps the messages of one queue within a time range, optionally counting tags",
        "t:topic! a:brokerName! i:queueId! c:charsetName s:subExpression b:beginTimestamp "
        "e:endTimestamp p:print_msg d:printBody f:calculate",
        work="reading:print_msg_by_queue",
    ),
    Java(
        "sendMsgStatus",
        "Sends test messages to a broker and prints send result and latency",
        "b:brokerName! s:messageSize c:count",
        work="sending:send_msg_status",
    ),
    Java(
        "brokerConsumeStats",
        "Prints the lag of every topic and group on a broker",
        "b:brokerAddr! t:timeoutMillis l:level o:order",
        work="brokers:broker_consume_stats",
    ),
    Java(
        "consumerStatus",
        "Fetches the state of each client of a group; can save thread dumps",
        "g:consumerGroup! i:clientId b:brokerAddr s:jstack-",
        work="members:consumer_status",
    ),
    Java(
        "producer",
        "Lists every producer client known to a broker",
        "b:broker!",
        work="brokers:producer",
    ),
    Java(
        "updateOrderConf",
        "Reads, writes or deletes the order configuration of a topic",
        "t:topic! v:orderConf m:method!",
        work="topics:update_order_conf",
    ),
    Java(
        "statsAll",
        "Prints produce and consume rates and lag of all topics",
        "a:activeTopic- t:topic",
        work="topics:stats_all",
    ),
    Java(
        "checkMsgSendRT",
        "Measures average send latency of a topic",
        "t:topic! a:amount s:size",
        work="sending:check_msg_send_rt",
    ),
    Java(
        "clusterRT",
        "Measures send latency of every cluster with the brokers' own topics, on and on",
        "a:amount s:size c:cluster p:print_log m:machine_room i:interval",
        work="sending:cluster_rt",
    ),
    Java(
        "getConsumerConfig",
        "Prints the group configuration on every broker",
        "g:groupName!",
        work="groups:get_consumer_config",
    ),
    Java(
        "queryCq",
        "Prints consume queue entries and how a group would filter them",
        "t:topic! q:queue! i:index! c:count b:broker g:consumer",
        work="reading:query_cq",
    ),
    Java(
        "sendMessage",
        "Sends one message",
        "t:topic! p:body! k:key c:tags b:broker i:qid m:msgTraceEnable",
        work="sending:send_message",
    ),
    Java(
        "consumeMessage",
        "Reads messages of a topic by queue offset or by time",
        "t:topic! b:brokerName i:queueId o:offset g:consumerGroup s:beginTimestamp "
        "e:endTimestamp c:MessageNumber",
        work="reading:consume_message",
    ),
    Java(
        "exportMetadata",
        "Writes topics and groups to JSON files",
        "c:clusterName b:brokerAddr f:filePath t:topic- g:subscriptionGroup- s:specialTopic-",
        work="exports:export_metadata",
    ),
    Java(
        "exportConfigs",
        "Writes name server list and selected broker properties to JSON",
        "c:clusterName! f:filePath",
        work="exports:export_configs",
    ),
    Java(
        "exportMetrics",
        "Writes capacity and rate figures of brokers to JSON",
        "c:clusterName! f:filePath",
        work="exports:export_metrics",
    ),
    Java(
        "exportPopRecord",
        "Makes brokers move pop records from the key-value store to the file store",
        "c:clusterName b:brokerAddr d:dryRun",
        work="exports:export_pop_record",
    ),
    Java(
        "haStatus",
        "Prints replication state of a broker set",
        "c:clusterName b:brokerAddr i:interval",
        work="brokers:ha_status",
    ),
)
