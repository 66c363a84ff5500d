"""Topics, as RocketMQ's tool shows and changes them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING

from roquet.admin.topics import unknown_topic
from roquet.base.errors import Refused, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.exports import day
from roquet.cli.mqadmin.shared import (
    attribute_changes,
    java_bool,
    java_map,
    java_order,
    java_time,
    listed,
    number,
    pretty,
    targets,
    truth,
)
from roquet.model.attributes import MESSAGE_TYPE
from roquet.model.queue import MessageQueue
from roquet.model.topic import TopicConfig, perm_text
from roquet.protocol import names
from roquet.protocol.bodies.stats import TopicOffset
from roquet.protocol.bodies.topics import topic_of
from roquet.protocol.fastjson import JsonError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from roquet.admin import Admin

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
    if options.cluster is None:
        offsets, put_tps = await admin.topics.stats(options.topic)
    else:
        # As the tool does, each master of the cluster is asked, and the rate is left out.
        put_tps, found = 0.0, dict[MessageQueue, TopicOffset]()
        for name in await admin.brokers.masters(cluster=options.cluster.strip()):
            found |= await admin.topics.offsets_on(options.topic, name)
        offsets = dict(sorted(found.items()))
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


async def update_topic_list(admin: Admin, options: argparse.Namespace) -> int:
    """Create or change the topics of a file, on one broker or on every master of a cluster."""
    try:
        configs = [topic_of(it) for it in listed(options.filename, "topicConfigTable")]
    except JsonError as error:
        raise UsageError(f"-f: {error}") from error
    for name, address in (await targets(admin, options)).items():
        await admin.topics.put_all(configs, brokers=[name])
        output.line(
            f"submit batch of topic config to {address} success, please check the result later."
        )
    return 0


async def update_order_conf(admin: Admin, options: argparse.Namespace) -> int:
    """Show, set or delete on which brokers a topic has how many queues in order."""
    topic, method = options.topic.strip(), options.method.strip()
    if method == "get":
        found = await admin.name_servers.get(ORDER_TOPICS, topic)
        output.line(f"get orderConf success. topic=[{topic}], orderConf=[{found}]")
    elif method == "put":
        conf = (options.orderConf or "").strip()
        if not conf:
            raise UsageError("-m put needs -v, as broker-a:4;broker-b:4")
        await admin.name_servers.put(ORDER_TOPICS, topic, conf)
        output.line(f"update orderConf success. topic=[{topic}], orderConf=[{conf}]")
    elif method == "delete":
        await admin.name_servers.delete(ORDER_TOPICS, topic)
        output.line(f"delete orderConf success. topic=[{topic}]")
    else:
        raise UsageError(f"-m {method[:40]!r}: one of get, put, delete")
    return 0


_STATS = "{:<64}  {:<64} {:>12} {:>11} {:>11} {:>14} {:>14}"


async def stats_all(admin: Admin, options: argparse.Namespace) -> int:
    """Print rates, the messages of a day and the lag of every topic and group."""
    head = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS")
    output.line(_STATS.format(*head, "#InMsg24Hour", "#OutMsg24Hour"))
    for topic in await admin.topics.names():
        if names.is_retry(topic) or names.is_dlq(topic) or options.topic not in (None, topic):
            continue
        # It may be gone since it was listed, or have no master now.
        with contextlib.suppress(Refused):
            await _stats_of(admin, topic, active=options.activeTopic)
    return 0


async def _stats_of(admin: Admin, topic: str, *, active: bool) -> None:
    route = await admin.topics.route(topic)
    masters = [it.master for it in route.brokers if it.master is not None]
    came, count = await _traffic(admin, masters, "TOPIC_PUT_NUMS", topic)
    groups = await admin.topics.groups(topic)
    if not groups and (count or not active):
        row = (topic[:64], "", 0, f"{came:.2f}", "", count, "NO_CONSUMER")
        output.line(_STATS.format(*row))
    for group in groups:
        went, taken = await _traffic(admin, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        lag = 0
        with contextlib.suppress(Refused):
            lag = max(0, await admin.groups.lag(group, topic))
        if count or taken or not active:
            rates = (f"{came:.2f}", f"{went:.2f}")
            output.line(_STATS.format(topic[:64], group[:64], lag, *rates, count, taken))


async def _traffic(
    admin: Admin, masters: Iterable[str], statistics: str, key: str
) -> tuple[float, int]:
    """Return the rate of the last minute and the messages of a day, of all masters."""
    rate, count = 0.0, 0
    for address in masters:
        with contextlib.suppress(Refused):
            found = await admin.brokers.statistics(address, statistics, key)
            rate += found["statsMinute"].tps
            count += day(found)
    return rate, count
