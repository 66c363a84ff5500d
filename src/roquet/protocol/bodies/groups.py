"""Consumer-group tables: bodies of 200/225/201/352/300 and subscriptionGroup.json."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.model.group import (
    RetryPolicy,
    RetryPolicyType,
    SimpleSubscription,
    SubscriptionGroupConfig,
)
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.topics import data_version_json, data_version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.model.data_version import DataVersion
    from roquet.protocol.bodies.fields import Json


def group_json(config: SubscriptionGroupConfig) -> Json:
    """Return a group configuration's fields."""
    out: Json = {
        "attributes": dict(config.attributes),
        "brokerId": config.broker_id,
        "consumeBroadcastEnable": config.consume_broadcast_enable,
        "consumeEnable": config.consume_enable,
        "consumeFromMinEnable": config.consume_from_min_enable,
        "consumeMessageOrderly": config.consume_message_orderly,
        "consumeTimeoutMinute": config.consume_timeout_minute,
        "groupName": config.name,
        "groupRetryPolicy": _policy_json(config.retry_policy),
        "groupSysFlag": config.sys_flag,
        "notifyConsumerIdsChangedEnable": config.notify_consumer_ids_changed_enable,
        "retryMaxTimes": config.retry_max_times,
        "retryQueueNums": config.retry_queues,
        "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
    }
    if config.subscriptions is not None:
        out["subscriptionDataSet"] = [
            {
                "expression": it.expression,
                "expressionType": it.expression_type,
                "topic": it.topic,
                "version": it.version,
            }
            for it in config.subscriptions
        ]
    return out


def group_of(source: Mapping[str, Any], name: str | None = None) -> SubscriptionGroupConfig:
    """Read a group configuration; `name` stands in where it has none. Raises JsonError."""
    fixed = source.get("subscriptionDataSet") is not None
    return SubscriptionGroupConfig(
        name=fields.optional_text(source, "groupName") or name or "",
        consume_enable=fields.boolean(source, "consumeEnable", default=True),
        consume_from_min_enable=fields.boolean(source, "consumeFromMinEnable", default=True),
        consume_broadcast_enable=fields.boolean(source, "consumeBroadcastEnable", default=True),
        consume_message_orderly=fields.boolean(source, "consumeMessageOrderly"),
        retry_queues=fields.i32(source, "retryQueueNums", 1),
        retry_max_times=fields.i32(source, "retryMaxTimes", 16),
        retry_policy=_policy_of(fields.obj(source, "groupRetryPolicy")),
        broker_id=fields.i64(source, "brokerId"),
        which_broker_when_consume_slowly=fields.i64(source, "whichBrokerWhenConsumeSlowly", 1),
        notify_consumer_ids_changed_enable=fields.boolean(
            source, "notifyConsumerIdsChangedEnable", default=True
        ),
        sys_flag=fields.i32(source, "groupSysFlag"),
        consume_timeout_minute=fields.i32(source, "consumeTimeoutMinute", 15),
        subscriptions=_subscriptions_of(source) if fixed else None,
        attributes=fields.text_map(source, "attributes"),
    )


def _subscriptions_of(source: Mapping[str, Any]) -> tuple[SimpleSubscription, ...]:
    return tuple(
        SimpleSubscription(
            topic=fields.text(item, "topic"),
            expression_type=fields.text(item, "expressionType", "TAG"),
            expression=fields.text(item, "expression", "*"),
            version=fields.i64(item, "version"),
        )
        for item in fields.objects(source, "subscriptionDataSet")
    )


def _policy_json(policy: RetryPolicy) -> Json:
    out: Json = {"type": str(policy.type)}
    if policy.next_ms is not None:
        out["customizedRetryPolicy"] = {"next": list(policy.next_ms)}
    if policy.initial_ms is not None:
        out["exponentialRetryPolicy"] = {
            "initial": policy.initial_ms,
            "max": 7_200_000 if policy.max_ms is None else policy.max_ms,
            "multiplier": 2 if policy.multiplier is None else policy.multiplier,
        }
    return out


