"""Which test shows the effect of each setting of RocketMQ that the servers declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "test_acl_servers.py": {
        "test_the_settings_say_where_the_accounts_are": (
            "aclEnable",
            "rocketmqHome",
        ),
    },
    "test_admin_lookups.py": {
        "test_group_config_of_a_new_group_is_created_durably": ("enableCreateSysGroup",),
    },
    "test_app.py": {
        "test_it_says_where_the_metrics_are": (
            "metricsExporterType",
            "metricsPromExporterPort",
        ),
        "test_it_warns_when_anybody_may_come": ("bindAddress",),
    },
    "test_assignments.py": {
        "test_defaults_follow_the_settings_but_a_retry_topic_is_always_pulled": (
            "defaultMessageRequestMode",
        ),
        "test_queues_are_asked_for_again_after_the_time_of_the_settings": (
            "loadBalancePollNameServerInterval",
        ),
        "test_queues_of_a_popping_member_are_shared_as_far_as_the_settings_say": (
            "defaultPopShareQueueNum",
        ),
        "test_without_balancing_everybody_is_told_all_queues": ("serverLoadBalancerEnable",),
    },
    "test_auth_servers.py": {
        "test_only_users_are_let_in_and_to_what_policies_allow": (
            "authenticationEnabled",
            "authorizationEnabled",
            "initAuthenticationUser",
            "innerClientAuthenticationCredentials",
        ),
        "test_white_lists_are_of_codes_and_make_nobody_somebody": (
            "authenticationWhitelist",
            "authorizationWhitelist",
        ),
    },
    "test_broker_config.py": {
        "test_a_java_file_is_taken_as_it_is": ("mappedFileSizeCommitLog",),
    },
    "test_buffer.py": {
        "test_checkpoint_is_stored_before_its_margin": ("popCkStayBufferTimeOut",),
        "test_more_checkpoints_than_may_wait_are_stored_at_once": (
            "popCkMaxBufferSize",
            "popCkOffsetMaxQueueSize",
        ),
        "test_records_wait_for_their_flush_unless_they_may_not": (
            "appendAckAsync",
            "appendCkAsync",
        ),
        "test_checkpoints_are_stored_in_the_order_in_which_their_stay_ends": (
            "popCkStayBufferTime",
        ),
        "test_what_is_acknowledged_whole_is_never_stored": ("enablePopBufferMerge",),
        "test_what_is_left_after_its_stay_is_stored_with_its_acknowledgements": (
            "enablePopBatchAck",
        ),
    },
    "test_cleaner_rounds.py": {
        "test_file_that_hangs_is_tried_again_after_the_pause_or_by_hand": (
            "redeleteHangedFileInterval",
        ),
    },
    "test_cleaning.py": {
        "test_warm_files_are_written_and_work_alike": ("warmMapedFileEnable",),
        "test_what_a_round_may_delete": ("cleanFileForciblyEnable",),
    },
    "test_client_live.py": {
        "test_topics_are_made_by_the_first_send_or_the_remedy_is_named": ("autoCreateTopicEnable",),
    },
    "test_client_request_reply.py": {
        "test_replies_are_not_stored_when_that_is_off": ("storeReplyMessageEnable",),
    },
    "test_each_setting.py": {
        "test_addresses_and_ports_told_to_others_are_those_of_the_settings": (
            "brokerIP1",
            "brokerIP2",
        ),
        "test_built_in_topics_follow_their_settings": (
            "brokerClusterName",
            "brokerTopicEnable",
            "clusterTopicEnable",
            "defaultTopicQueueNums",
            "msgTraceTopicName",
            "reviveQueueNum",
            "traceTopicEnable",
        ),
        "test_pause_between_two_runs_is_the_one_of_the_settings": (
            "cleanResourceInterval",
            "flushConsumerOffsetInterval",
            "flushDelayOffsetInterval",
            "transactionMetricFlushInterval",
        ),
        "test_silent_connection_is_closed_after_the_time_of_the_settings": (
            "serverChannelMaxIdleTimeSeconds",
        ),
    },
    "test_outgoing_settings.py": {
        "test_server_that_accepts_nobody_is_given_up_after_the_time_of_the_settings": (
            "connectTimeoutMillis",
        ),
        "test_silent_connection_to_a_server_is_closed_after_the_time_of_the_settings": (
            "clientChannelMaxIdleTimeSeconds",
        ),
        "test_round_leaves_out_name_servers_that_the_last_scan_did_not_reach_unless_none_is_made": (
            "isScanAvailableNameSrv",
        ),
        "test_socket_options_of_connections_to_servers_are_those_of_the_settings": (
            "clientSocketRcvBufSize",
            "clientSocketSndBufSize",
        ),
        "test_connection_above_the_high_mark_is_stuck_until_it_is_below_the_low_one": (
            "writeBufferHighWaterMark",
            "writeBufferLowWaterMark",
        ),
    },
    "test_every_code.py": {
        "test_306_expired_units_go_and_the_first_offset_rises": ("mappedFileSizeConsumeQueue",),
    },
    "test_exporting.py": {
        "test_in_delta_pushes_bring_what_was_added_since_the_last_that_arrived": (
            "metricsInDelta",
        ),
        "test_log_has_a_line_a_number_in_delta_since_the_last": (
            "metricLoggingExporterIntervalInMills",
        ),
        "test_one_call_has_at_most_so_many_data_points": ("metricsExportBatchMaxDataPoints",),
        "test_page_is_served_where_the_settings_say": ("metricsPromExporterHost",),
        "test_push_to_a_collector_that_never_answers_ends_in_time": (
            "metricGrpcExporterIntervalInMills",
        ),
        "test_push_may_take_as_long_as_the_settings_say": ("metricGrpcExporterTimeOutInMills",),
        "test_pushed_metrics_have_java_names_units_kinds_and_labels": (
            "metricsGrpcExporterHeader",
            "metricsGrpcExporterTarget",
        ),
        "test_rows_beyond_the_limit_are_left_out_and_counted": (
            "metricsLabel",
            "metricsOtelCardinalityLimit",
        ),
    },
    "test_fast_fail.py": {
        "test_it_can_be_switched_off": ("brokerFastFailureEnable",),
    },
    "test_grpc_access.py": {
        "test_accounts_do_with_their_own_topic_and_group_all_there_is": (
            "migrateAuthFromV1Enabled",
        ),
    },
    "test_lane_capacities.py": {
        "test_lane_of_a_running_broker_refuses_what_is_above_its_changed_capacity": (
            "ackThreadPoolQueueCapacity",
            "adminBrokerThreadPoolQueueCapacity",
            "clientManagerThreadPoolQueueCapacity",
            "consumerManagerThreadPoolQueueCapacity",
            "endTransactionPoolQueueCapacity",
            "heartbeatThreadPoolQueueCapacity",
            "litePullThreadPoolQueueCapacity",
            "loadBalanceThreadPoolQueueCapacity",
            "pullThreadPoolQueueCapacity",
            "queryThreadPoolQueueCapacity",
            "replyThreadPoolQueueCapacity",
            "sendThreadPoolQueueCapacity",
        ),
        "test_lane_of_a_running_broker_refuses_what_waited_longer_than_its_changed_age": (
            "waitTimeMillsInAdminBrokerQueue",
            "waitTimeMillsInHeartbeatQueue",
            "waitTimeMillsInLitePullQueue",
            "waitTimeMillsInPullQueue",
            "waitTimeMillsInSendQueue",
            "waitTimeMillsInTransactionQueue",
        ),
    },
    "test_light_pops.py": {
        "test_many_light_topics_reach_a_client_of_few_events": ("liteEventFullDispatchDelayTime",),
        "test_subscription_that_is_not_renewed_goes_and_others_get_its_events": (
            "liteSubscriptionCheckTimeoutMills",
        ),
    },
    "test_light_refusals.py": {
        "test_more_light_topics_than_all_clients_may_have_are_refused": (
            "maxLiteSubscriptionCount",
        ),
    },
    "test_light_settings.py": {
        "test_pause_of_light_topics_is_the_one_of_the_settings": (
            "liteEventCheckInterval",
            "liteSubscriptionCheckInterval",
            "liteTtlCheckInterval",
        ),
        "test_mode_of_events_changes_while_the_broker_runs": ("enableLiteEventMode",),
        "test_events_of_a_client_are_as_many_as_the_settings_allow": ("maxClientEventCount",),
        "test_wildcard_group_gets_the_rest_after_the_time_of_the_settings": (
            "liteEventFullDispatchDelayTimeForWildcardGroup",
        ),
        "test_light_topic_stays_for_the_least_time_of_the_settings": ("minLiteTTl",),
        "test_lag_of_light_topics_is_shown_by_parent_as_far_as_settings_say": (
            "liteLagCountMetricsEnable",
            "liteLagLatencyMetricsEnable",
        ),
    },
    "test_light_queues.py": {
        "test_a_message_is_pulled_from_its_topic_and_from_each_light_queue": (
            "enableLmq",
            "enableMultiDispatch",
        ),
        "test_one_light_queue_too_many_is_refused_and_known_ones_go_on": (
            "enableLmqQuota",
            "maxLmqConsumeQueueNum",
        ),
        "test_light_queues_and_groups_have_figures_of_their_own_where_the_setting_says_so": (
            "enableLmqStats",
        ),
    },
    "test_live_replication.py": {
        "test_copies_that_a_running_master_asks_for_are_those_of_the_changed_settings": (
            "haMaxGapNotInSync",
            "inSyncReplicas",
            "slaveTimeout",
        ),
        "test_heartbeats_of_a_running_master_come_at_the_changed_interval": (
            "haSendHeartbeatInterval",
        ),
        "test_locks_of_a_running_broker_need_the_changed_majority": (
            "lockInStrictMode",
            "totalReplicas",
        ),
        "test_pieces_of_a_running_master_are_as_long_as_the_changed_limits_allow": (
            "haFlowControlEnable",
            "haTransferBatchSize",
            "maxHaTransferByteInSecond",
        ),
        "test_silent_slave_of_a_running_master_is_dropped_after_the_changed_time": (
            "haHousekeepingInterval",
        ),
    },
    "test_live_settings.py": {
        "test_delayed_messages_are_counted_unless_that_is_switched_off": (
            "enableScheduleMessageStats",
            "messageDelayLevel",
        ),
        "test_empty_pull_short_polling_switched_on_waits_for_that_time": (
            "longPollingEnable",
            "shortPollingTimeMills",
        ),
        "test_files_that_a_running_broker_deletes_are_those_of_the_changed_settings": (
            "deleteFileBatchMax",
            "deleteWhen",
            "fileReservedTime",
        ),
        "test_name_server_drop_of_topics_switched_on_holds_for_the_next_registration": (
            "deleteTopicWithBrokerRegistration",
        ),
        "test_pull_of_old_messages_changed_limits_bound_the_answer": (
            "accessMessageInMemoryMaxRatio",
            "maxTransferBytesOnMessageInDisk",
            "maxTransferCountOnMessageInDisk",
        ),
        "test_pull_of_recent_messages_changed_limits_bound_the_answer": (
            "maxTransferBytesOnMessageInMemory",
            "maxTransferCountOnMessageInMemory",
        ),
        "test_pull_rules_changed_while_running_hold_for_the_next_pull": (
            "enablePropertyFilter",
            "litePullMessageEnable",
            "rejectPullConsumerEnable",
            "slaveReadEnable",
        ),
        "test_pull_with_tags_changed_scan_bounds_the_units_looked_at": ("maxFilterMessageSize",),
        "test_query_by_key_limits_are_those_of_the_settings": (
            "defaultQueryMaxNum",
            "maxMsgsNumBatch",
        ),
        "test_query_by_key_without_an_index_finds_nothing": ("messageIndexEnable",),
        "test_registration_of_a_running_broker_is_sent_as_the_changed_settings_say": (
            "compressedRegister",
            "registerBrokerTimeoutMills",
        ),
        "test_sends_changed_limits_and_stamps_hold_for_the_next_send": (
            "maxMessageSize",
            "regionId",
            "traceOn",
        ),
        "test_settings_of_upkeep_changed_while_running_reach_their_parts": (
            "diskMaxUsedSpaceRatio",
            "diskSpaceCleanForciblyRatio",
            "diskSpaceWarningLevelRatio",
            "flushConsumeQueueThoroughInterval",
            "flushIntervalCommitLog",
        ),
        "test_slave_offset_check_switched_on_moves_readers": (
            "brokerRole",
            "offsetCheckInSlave",
        ),
        "test_transaction_check_interval_changed_checks_come_at_the_new_pace": (
            "transactionCheckInterval",
        ),
    },
    "test_metric_switches.py": {
        "test_a_family_that_is_switched_off_is_not_shown_and_the_others_are": (
            "enableConnectionMetrics",
            "enableLagAndDlqMetrics",
            "enableMessageStoreMetrics",
            "enablePopMetrics",
            "enableRemotingMetrics",
            "enableRequestMetrics",
            "enableStatsMetrics",
            "enableTransactionMetrics",
        ),
    },
    "test_namesrv_capacities.py": {
        "test_lane_of_a_name_server_runs_and_keeps_what_its_settings_allow": (
            "clientRequestThreadPoolNums",
            "clientRequestThreadPoolQueueCapacity",
            "defaultThreadPoolNums",
            "defaultThreadPoolQueueCapacity",
        ),
        "test_no_more_brokers_wait_to_be_forgotten_than_the_setting_allows": (
            "unRegisterBrokerQueueCapacity",
        ),
    },
    "test_namesrv_requests.py": {
        "test_a_young_name_server_may_ask_for_patience": (
            "needWaitForService",
            "waitSecondsForService",
        ),
        "test_lists_can_be_switched_off": (
            "enableAllTopicList",
            "enableTopicList",
        ),
        "test_order_topics_go_to_brokers_and_to_clients": (
            "orderMessageEnable",
            "returnOrderTopicConfigToBroker",
        ),
    },
    "test_namesrv_settings.py": {
        "test_keys_of_the_black_list_are_those_of_the_settings": ("configBlackList",),
        "test_settings_are_shown_and_changed": (
            "configStorePath",
            "kvConfigPath",
        ),
    },
    "test_namesrv_zones.py": {
        "test_lowest_slave_is_shown_as_a_read_only_master_where_that_is_switched_on": (
            "supportActingMaster",
        ),
        "test_nobody_is_told_when_that_is_off_or_the_name_has_no_acting_master": (
            "notifyMinBrokerIdChanged",
        ),
    },
    "test_orders.py": {
        "test_nobody_is_woken_for_a_free_queue_when_that_is_off": (
            "enableNotifyAfterPopOrderLockRelease",
        ),
    },
    "test_pair.py": {
        "test_slaves_come_to_the_port_of_the_settings": ("haListenPort",),
    },
    "test_plugins.py": {
        "test_a_chain_sees_every_message_and_may_refuse_one": ("messageStorePlugIn",),
    },
    "test_polls.py": {
        "test_filter_leaves_a_poll_waiting_until_every_so_many_messages": (
            "popLongPollingForceNotifyInterval",
        ),
        "test_polls_of_a_key_and_of_all_are_bounded": ("popPollingSize",),
    },
    "test_pop.py": {
        "test_actual_retry_topic_is_shown_when_that_is_set": ("popResponseReturnActualRetryTopic",),
        "test_new_group_begins_where_its_mode_says": ("initPopOffsetByCheckMsgInMem",),
        "test_queue_with_too_many_in_flight_gives_no_more": (
            "enablePopMessageThreshold",
            "popInflightMessageThreshold",
        ),
        "test_redelivered_message_comes_under_its_own_topic_with_its_handle": (
            "popFromRetryProbability",
        ),
        "test_v1_topics_are_not_read_where_that_is_switched_off": (
            "retrieveMessageFromPopRetryTopicV1",
        ),
    },
    "test_priority.py": {
        "test_lowest_queue_is_the_most_urgent_when_that_is_set": ("priorityOrderAsc",),
        "test_pops_by_priority_have_their_own_share_of_looks_at_retries": (
            "popFromRetryProbabilityForPriority",
        ),
    },
    "test_pull.py": {
        "test_the_broker_may_serve_no_reads": ("brokerPermission",),
    },
    "test_registration.py": {
        "test_without_force_only_news_is_registered": ("forceRegister",),
    },
    "test_revive.py": {
        "test_acks_without_a_checkpoint_are_forgotten_after_a_while": ("reviveAckWaitMs",),
        "test_full_round_is_followed_at_once_and_an_idle_one_later_and_later": (
            "reviveInterval",
            "reviveMaxSlow",
        ),
        "test_message_popped_from_a_retry_topic_goes_back_there": ("enableRetryTopicV2",),
        "test_pauses_before_another_try_grow_as_in_java": ("skipWhenCKRePutReachMaxTimes",),
        "test_reading_ends_after_its_time_and_goes_on_in_the_next_round": ("reviveScanTime",),
        "test_separate_retry_queues_grow_with_the_topic": ("useSeparateRetryQueue",),
    },
    "test_send.py": {
        "test_a_broker_may_take_no_sends": ("startAcceptSendRequestTimeStamp",),
        "test_a_retry_needs_its_group": ("autoCreateSubscriptionGroup",),
    },
    "test_settings_at_work.py": {
        "test_answered_send_is_on_the_disk_with_sync_flush": ("flushDiskType",),
        "test_append_that_takes_longer_than_the_settings_allow_keeps_sends_out": (
            "osPageCacheBusyTimeOutMills",
        ),
        "test_everything_is_kept_in_the_folder_of_the_settings": ("storePathRootDir",),
        "test_store_of_another_form_than_files_is_refused_at_the_start": ("storeType",),
        "test_index_files_have_the_slots_and_entries_of_the_settings": (
            "maxHashSlotNum",
            "maxIndexNum",
        ),
        "test_log_is_kept_in_the_folder_of_the_settings": ("storePathCommitLog",),
        "test_members_hear_of_each_other_only_while_that_is_switched_on": (
            "notifyConsumerIdsChangedEnable",
        ),
        "test_name_of_the_settings_is_the_one_that_routes_show": ("brokerName",),
        "test_notices_gather_while_they_are_not_to_come_at_once": ("realTimeNotifyConsumerChange",),
        "test_pause_between_two_deleted_files_is_the_one_of_the_settings": (
            "deleteCommitLogFilesInterval",
        ),
        "test_recovery_without_checksums_keeps_what_follows_a_changed_body": ("checkCRCOnRecover",),
        "test_sends_wait_for_a_late_flush_as_long_as_the_settings_say": ("syncFlushTimeout",),
        "test_silent_client_is_forgotten_after_the_time_of_the_settings": (
            "channelExpiredTimeout",
        ),
        "test_versions_of_tls_offered_are_those_of_the_settings": ("tls.protocols",),
    },
    "test_settled.py": {
        "test_address_server_for_name_servers": (
            "fetchNamesrvAddrByAddressServer",
            "namesrvAddr",
        ),
        "test_configured_ha_master_address": ("haMasterAddress",),
        "test_name_server_scan_of_dead_brokers": ("scanNotActiveBrokerInterval",),
        "test_ports": ("listenPort",),
        "test_registration": ("registerNameServerPeriod",),
        "test_slaves_access_message_in_memory_max_ratio": ("brokerId",),
    },
    "test_sql_filters.py": {
        "test_retried_messages_are_filtered_by_their_origin_when_wanted": ("filterSupportRetry",),
    },
    "test_timer_settings.py": {
        "test_files_of_the_timer_log_have_the_size_of_the_settings": ("mappedFileSizeTimerLog",),
        "test_key_of_a_recall_begins_with_the_topic_as_the_settings_say": (
            "appendTopicForTimerDeleteKey",
        ),
        "test_message_beyond_the_window_takes_several_turns": ("timerRollWindowSlot",),
        "test_recall_at_a_broker_that_takes_no_sends_follows_its_setting": (
            "allowRecallWhenBrokerNotWriteable",
        ),
        "test_stopped_wheel_keeps_due_messages_until_it_goes_on": (
            "timerStopDequeue",
            "timerStopEnqueue",
        ),
        "test_wheel_is_saved_at_the_interval_of_the_settings": ("timerFlushIntervalMs",),
        "test_snapshots_of_the_wheel_are_made_as_the_settings_say": ("timerWheelSnapshotFlush",),
        "test_snapshots_of_the_wheel_come_at_the_interval_of_the_settings": (
            "timerWheelSnapshotIntervalMs",
        ),
        "test_wrong_counts_are_corrected_in_the_hours_of_the_settings": (
            "timerCheckMetricsWhen",
            "timerEnableCheckMetrics",
            "timerMetricSmallThreshold",
        ),
    },
    "test_timers_broker.py": {
        "test_crowded_step_refuses_more_messages": ("timerCongestNumEachSlot",),
        "test_recalled_message_does_not_arrive": ("recallMessageEnable",),
        "test_timer_message_arrives_after_its_time_with_the_properties_of_java": (
            "timerPrecisionMs",
        ),
        "test_timer_send_is_refused_when_the_wheel_is_off": ("timerWheelEnable",),
        "test_longest_delay_of_a_timer_message_is_the_one_of_the_settings": ("timerMaxDelaySec",),
    },
    "test_transaction_settings.py": {
        "test_op_record_gathers_for_the_time_of_the_settings": ("transactionOpBatchInterval",),
        "test_producer_is_asked_after_the_time_of_the_settings": ("transactionTimeOut",),
    },
    "test_transactions.py": {
        "test_after_so_many_checks_a_message_is_put_aside_and_can_be_brought_back": (
            "transactionCheckMax",
        ),
        "test_half_messages_may_be_refused": ("rejectTransactionMessage",),
        "test_op_records_gather_up_to_their_size": ("transactionOpMsgMaxSize",),
    },
    "test_waiting.py": {
        "test_notification_looks_at_few_messages_for_its_filter": (
            "maxMessageFilterNumForNotification",
            "useMessageFilterForNotification",
        ),
        "test_one_pop_more_than_may_wait_is_answered_209": ("maxPopPollingSize",),
    },
    "test_watch.py": {
        "test_a_group_that_is_too_far_behind_is_switched_off": (
            "consumerFallbehindThreshold",
            "disableConsumeIfConsumerReadSlowly",
        ),
    },
}
"""File -> test -> declared keys whose effect it shows."""
