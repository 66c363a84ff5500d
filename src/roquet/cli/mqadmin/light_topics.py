"""Light topics, as RocketMQ's tool shows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError
from roquet.cli import output
from roquet.cli.mqadmin.shared import java_bool, java_order, java_time, number, targets
from roquet.protocol.light import light_topics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from roquet.admin import Admin
    from roquet.protocol.bodies.light_topics import Lag, LightGroup

_BROKER = "{:<30} {:<17} {:<10} {:<14} {:<20} {:<17} {:<15} {:<18} {:<15}"
_PARENT = "{:<50} {:<8} {:<14} {:<14} {:<100} "
_TOPIC = "{:<50} {:<14} {:<14} {:<30} {:<12} {:<18} "
_CLIENT = "{:<30} {:<20} {:<30} {:<30} "
_OFFSETS = "{:<50} {:<16} {:<16} {:<16} {:<30}"
_LAG = "{:<6} {:<40} {:<12} {:<30}"


async def broker_info(admin: Admin, options: argparse.Namespace) -> int:
    """Print counters of a broker, or of a cluster's masters."""
    titles = ("Broker", "Store Type", "Max LMQ", "Current LMQ", "SubscriptionCount")
    more = ("OrderInfoCount", "CQTableSize", "OffsetTableSize", "eventMapSize")
    output.line(_BROKER.format(*(f"#{title}" for title in (*titles, *more))))
    for address in (await targets(admin, options)).values():
        try:
            it = await admin.light_topics.of_broker(address)
        except RoquetError:
            output.line(f"[{address}] error.")
            continue
        counts = (it.queues_max, it.queues, it.subscriptions, it.orders)
        sizes = (it.queue_tables, it.offsets, it.clients)
        output.line(_BROKER.format(address, it.store_type, *counts, *sizes))
        if options.showDetail:
            parents = {name: it.parents[name] for name in java_order(it.parents)}
            groups = {name: java_order(it.groups[name]) for name in java_order(it.groups)}
            output.line(f"Topic Meta: {json.dumps(parents, separators=(',', ':'))}")
            output.line(f"Group Meta: {json.dumps(groups, separators=(',', ':'))}\n")
    return 0


async def parent_info(admin: Admin, options: argparse.Namespace) -> int:
    """Print a parent topic, broker by broker."""
    parent = options.parentTopic.strip()
    brokers = await admin.light_topics.brokers_of(parent)
    output.line(f"Parent Topic Info: [{parent}]")
    titles = ("#Broker Name", "#TTL", "#Lite Count", "#LMQ NUM", "#GROUPS")
    output.line(_PARENT.format(*titles))
    for broker, address in brokers.items():
        try:
            it = await admin.light_topics.of_parent(address, parent)
        except RoquetError:
            output.line(f"[{broker}] error.")
            continue
        groups = "null" if it.groups is None else _list(java_order(it.groups))
        output.line(_PARENT.format(broker, it.minutes, it.light_topics, it.queues, groups))
    return 0


async def topic_info(admin: Admin, options: argparse.Namespace) -> int:
    """Print offsets and subscribers of a light topic, broker by broker."""
    parent, name = options.parentTopic.strip(), options.liteTopic.strip()
    brokers = await admin.light_topics.brokers_of(parent)
    queue = light_topics.queue_of(parent, name)
    output.line(f"Lite Topic Info: [{parent}] [{name}] [{queue}]")
    titles = ("#Broker Name", "#MinOffset", "#MaxOffset", "#LastUpdate", "#Sharding")
    output.line(_TOPIC.format(*titles, "#SubClientCount"))
    for broker, address in brokers.items():
        try:
            it = await admin.light_topics.of_topic(address, parent, name)
        except RoquetError:
            output.line(f"[{broker}] error.")
            continue
        bounds = (it.min_offset, it.max_offset, _time(it.newest_ms, "-"))
        here, count = java_bool(it.is_here), len(it.subscribers)
        output.line(_TOPIC.format(broker, *bounds, here, count))
        if options.showClientId:
            output.line(_list([f"{client}@{group}" for client, group in it.subscribers]))
    return 0


