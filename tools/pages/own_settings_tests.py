"""Which test shows the effect of each setting that the servers have and RocketMQ has not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "test_address_server.py": {
        "test_the_page_is_where_java_looks": (
            "rmqAddressServerDomain",
            "rmqAddressServerSubGroup",
        ),
    },
    "test_admin_lookups.py": {
        "test_group_config_of_a_new_group_is_created_durably": ("autoCreateGroupMax",),
    },
    "test_all_together.py": {
        "test_every_caller_gets_through_by_its_environment": ("rocketmq.acl.plain.file",),
    },
    "test_each_setting.py": {
        "test_connections_that_one_address_may_make_are_those_of_the_settings": (
            "acceptsPerSecondMax",
        ),
        "test_sync_in_place_is_allowed_below_the_time_of_the_settings": ("syncFlushInPlaceMicros",),
    },
    "test_entrance.py": {
        "test_10956_with_the_secret_slaves_are_told_apart": ("haSharedSecret",),
        "test_a_host_that_is_not_listed_gets_nothing_and_counts_for_nothing": ("haSlaveAddresses",),
        "test_the_log_over_tls": (
            "haTlsCertFile",
            "haTlsKeyFile",
            "haTlsTrustFile",
        ),
        "test_tls_without_files_is_said": ("haTlsEnable",),
        "test_with_accounts_the_port_for_slaves_is_open_only_to_known_ones": (
            "haOpenWithAccessControl",
        ),
    },
    "test_fast_broker.py": {
        "test_it_can_be_switched_off": ("fastPathEnable",),
        "test_the_bound_of_held_pulls_holds_for_both_ways_together": ("heldPullsMax",),
    },
    "test_io_threads.py": {
        "test_sends_and_pulls_are_answered_by_threads": ("ioThreads",),
    },
    "test_live_settings.py": {
        "test_offset_of_a_queue_without_messages_is_zero_unless_switched_off": (
            "newQueueFromZero",
        ),
    },
    "test_named_regressions.py": {
        "test_b14_topics_without_measure_are_refused": ("autoCreateTopicMax",),
    },
    "test_namesrv_departed.py": {
        "test_name_server_that_keeps_nobody_says_so": ("departedBrokerKeepMs",),
    },
    "test_namesrv_requests.py": {
        "test_broker_below_the_smallest_port_of_the_settings_is_refused": ("brokerPortMin",),
    },
    "test_revive.py": {
        "test_without_dead_letters_a_message_comes_again_for_ever_as_with_java": (
            "popDeadLetterEnable",
        ),
    },
    "test_settings_at_work.py": {
        "test_damage_with_messages_behind_it_is_cut_off_only_where_the_settings_say_so": (
            "recoveryTruncateCorrupt",
        ),
    },
    "test_settled.py": {
        "test_slave_metadata_sync": ("slaveSyncInterval",),
    },
    "test_slave_life.py": {
        "test_slave_waits_before_it_connects_again_as_long_as_the_settings_say": (
            "haReconnectInterval",
        ),
    },
    "test_tls.py": {
        "test_a_client_certificate_is_asked_for": (
            "tls.server.need.client.auth",
            "tls.server.trustCertPath",
        ),
        "test_an_encrypted_key_needs_its_password": ("tls.server.keyPassword",),
        "test_connections_that_a_server_opens_use_tls_as_its_settings_say": (
            "tls.client.authServer",
            "tls.client.certPath",
            "tls.client.checkHostname",
            "tls.client.keyPassword",
            "tls.client.keyPath",
            "tls.client.trustCertPath",
            "tls.enable",
            "tls.test.mode.enable",
        ),
        "test_enforcing_closes_a_plain_connection_with_one_line": ("tls.server.mode",),
        "test_permissive_serves_tls_and_plain_on_one_port": (
            "tls.server.certPath",
            "tls.server.keyPath",
        ),
        "test_settings_of_the_file_are_below_all_others": ("tls.config.file",),
    },
}
"""File -> test -> declared keys whose effect it shows."""
