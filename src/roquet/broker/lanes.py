"""The broker's lanes: how much of each family of requests may wait, and how long.

Java has a thread pool in the place of each (spec: broker.md, thread pools). Here everything runs on
one loop, so concurrency counts requests that wait for a disk or a slave, not threads.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.service.lanes import LaneConfig

if TYPE_CHECKING:
    from roquet.broker.config import ListenConfig
    from roquet.broker.network.fast_fail import FastFailConfig

WAITING_SENDS = 8192
"""Sends that may wait for a flush at once; a group commit takes them all together."""


def lane_configs(rules: ListenConfig, fast_fail: FastFailConfig) -> list[LaneConfig]:
    """Return the lanes in the order of Java's list of pools.

    Without `brokerFastFailureEnable` a request may wait for ever, in every lane: a client that
    asked for that must not be refused by age either.
    """
    admin_ms = rules.admin_age_ms
    lanes = [
        LaneConfig("send", WAITING_SENDS, rules.send_queue, rules.send_age_ms),
        LaneConfig("pull", 64, rules.pull_queue, rules.pull_age_ms),
        LaneConfig("lite_pull", 64, rules.lite_pull_queue, rules.lite_pull_age_ms),
        LaneConfig("ack", WAITING_SENDS, rules.ack_queue),
        LaneConfig("reply", 1024, rules.reply_queue),
        LaneConfig("query", 16, rules.query_queue),
        LaneConfig("heartbeat", 64, rules.heartbeat_queue, rules.heartbeat_age_ms),
        LaneConfig("client_manage", 64, rules.client_queue),
        LaneConfig("consumer_manage", 64, rules.consumer_queue),
        LaneConfig(
            "end_transaction",
            WAITING_SENDS,
            rules.end_transaction_queue,
            rules.end_transaction_age_ms,
        ),
        LaneConfig("load_balance", 64, rules.load_balance_queue),
        LaneConfig("admin", 64, rules.admin_queue, admin_ms),
    ]
    if fast_fail.enabled:
        return lanes
    return [dataclasses.replace(lane, age_max_ms=None) for lane in lanes]
