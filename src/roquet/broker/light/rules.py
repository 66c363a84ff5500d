"""Settings of light topics, under RocketMQ's names."""

from __future__ import annotations

import dataclasses

from roquet.base.config import setting


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LightTopicConfig:
    """How subscriptions to light topics are kept and served."""

    by_events: bool = setting(
        "enableLiteEventMode",
        True,
        "Whether clients of light topics are told which have messages; otherwise each pop goes"
        " through the whole subscription.",
        live=True,
    )
    events_interval_ms: int = setting(
        "liteEventCheckInterval",
        10_000,
        "Between looks for clients that do not take what is there for them.",
        unit="ms",
        low=100,
        high=3_600_000,
        live=True,
    )
    events_max: int = setting(
        "maxClientEventCount",
        100,
        "Light topics with messages that are noted for a client, unless its group says how many.",
        low=1,
        high=10_000,
        live=True,
    )
    full_dispatch_ms: int = setting(
        "liteEventFullDispatchDelayTime",
        10_000,
        "After which all light topics of a client are looked at, when more had messages than are"
        " noted.",
        unit="ms",
        low=50,
        high=3_600_000,
        live=True,
    )
    full_dispatch_wildcard_ms: int = setting(
        "liteEventFullDispatchDelayTimeForWildcardGroup",
        10_000,
        "The same for groups that have all light topics of a parent.",
        unit="ms",
        low=50,
        high=3_600_000,
        live=True,
    )
    subscriptions_max: int = setting(
        "maxLiteSubscriptionCount",
        100_000,
        "Light topics that all clients together subscribe to.",
        low=1,
        high=1_000_000,
        live=True,
    )
    subscriptions_interval_ms: int = setting(
        "liteSubscriptionCheckInterval",
        120_000,
        "Between looks for subscriptions that were not renewed.",
        unit="ms",
        low=100,
        high=3_600_000,
        live=True,
    )
    subscriptions_expire_ms: int = setting(
        "liteSubscriptionCheckTimeoutMills",
        180_000,
        "A subscription that was not renewed for so long goes.",
        unit="ms",
        low=100,
        high=86_400_000,
        live=True,
    )
    idle_interval_ms: int = setting(
        "liteTtlCheckInterval",
        120_000,
        "Between looks for light topics whose time is over.",
        unit="ms",
        low=100,
        high=86_400_000,
        live=True,
    )
    idle_min_ms: int = setting(
        "minLiteTTl",
        900_000,
        "No light topic goes before it was idle for so long, nor so soon after a start.",
        unit="ms",
        low=0,
        high=86_400_000,
        live=True,
    )
    lag_counts: bool = setting(
        "liteLagCountMetricsEnable",
        False,
        "Whether metrics say how many messages of light topics each group has not consumed.",
        live=True,
    )
    lag_times: bool = setting(
        "liteLagLatencyMetricsEnable",
        False,
        "Whether metrics say how old the oldest of them is.",
        live=True,
    )
    stats: bool = setting(
        "enableLmqStats",
        False,
        "Whether each light queue and light group has figures of its own; otherwise all have one.",
        live=True,
    )