def _policy_of(source: Mapping[str, Any]) -> RetryPolicy:
    custom = fields.obj(source, "customizedRetryPolicy")
    growing = fields.obj(source, "exponentialRetryPolicy")
    exponential = fields.optional_text(source, "type") == RetryPolicyType.EXPONENTIAL
    return RetryPolicy(
        type=RetryPolicyType.EXPONENTIAL if exponential else RetryPolicyType.CUSTOMIZED,
        next_ms=(
            tuple(fields.number(item, "next") for item in fields.array(custom, "next"))
            if custom
            else None
        ),
        initial_ms=fields.i64(growing, "initial", 5_000) if growing else None,
        max_ms=fields.i64(growing, "max", 7_200_000) if growing else None,
        multiplier=fields.i64(growing, "multiplier", 2) if growing else None,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupTableBody:
    """A group table with its version (Java: SubscriptionGroupWrapper).

    `forbidden` is group -> topic -> bits.
    """

    groups: Mapping[str, SubscriptionGroupConfig]
    version: DataVersion
    forbidden: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict[str, dict[str, int]]
    )

    def to_json(self) -> Json:
        """Return the wrapper's fields."""
        return {
            "dataVersion": data_version_json(self.version),
            "forbiddenTable": {name: dict(topics) for name, topics in self.forbidden.items()},
            "subscriptionGroupTable": fastjson.Made(self.groups, group_json),
        }

    def encode(self) -> bytes:
        """Write the body of a GET_ALL_SUBSCRIPTIONGROUP_CONFIG answer."""
        return fastjson.java(self.to_json())

    def encode_file(self) -> bytes:
        """Write subscriptionGroup.json."""
        return fastjson.pretty(self.to_json())

    @classmethod
    def decode(cls, data: bytes, *, tolerant_size_max: int = fastjson.TOLERANT_SIZE_MAX) -> Self:
        """Read body or file. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=tolerant_size_max)
        table = fields.obj(source, "subscriptionGroupTable")
        forbidden = fields.obj(source, "forbiddenTable")
        return cls(
            groups={
                name: group_of(fields.as_object(item, name), name) for name, item in table.items()
            },
            version=data_version_of(fields.obj(source, "dataVersion")),
            forbidden={
                name: {
                    topic: fields.number(bits, topic, fields.I32_MAX)
                    for topic, bits in fields.as_object(topics, name).items()
                }
                for name, topics in forbidden.items()
            },
        )


def encode_group(config: SubscriptionGroupConfig) -> bytes:
    """Write one group configuration (200, answer to 352)."""
    return fastjson.java(group_json(config))


def decode_group(data: bytes) -> SubscriptionGroupConfig:
    """Read one group configuration. Raises JsonError."""
    return group_of(fastjson.read_object(data))


def encode_groups(configs: Iterable[SubscriptionGroupConfig]) -> bytes:
    """Write the body of 225 (Java: SubscriptionGroupList)."""
    return fastjson.java({"groupConfigList": [group_json(config) for config in configs]})


def decode_groups(data: bytes) -> list[SubscriptionGroupConfig]:
    """Read the body of 225. Raises JsonError."""
    source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
    return fields.at_once(groups_of(source))


def groups_of(source: Mapping[str, Any]) -> fields.Steps[list[SubscriptionGroupConfig]]:
    """Read the fields of the body of 225, in steps; its array may be parts. Raises JsonError."""
    found: list[SubscriptionGroupConfig] = []
    for item, is_due in fields.paced_objects(source, "groupConfigList"):
        found.append(group_of(item))
        if is_due:
            yield
    return found


def encode_group_list(groups: Iterable[str]) -> bytes:
    """Write a GroupList (300)."""
    return fastjson.java({"groupList": sorted(groups)})


def decode_group_list(data: bytes) -> list[str]:
    """Read a GroupList. Raises JsonError."""
    return fields.texts(fastjson.read_object(data), "groupList")