async def client_info(admin: Admin, options: argparse.Namespace) -> int:
    """Print a client's subscription, broker by broker."""
    parent, group = options.parentTopic.strip(), options.group.strip()
    client = options.clientId.strip()
    brokers = await admin.light_topics.brokers_of(parent)
    output.line(f"Lite Client Info: [{parent}] [{group}] [{client}]")
    output.line(_CLIENT.format("#Broker", "#LiteTopicCount", "#LastAccessTime", "#LastConsumeTime"))
    for broker, address in brokers.items():
        try:
            it = await admin.light_topics.of_client(address, parent, group, client)
        except RoquetError:
            output.line(f"[{broker}] error.")
            continue
        count = it.count if it.count > 0 else "N/A"
        output.line(_CLIENT.format(broker, count, _time(it.asked_ms, "N/A"), "N/A"))
        if options.showDetail and it.queues is not None:
            output.line(f"Lite Topics: {_list(java_order(it.queues))}\n")
    return 0


async def group_info(admin: Admin, options: argparse.Namespace) -> int:
    """Print how far a group is behind."""
    parent, group = options.parentTopic.strip(), options.group.strip()
    name = None if options.liteTopic is None else options.liteTopic.strip() or None
    top = number(options.topK, "-k", 20)
    brokers = await admin.light_topics.brokers_of(parent)
    output.line(f"Lite Group Info: [{group}] [{parent}]")
    if name is not None:
        titles = ("#Broker Name", "#BrokerOffset", "#ConsumeOffset", "#LagCount", "#LastUpdate")
        output.line(_OFFSETS.format(*titles))
    found: list[LightGroup] = []
    for broker, address in brokers.items():
        try:
            it = await admin.light_topics.of_group(address, group, name, top=top)
        except RoquetError:
            output.line(f"[{broker}] error.")
            continue
        found.append(it)
        if name is not None:
            _print_offsets(broker, it)
    now_ms = SystemClock().now_ms()
    oldest = [it.oldest_ms for it in found if it.oldest_ms > 0]
    oldest_ms = min(oldest, default=now_ms)
    total = sum(max(0, it.total) for it in found)
    output.line(f"Total Lag Count: {total}")
    ago_s = (now_ms - oldest_ms) // 1000
    output.line(f"Min Unconsumed Timestamp: {oldest_ms} ({ago_s} s ago)\n")
    if name is None:
        by_lag = [lag for it in found for lag in it.by_lag or ()]
        by_age = [lag for it in found for lag in it.by_age or ()]
        output.line("------TopK by lag count-----")
        _print_lags(sorted(by_lag, key=lambda it: -it.lag))
        output.line("\n------TopK by lag time------")
        _print_lags(sorted(by_age, key=lambda it: it.oldest_ms))
    return 0


async def trigger_dispatch(admin: Admin, options: argparse.Namespace) -> int:
    """Have brokers note everything that is there for a group, or for one client of it."""
    parent, group = options.parentTopic.strip(), options.group.strip()
    client, chosen = options.clientId, options.brokerName
    brokers = await admin.light_topics.brokers_of(parent)
    output.line(f"Group And Topic Info: [{group}] [{parent}]\n")
    for broker, address in brokers.items():
        if chosen is not None and broker != chosen.strip():
            continue
        try:
            await admin.light_topics.dispatch(address, group, client)
        except RoquetError:
            output.line(f"{broker:<30} {'error':<12}")
        else:
            output.line(f"{broker:<30} {'dispatched':<12}")
    return 0


def _print_offsets(broker: str, it: LightGroup) -> None:
    if it.offsets is None:
        output.line(_OFFSETS.format(broker, "-", "-", "-", "-"))
        return
    end, committed, last_ms = it.offsets
    output.line(_OFFSETS.format(broker, end, committed, end - committed, _time(last_ms, "-")))


def _print_lags(lags: Sequence[Lag]) -> None:
    output.line(_LAG.format("NO", "Lite Topic", "Lag Count", "UnconsumedTimestamp"))
    for place, it in enumerate(lags, 1):
        output.line(_LAG.format(place, it.name, it.lag, _time(it.oldest_ms, "-")))


def _time(time_ms: int, none: str) -> str:
    return java_time(time_ms, millis=True) if time_ms > 0 else none


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"
