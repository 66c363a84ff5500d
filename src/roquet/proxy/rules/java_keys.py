"""Keys of RocketMQ's rmq-proxy.json (5.5.0) that have no effect here, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASONS = {
    "there are no thread pools: grpcThreadPoolQueueCapacity bounds the calls of each kind": """
        grpcBossLoopNum grpcWorkerLoopNum enableGrpcEpoll grpcThreadPoolNums
        grpcProducerThreadPoolNums grpcProducerThreadQueueCapacity grpcConsumerThreadPoolNums
        grpcConsumerThreadQueueCapacity grpcRouteThreadPoolNums grpcRouteThreadQueueCapacity
        grpcClientManagerThreadPoolNums grpcClientManagerThreadQueueCapacity
        grpcTransactionThreadPoolNums grpcTransactionThreadQueueCapacity
        producerProcessorThreadPoolNums producerProcessorThreadPoolQueueCapacity
        consumerProcessorThreadPoolNums consumerProcessorThreadPoolQueueCapacity
        renewThreadPoolNums renewMaxThreadPoolNums renewThreadPoolQueueCapacity
        returnHandleGroupThreadPoolNums heartbeatSyncerThreadPoolNums
        heartbeatSyncerThreadPoolQueueCapacity metadataThreadPoolNums
        metadataThreadPoolQueueCapacity transactionHeartbeatThreadPoolNums
        transactionHeartbeatThreadPoolQueueCapacity topicRouteServiceThreadPoolNums
        topicRouteServiceThreadPoolQueueCapacity""",
    "the port is the broker's own: it knows routes, clients and accounts itself": """
        rocketMQClusterName proxyClusterName proxyName localServeAddr proxyMode brokerConfigPath
        heartbeatSyncerTopicClusterName heartbeatSyncerTopicName namesrvAddr namesrvDomain
        namesrvDomainSubgroup rocketmqMQClientNum topicRouteServiceCacheExpiredSeconds
        topicRouteServiceCacheRefreshSeconds topicRouteServiceCacheMaxNum
        topicConfigCacheExpiredSeconds topicConfigCacheRefreshSeconds topicConfigCacheMaxNum
        subscriptionGroupConfigCacheExpiredSeconds subscriptionGroupConfigCacheRefreshSeconds
        subscriptionGroupConfigCacheMaxNum userCacheExpiredSeconds userCacheRefreshSeconds
        userCacheMaxNum aclCacheExpiredSeconds aclCacheRefreshSeconds aclCacheMaxNum
        transactionHeartbeatPeriodSecond transactionHeartbeatBatchNum
        enableAclRpcHookForClusterMode sendLatencyEnable startDetectorEnable detectTimeout
        detectInterval""",
    "the place of a half message rides in the transaction's id": """
        transactionDataExpireScanPeriodMillis transactionDataMaxWaitClearMillis
        transactionDataExpireMillis transactionDataMaxNum""",
    "the broker's own port serves the remoting protocol": """
        enableRemotingLocalProxyGrpc localProxyConnectTimeoutMs remotingAccessAddr
        remotingListenPort remotingHeartbeatThreadPoolNums remotingTopicRouteThreadPoolNums
        remotingSendMessageThreadPoolNums remotingPullMessageThreadPoolNums
        remotingUpdateOffsetThreadPoolNums remotingDefaultThreadPoolNums
        remotingHeartbeatThreadPoolQueueCapacity remotingTopicRouteThreadPoolQueueCapacity
        remotingSendThreadPoolQueueCapacity remotingPullThreadPoolQueueCapacity
        remotingUpdateOffsetThreadPoolQueueCapacity remotingDefaultThreadPoolQueueCapacity
        remotingWaitTimeMillsInSendQueue remotingWaitTimeMillsInPullQueue
        remotingWaitTimeMillsInHeartbeatQueue remotingWaitTimeMillsInUpdateOffsetQueue
        remotingWaitTimeMillsInTopicRouteQueue remotingWaitTimeMillsInDefaultQueue""",
    "figures are on the broker's page of metrics, by its settings": """
        metricCollectorMode metricCollectorAddress metricsExporterType metricsGrpcExporterTarget
        metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills
        metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills
        metricsPromExporterPort metricsPromExporterHost metricsLabel metricsInDelta""",
    "the log has what is wrong, and no dumps of threads": """
        enablePrintJstack printJstackInMillis printThreadPoolStatusInMillis""",
    "a client without a telemetry stream is forgotten after 120 s": """
        channelExpiredInSeconds contextExpiredInSeconds channelExpiredTimeout""",
    "the time is fixed, as RocketMQ's default or shorter": """
        grpcShutdownTimeSeconds longPollingReserveTimeInMillis invisibleTimeMillisWhenClear
        lockTimeoutMsInHandleGroup""",
    "nothing is relayed to clients that they would have to answer": """
        grpcProxyRelayRequestTimeoutInSeconds""",
    "delayed messages have a time and no level": "useDelayLevel messageDelayLevel",
    "an empty body is always refused": "enableMessageBodyEmptyCheck",
    "acknowledgements need no batches within one process": "enableBatchAck",
    "traces are the clients' own": "regionId traceOn",
    "no certificate is made: without one TLS is refused": "tlsTestModeEnable",
}

WITHOUT_EFFECT: Mapping[str, str] = {
    key: reason for reason, keys in _REASONS.items() for key in keys.split()
}
"""Key -> why it has no effect."""

_IN_CLUSTER = {
    "all brokers that the name servers know are served": "rocketMQClusterName",
    "proxies have no names; the topic of their notices is on all brokers": """
        proxyClusterName proxyName heartbeatSyncerTopicClusterName""",
    "a broker serves local mode itself: roquet broker --proxy": "brokerConfigPath",
    "name servers are given by their addresses": "namesrvDomain namesrvDomainSubgroup",
    "one connection to each broker carries all requests": "rocketmqMQClientNum",
    "what is known counts for as long as nobody can be asked": """
        topicRouteServiceCacheExpiredSeconds subscriptionGroupConfigCacheExpiredSeconds""",
    "a topic's settings are asked for with its route": """
        topicConfigCacheExpiredSeconds topicConfigCacheRefreshSeconds topicConfigCacheMaxNum""",
    "users and policies of all brokers are asked for every half second, and all are kept": """
        userCacheRefreshSeconds userCacheMaxNum aclCacheExpiredSeconds aclCacheRefreshSeconds
        aclCacheMaxNum""",
    "the account of the proxy is innerClientAuthenticationCredentials": """
        enableAclRpcHookForClusterMode""",
    "one heartbeat every 30 s names all topics for transactions": """
        transactionHeartbeatPeriodSecond transactionHeartbeatBatchNum""",
    "messages go to the queues in turn": """
        sendLatencyEnable startDetectorEnable detectTimeout detectInterval""",
    "each port takes its own protocol": "enableRemotingLocalProxyGrpc localProxyConnectTimeoutMs",
    "there are no thread pools: the queues of the remoting port bound its requests": """
        remotingHeartbeatThreadPoolNums remotingTopicRouteThreadPoolNums
        remotingSendMessageThreadPoolNums remotingPullMessageThreadPoolNums
        remotingUpdateOffsetThreadPoolNums remotingDefaultThreadPoolNums""",
    "figures are on the page of --health-port": " ".join(
        key for key, reason in WITHOUT_EFFECT.items() if reason.startswith("figures are")
    ),
}

WITHOUT_EFFECT_IN_CLUSTER: Mapping[str, str] = {
    **WITHOUT_EFFECT,
    **{key: reason for reason, keys in _IN_CLUSTER.items() for key in keys.split()},
}
"""The same before a cluster, where some of these keys have an effect (`cluster.config`)."""
