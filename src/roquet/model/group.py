"""A consumer group's configuration (spec: store §8, subscriptionGroup.json)."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class RetryPolicyType(enum.StrEnum):
    """Which of the two rules gives the pause before the next try."""

    CUSTOMIZED = "CUSTOMIZED"
    EXPONENTIAL = "EXPONENTIAL"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Pauses between tries; None where the group leaves them to the broker's table."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    initial_ms: int | None = None
    max_ms: int | None = None
    multiplier: int | None = None
    next_ms: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimpleSubscription:
    """A subscription that an administrator fixed for the group."""

    topic: str
    expression_type: str = "TAG"
    expression: str = "*"
    version: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig:
    """One row of a broker's group table (Java: SubscriptionGroupConfig)."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    retry_policy: RetryPolicy = RetryPolicy()
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscriptions: tuple[SimpleSubscription, ...] | None = None
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
