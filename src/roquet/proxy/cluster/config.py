"""Settings of cluster mode; names and defaults are those of Java's rmq-proxy.json, but for users.

What is known of users counts for 30 s, in Java for 300 s. It is asked for every half second, so it
is old only where a broker cannot be heard; rights that were taken away count until then.
"""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting
from roquet.protocol.names import HEARTBEAT_SYNC_TOPIC
from roquet.remoting.connections.limits import OutgoingConfig, WriteBufferConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Which cluster it is, and how long what is known of it counts."""

    name_servers: str = setting("namesrvAddr", "", "Name servers, separated by semicolons.")
    mode: str = setting("proxyMode", "CLUSTER", "CLUSTER; a broker itself serves local mode.")
    topics_max: int = setting(
        "topicRouteServiceCacheMaxNum", 20_000, "Topics that are remembered.", low=1
    )
    topic_s: int = setting(
        "topicRouteServiceCacheRefreshSeconds",
        20,
        "A topic's queues and its type are asked for again after it.",
        unit="s",
        low=1,
    )
    groups_max: int = setting(
        "subscriptionGroupConfigCacheMaxNum", 20_000, "Groups that are remembered.", low=1
    )
    group_s: int = setting(
        "subscriptionGroupConfigCacheRefreshSeconds",
        20,
        "A group's settings are asked for again after it.",
        unit="s",
        low=1,
    )
    users_expire_s: int = setting(
        "userCacheExpiredSeconds",
        30,
        "Users of a broker that is not heard count so long; then nobody is let in to it.",
        unit="s",
        low=2,
    )
    sync_topic: str = setting(
        "heartbeatSyncerTopicName",
        HEARTBEAT_SYNC_TOPIC,
        "Topic through which proxies tell one another of members of groups; empty for none.",
    )
    serve_host: str = setting(
        "localServeAddr",
        "",
        "Address of this proxy in what it tells others; empty for that of the host.",
    )
    outgoing: OutgoingConfig = dataclasses.field(default_factory=OutgoingConfig)
    write_buffer: WriteBufferConfig = dataclasses.field(default_factory=WriteBufferConfig)
