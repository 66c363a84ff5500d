"""Topics, as RocketMQ's tool shows and changes them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING

from roquet.admin.topics import unknown_topic
from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.shared import (
    attribute_changes,
    java_bool,
    java_map,
    java_order,
    java_time,
    number,
    pretty,
    targets,
    truth,
)
from roquet.model.attributes import MESSAGE_TYPE
from roquet.model.topic import TopicConfig, perm_text
from roquet.protocol import names

if TYPE_CHECKING:
    import argparse

    from roquet.admin import Admin
    from roquet.model.queue import MessageQueue

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"


async def topic_list(admin: Admin, options: argparse.Namespace) -> int:
    """List topics, with -c also their clusters and groups."""
    found = await admin.topics.names()
    if not options.clusterModel:
        for name in found:
            output.line(name)
        return 0
    output.line(f"{'#Cluster Name':<20}  {'#Topic':<48}  {'#Consumer Group':<48}")
    for name in found:
        if names.is_retry(name) or names.is_dlq(name):
            continue
        try:
            route = await admin.topics.route(name)
            groups = await admin.topics.groups(name)
        except Refused:
            continue
        cluster = next((it.cluster for it in route.brokers), "")
        for group in groups or [""]:
            output.line(f"{cluster[:20]:<20}  {name[:64]:<64}  {group[:64]:<64}")
    return 0


async def topic_route(admin: Admin, options: argparse.Namespace) -> int:
    """Print a topic's route as JSON, with -l as a table."""
    route = await admin.topics.route(options.topic)
    if options.list:
        widths = "{:<45}  {:<32} {:<50} {:<10}  {:<11} {:<5}"
        head = ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
        output.line(widths.format(*head))
        brokers = {it.broker_name: it for it in route.brokers}
        rows = sorted(route.queues, key=lambda it: it.broker_name)
        for it in rows:
            data = brokers[it.broker_name]
            where = ", ".join(f"{number}={at}" for number, at in sorted(data.addresses.items()))
            output.line(
                widths.format(
                    data.cluster,
                    it.broker_name,
                    f"{{{where}}}",
                    it.read_queues,
                    it.write_queues,
                    it.perm,
                )
            )
        output.line("-" * 158)
        reads, writes = (
            sum(getattr(it, f"{kind}_queues") for it in rows) for kind in ("read", "write")
        )
        output.line(widths.format("Total:", len(brokers), "", reads, writes, ""))
        return 0
    shown = {
        "brokerDatas": [
            {
                "brokerAddrs": dict(sorted(it.addresses.items())),
                "brokerName": it.broker_name,
                "cluster": it.cluster,
                "enableActingMaster": it.enable_acting_master,
            }
            for it in route.brokers
        ],
        "filterServerTable": {name: list(it) for name, it in route.filter_servers.items()},
        **({"orderTopicConf": route.order_topic_conf} if route.order_topic_conf else {}),
        "queueDatas": [
            {
                "brokerName": it.broker_name,
                "perm": it.perm,
                "readQueueNums": it.read_queues,
                "topicSysFlag": it.topic_sys_flag,
                "writeQueueNums": it.write_queues,
            }
            for it in route.queues
        ],
    }
    output.line(pretty(shown))
    return 0


async def topic_status(admin: Admin, options: argparse.Namespace) -> int:
    """Print the bounds of each queue."""
    offsets, put_tps = await admin.topics.stats(options.topic)
    widths = "{:<32}  {:<4}  {:<20}  {:<20}    {}"
    output.line(
        widths.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    )
    for queue, at in offsets.items():
        updated = java_time(at.last_update, millis=True) if at.last_update > 0 else ""
        output.line(
            widths.format(
                queue.broker_name[:32], queue.queue_id, at.min_offset, at.max_offset, updated
            )
        )
    output.line("")
    output.line(f"Topic Put TPS: {put_tps}")
    return 0


async def topic_cluster_list(admin: Admin, options: argparse.Namespace) -> int:
    """Print the clusters that a topic is in."""
    route = await admin.topics.route(options.topic)
    for name in sorted({it.cluster for it in route.brokers}):
        output.line(name)
    return 0


