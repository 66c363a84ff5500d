"""Which of RocketMQ's metrics a broker shows: a switch for each family, as in RocketMQ 5.5.0.

A number that is switched off is not read and not on the page; what counts it goes on, since tools
are answered from the same counts. Metrics of Roquet's own have no switch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from roquet.base.config import setting


def _switch(key: str, what: str) -> Any:
    return setting(key, True, f"Show metrics of {what}.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FamiliesConfig:
    """Switches of families of metrics, with RocketMQ's names."""

    stats: bool = _switch(
        "enableStatsMetrics", "the broker itself: waiting requests, permission, topics, groups"
    )
    request: bool = _switch(
        "enableRequestMetrics",
        "messages in and out, their sizes, and how long topics and groups took to be made",
    )
    connection: bool = _switch("enableConnectionMetrics", "connected producers and consumers")
    lag: bool = _switch("enableLagAndDlqMetrics", "lag of groups, and of dead letters")
    transaction: bool = _switch("enableTransactionMetrics", "transactions")
    remoting: bool = _switch("enableRemotingMetrics", "requests: the time until their answer")
    store: bool = _switch("enableMessageStoreMetrics", "the store, timers and delayed messages")
    pop: bool = _switch("enablePopMetrics", "pops: revival and the merge buffer")

    def off(self) -> frozenset[str]:
        """Return the names, without `rocketmq_`, that are not shown."""
        return frozenset(
            name
            for switch, names in NAMES.items()
            if not getattr(self, switch)
            for name in names.split()
        )


NAMES = {
    "stats": "processor_watermark broker_permission topic_number consumer_group_number",
    "request": "messages_in messages_out throughput_in throughput_out message_size"
    " topic_create_execution_time_milliseconds consumer_group_create_execution_time_milliseconds",
    "connection": "producer_connections consumer_connections",
    "lag": "consumer_lag_messages consumer_lag_latency_milliseconds consumer_inflight_messages"
    " consumer_queueing_latency_milliseconds consumer_ready_messages send_to_dlq_messages",
    "transaction": "commit_messages rollback_messages half_messages"
    " finish_message_latency_milliseconds",
    "remoting": "rpc_latency_milliseconds",
    "store": "storage_size_bytes storage_flush_behind_bytes storage_dispatch_behind_bytes"
    " storage_message_reserve_time_milliseconds timer_enqueue_lag"
    " timer_enqueue_latency_milliseconds timer_dequeue_lag timer_dequeue_latency_milliseconds"
    " timing_messages timer_enqueue timer_dequeue timer_message_snapshot"
    " delay_message_latency_seconds",
    "pop": "pop_revive_in_message pop_revive_out_message pop_revive_retry_messages"
    " pop_revive_lag_milliseconds pop_revive_latency_milliseconds pop_offset_buffer_size"
    " pop_checkpoint_buffer_size pop_buffer_scan_time_consume_milliseconds",
}
"""Field of FamiliesConfig -> names of RocketMQ's metrics that it switches, without `rocketmq_`."""
