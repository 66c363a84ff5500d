"""Settings of cluster mode; names and defaults are those of Java's rmq-proxy.json."""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting


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