def _shown(config: TopicConfig, attributes: dict[str, str]) -> str:
    return (
        f"TopicConfig [topicName={config.name}, readQueueNums={config.read_queues},"
        f" writeQueueNums={config.write_queues}, perm={perm_text(config.perm)},"
        f" topicFilterType={config.filter_type}, topicSysFlag={config.sys_flag},"
        f" order={java_bool(config.order)}, attributes={java_map(attributes)}]"
    )


async def update_topic(admin: Admin, options: argparse.Namespace) -> int:
    """Create a topic, or change it to this."""
    attributes = attribute_changes(options.attributes, "-a")
    unit, subscribed = truth(options.unit, default=False), truth(options.hasUnitSub, default=False)
    config = TopicConfig(
        name=options.topic.strip(),
        read_queues=number(options.readQueueNums, "-r", 8),
        write_queues=number(options.writeQueueNums, "-w", 8),
        perm=number(options.perm, "-p", 6),
        sys_flag=int(unit) | int(subscribed) << 1,
        order=truth(options.order, default=False),
        attributes={key[1:]: value for key, value in attributes.items() if key[0] == "+"},
    )
    removed = [key[1:] for key in attributes if key[0] == "-"]
    chosen = await targets(admin, options)
    for name, address in chosen.items():
        await admin.topics.put(config, brokers=[name], removed=removed)
        output.line(f"create topic to {address} success.")
    if config.order:
        order = ";".join(f"{name}:{config.write_queues}" for name in chosen)
        merged = order if options.clusterName else await _merged(admin, config.name, order)
        await admin.name_servers.put(ORDER_TOPICS, config.name, merged)
        what = "cluster" if options.clusterName else "broker"
        output.line(f"set {what} orderConf. isOrder=true, orderConf=[{order}]")
    output.line(_shown(config, attributes))
    return 0


async def _merged(admin: Admin, topic: str, order: str) -> str:
    """Return the order configuration with those of other brokers that it had."""
    try:
        before = await admin.name_servers.get(ORDER_TOPICS, topic)
    except Refused:
        before = None
    rows = dict(it.split(":", 1) for it in (before or "").split(";") if ":" in it)
    rows |= dict(it.split(":", 1) for it in order.split(";"))
    return ";".join(f"{name}:{count}" for name, count in rows.items())


async def update_topic_perm(admin: Admin, options: argparse.Namespace) -> int:
    """Change what clients may do with a topic."""
    perm = number(options.perm, "-p", 6)
    chosen = await targets(admin, options)
    before = await admin.topics.get(options.topic, brokers=chosen)
    if not before:
        raise unknown_topic(options.topic)
    for name, config in before.items():
        if config.perm == perm:
            output.line("new perm equals to the old one!")
            continue
        changed = dataclasses.replace(config, perm=perm)
        await admin.topics.put(changed, brokers=[name])
        output.line(f"update topic perm from {config.perm} to {perm} in {chosen[name]} success.")
        kept = {f"+{key}": it for key, it in config.attributes.items() if key == MESSAGE_TYPE}
        output.line(f"{_shown(changed, kept)}.")
    return 0


async def delete_topic(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a topic from a cluster."""
    await admin.topics.delete(options.topic, cluster=options.clusterName)
    output.line(f"delete topic [{options.topic}] from cluster [{options.clusterName}] success.")
    with contextlib.suppress(Refused):  # it may have no order configuration
        await admin.name_servers.delete(ORDER_TOPICS, options.topic)
    output.line(f"delete topic [{options.topic}] from NameServer success.")
    return 0


async def allocate_mq(admin: Admin, options: argparse.Namespace) -> int:
    """Show how queues would be spread over clients."""
    clients = [it.strip() for it in options.ipList.split(",") if it.strip()]
    if not clients:
        raise UsageError("-i is empty")
    queues = sorted(await admin.topics.queues(options.topic))
    share, rest = divmod(len(queues), len(clients))
    found: dict[str, list[MessageQueue]] = {}
    begin = 0
    for place, client in enumerate(clients):
        end = begin + share + (place < rest)
        found[client] = queues[begin:end]
        begin = end
    result = {
        client: [
            {"brokerName": it.broker_name, "queueId": it.queue_id, "topic": it.topic}
            for it in found[client]
        ]
        for client in java_order(found)
    }
    output.line(json.dumps({"result": result}, separators=(",", ":")))
    return 0
