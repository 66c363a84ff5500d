"""What a consumer tells tools about itself (GET_CONSUMER_RUNNING_INFO; spec: client.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.protocol import versions
from roquet.protocol.bodies.clients import ConsumerData, subscription_json
from roquet.protocol.bodies.stats import RunningInfo
from roquet.protocol.command import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.client._queues.process_queue import ProcessQueue
    from roquet.model.subscription import SubscriptionData


def running_info(
    *,
    name_servers: tuple[str, ...],
    started_ms: int,
    ordered: bool,
    subscriptions: Iterable[SubscriptionData],
    queues: Iterable[tuple[ProcessQueue, int | None]],
) -> RunningInfo:
    """Put together the report; names and the spelling `droped` are those on the wire."""
    subscribed = tuple(subscriptions)
    idle = {
        "consumeFailedMsgs": 0,
        "consumeFailedTPS": 0.0,
        "consumeOKTPS": 0.0,
        "consumeRT": 0.0,
        "pullRT": 0.0,
        "pullTPS": 0.0,
    }
    return RunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(name_servers),
            "PROP_CONSUME_TYPE": str(ConsumeType.PASSIVELY),
            "PROP_CLIENT_VERSION": versions.describe(VERSION),
            "PROP_CONSUMEORDERLY": "true" if ordered else "false",
            "PROP_THREADPOOL_CORE_SIZE": "1",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        },
        subscriptions=tuple(subscription_json(it) for it in subscribed),
        queues={held.queue: _queue(held, offset) for held, offset in queues},
        status={it.topic: dict(idle) for it in subscribed},
    )


def consumer_data(
    group: str, subscriptions: tuple[SubscriptionData, ...], start: int | str, *, broadcast: bool
) -> ConsumerData:
    """Return what heartbeats say of a push consumer."""
    where = _FROM_WHERE[start] if isinstance(start, str) else ConsumeFromWhere.TIMESTAMP
    return ConsumerData(
        group=group,
        consume_type=ConsumeType.PASSIVELY,
        message_model=MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING,
        consume_from_where=where,
        subscriptions=subscriptions,
    )


_FROM_WHERE = {
    "latest": ConsumeFromWhere.LAST_OFFSET,
    "earliest": ConsumeFromWhere.FIRST_OFFSET,
}


def _queue(held: ProcessQueue, offset: int | None) -> dict[str, Any]:
    low, high = held.bounds
    return {
        "cachedMsgCount": held.count,
        "cachedMsgMaxOffset": high,
        "cachedMsgMinOffset": low,
        "cachedMsgSizeInMiB": held.size // (1024 * 1024),
        "commitOffset": -1 if offset is None else offset,
        "droped": held.dropped,
        "lastConsumeTimestamp": held.last_consume_ms,
        "lastLockTimestamp": held.last_lock_ms,
        "lastPullTimestamp": held.last_pull_ms,
        "locked": held.locked_at_ms is not None,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }
