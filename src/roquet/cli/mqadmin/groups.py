"""Consumer groups, as RocketMQ's tool shows and changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.cli import output
from roquet.cli.mqadmin.shared import (
    attribute_changes,
    java_bool,
    java_map,
    java_time,
    listed,
    number,
    targets,
    truth,
)
from roquet.model.group import RetryPolicy, SubscriptionGroupConfig
from roquet.model.request_mode import GroupRequestMode, RequestMode
from roquet.protocol import fastjson, names
from roquet.protocol.bodies.groups import group_of
from roquet.protocol.codes import ResponseCode
from roquet.protocol.fastjson import JsonError
from roquet.protocol.versions import describe

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from roquet.admin import Admin
    from roquet.model.queue import MessageQueue
    from roquet.protocol.bodies.clients import Connection, ConsumerConnection
    from roquet.protocol.bodies.stats import ConsumeOffset


async def update_sub_group(admin: Admin, options: argparse.Namespace) -> int:
    """Create a group, or change it to this."""
    attributes = attribute_changes(options.attributes, "--attributes")
    config = SubscriptionGroupConfig(
        name=options.groupName.strip(),
        consume_enable=truth(options.consumeEnable, default=True),
        consume_from_min_enable=truth(options.consumeFromMinEnable, default=False),
        consume_broadcast_enable=truth(options.consumeBroadcastEnable, default=False),
        consume_message_orderly=truth(options.consumeMessageOrderly, default=False),
        retry_queues=number(options.retryQueueNums, "-q", 1),
        retry_max_times=number(options.retryMaxTimes, "-r", 16),
        retry_policy=_policy_given(options.groupRetryPolicy),
        broker_id=number(options.brokerId, "-i", 0),
        which_broker_when_consume_slowly=number(options.whichBrokerWhenConsumeSlowly, "-w", 1),
        notify_consumer_ids_changed_enable=truth(options.notifyConsumerIdsChanged, default=True),
        attributes={key[1:]: value for key, value in attributes.items() if key[0] == "+"},
    )
    removed = [key[1:] for key in attributes if key[0] == "-"]
    for name, address in (await targets(admin, options)).items():
        await admin.groups.put(config, brokers=[name], removed=removed)
        output.line(f"create subscription group to {address} success.")
    output.line(
        f"SubscriptionGroupConfig{{groupName={config.name},"
        f" consumeEnable={java_bool(config.consume_enable)},"
        f" consumeFromMinEnable={java_bool(config.consume_from_min_enable)},"
        f" consumeBroadcastEnable={java_bool(config.consume_broadcast_enable)},"
        f" consumeMessageOrderly={java_bool(config.consume_message_orderly)},"
        f" retryQueueNums={config.retry_queues}, retryMaxTimes={config.retry_max_times},"
        f" groupRetryPolicy={_policy(config.retry_policy)},"
        f" brokerId={config.broker_id},"
        f" whichBrokerWhenConsumeSlowly={config.which_broker_when_consume_slowly},"
        " notifyConsumerIdsChangedEnable="
        f"{java_bool(config.notify_consumer_ids_changed_enable)},"
        f" groupSysFlag={config.sys_flag}, consumeTimeoutMinute={config.consume_timeout_minute},"
        f" subscriptionDataSet=null, attributes={java_map(attributes)}}}"
    )
    return 0


def _policy_given(text: str | None) -> RetryPolicy:
    """Read a retry policy that is given as JSON. Raises UsageError."""
    if text is None:
        return RetryPolicy()
    try:
        return group_of({"groupRetryPolicy": fastjson.read_object(text.encode())}).retry_policy
    except JsonError as error:
        raise UsageError(f"-p: {error}") from error


async def delete_sub_group(admin: Admin, options: argparse.Namespace) -> int:
    """Delete a group, of a cluster with its retry and dead-letter topics."""
    group, cluster = options.groupName.strip(), options.clusterName
    offsets = truth(options.removeOffset, default=False)
    for name, address in (await targets(admin, options)).items():
        await admin.groups.delete(group, offsets=offsets, brokers=[name])
        where = f" in cluster [{cluster}]" if options.brokerAddr is None else ""
        output.line(f"delete subscription group [{group}] from broker [{address}]{where} success.")
    if options.brokerAddr is None:
        for topic in (names.retry_topic(group), names.dlq_topic(group)):
            await admin.topics.delete(topic, cluster=cluster)
    return 0


async def consumer_connection(admin: Admin, options: argparse.Namespace) -> int:
    """Print the members of a group, and what they are subscribed to."""
    broker = None if options.brokerAddr is None else options.brokerAddr.strip()
    online = await admin.groups.connection(options.consumerGroup, broker=broker)
    if online is None:
        text = f"Not found the consumer group connection: {options.consumerGroup[:80]}"
        raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, text)
    output.line(f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version")
    for it in online.connections:
        output.line(
            f"{it.client_id:<36} {it.client_address:<22} {it.language:<10} {describe(it.version)}"
        )
    output.line("\nBelow is subscription:")
    output.line(f"{'#Topic':<20} #SubExpression")
    for topic, subscription in sorted(online.subscriptions.items()):
        output.line(f"{topic:<20} {output.plain(subscription.expression)}")
    output.line("")
    output.line(f"ConsumeType: {online.consume_type}")
    output.line(f"MessageModel: {online.message_model}")
    output.line(f"ConsumeFromWhere: {online.consume_from_where}")
    return 0


async def producer_connection(admin: Admin, options: argparse.Namespace) -> int:
    """Print the members of a producer group."""
    route = await admin.topics.route(options.topic)
    found: dict[str, Connection] = {}
    refusal: Refused | None = None
    for broker in route.brokers:
        if broker.master is None:
            continue
        try:
            members = await admin.brokers.producer_connections(broker.master, options.producerGroup)
        except Refused as error:
            refusal = error
            continue
        found |= {it.client_id: it for it in members}
    if not found and refusal is not None:
        raise refusal
    for place, it in enumerate(found.values(), 1):
        output.line(
            f"{place:04d}  {it.client_id:<32} {it.client_address:<22} {it.language:<8}"
            f" {describe(it.version)}"
        )
    return 0


async def consumer_progress(admin: Admin, options: argparse.Namespace) -> int:
    """Print how far a group is in each queue, or a line for each group."""
    if options.groupName is None:
        return await _all_progress(admin)
    brokers = None
    if options.cluster is not None:
        found = await admin.topics.route(options.cluster.strip())
        brokers = [it.broker_name for it in found.brokers if it.master is not None]
    offsets, tps = await admin.groups.progress(
        options.groupName.strip(), options.topicName, brokers=brokers, retries=False
    )
    if not offsets and options.topicName is None and not await admin.groups.get(options.groupName):
        text = f"there is no group {options.groupName[:80]}"
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    owners = None
    if truth(options.showClientIP, default=False):
        owners = await _owners(admin, options.groupName.strip())
    lag, flying = _print_progress(offsets, owners)
    output.line("")
    output.line(f"Consume TPS: {tps:.2f}")
    output.line(f"Consume Diff Total: {lag}")
    output.line(f"Consume Inflight Total: {flying}")
    return 0


def _print_progress(
    offsets: Mapping[MessageQueue, ConsumeOffset], owners: Mapping[MessageQueue, str] | None
) -> tuple[int, int]:
    """Print a line for each queue; return the lag, and how many are in flight, of all."""
    place_widths = "{:<64}  {:<32}  {:<4}  {:<20}  {:<20}  "
    end = "{:<20} {:<20}{}" if owners is None else "{:<20} {:<20} {:<20}{}"
    widths = place_widths + end
    head = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    client = () if owners is None else ("#Client IP",)
    output.line(widths.format(*head, *client, "#Diff", "#Inflight", "#LastTime"))
    if owners is not None:
        widths = widths.removesuffix("{}") + " {}"
    lag = flying = 0
    for queue, at in offsets.items():
        diff, inflight = at.broker_offset - at.consumer_offset, at.pull_offset - at.consumer_offset
        lag, flying = lag + diff, flying + max(0, inflight)
        last = java_time(at.last_timestamp, millis=False) if at.last_timestamp > 0 else "N/A"
        place = (queue.topic[:64], queue.broker_name[:32], queue.queue_id)
        bounds = (at.broker_offset, at.consumer_offset)
        client = () if owners is None else (owners.get(queue, "N/A"),)
        output.line(widths.format(*place, *bounds, *client, diff, inflight, last))
    return lag, flying


async def _owners(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """Return the host of the member that has each queue, as its client id says."""
    online = await admin.groups.connection(group)
    found: dict[MessageQueue, str] = {}
    for it in () if online is None else online.connections:
        try:
            info = await admin.groups.running_info(group, it.client_id)
        except (Refused, Unreachable, OutcomeUnknown) as error:
            output.error(f"{it.client_id}: {error}")
            continue
        found |= dict.fromkeys(info.queues, output.plain(it.client_id.partition("@")[0]))
    return found


async def _all_progress(admin: Admin) -> int:
    widths = "{:<64}  {:<6}  {:<24} {:<5}  {:<14}  {:<7}  {}"
    head = ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    output.line(widths.format(*head))
    rows: list[tuple[int, int, str]] = []
    for topic in await admin.topics.names():
        if not names.is_retry(topic):
            continue
        group = topic.removeprefix(names.RETRY_PREFIX)
        offsets, tps = await admin.groups.progress(group, retries=False)
        online = await admin.groups.connection(group)
        diff = sum(it.broker_offset - it.consumer_offset for it in offsets.values())
        count, version, kind, model = _online(online)
        text = widths.format(group[:64], count, version, kind, model, int(tps), diff)
        rows.append((-count, -diff, text))
    for *_, text in sorted(rows):
        output.line(text)
    return 0


def _online(online: ConsumerConnection | None) -> tuple[int, str, str, str]:
    if online is None or not online.connections:
        return 0, "OFFLINE", "", ""
    kind = "PUSH" if str(online.consume_type).endswith("PASSIVELY") else "PULL"
    version = describe(min(it.version for it in online.connections))
    return len(online.connections), version, kind, str(online.message_model)


# --- where groups go on --------------------------------------------------------------------------


async def reset_offset_by_time(admin: Admin, options: argparse.Namespace) -> int:
    """Have a group go on at a time, in all queues or in one."""
    group, topic = options.group.strip(), options.topic.strip()
    text = options.timestamp.strip()
    if options.broker is not None and options.queue is not None:
        return await _one_queue(admin, options)
    time_ms = SystemClock().now_ms() if text == "now" else number(text, "-s", 0)
    if not await admin.groups.get(group):
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
    force = truth(options.force, default=True)
    output.line(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}],"
        f" force[{java_bool(force)}], timestamp(string)[{text}], timestamp(long)[{time_ms}]"
    )
    to: str | int = "latest" if text in ("now", "-1") else time_ms
    await _moved(admin, group, topic, to, force=force)
    return 0


async def _one_queue(admin: Admin, options: argparse.Namespace) -> int:
    group, topic = options.group.strip(), options.topic.strip()
    offset = number(options.offset, "-o", -1)
    if offset < 0:
        raise UsageError("-b and -q need -o, an offset")
    known = (await admin.brokers.cluster()).brokers
    at = [name for name, data in known.items() if options.broker in data.addresses.values()]
    if not at:
        raise UsageError(f"no broker at {options.broker[:80]} is registered")
    queue = number(options.queue, "-q", 0)
    output.line(
        f"start reset consumer offset by specified, group[{group}], topic[{topic}],"
        f" queueId[{queue}], broker[{options.broker}], timestamp(string)[{options.timestamp}],"
        f" timestamp(long)[{number(options.timestamp, '-s', 0)}]"
    )
    steps = await admin.groups.preview_seek(group, topic, offset, queue=(at[0], queue))
    await admin.groups.take_steps(group, topic, steps)
    output.line(f"reset consumer offset to {offset}")
    return 0


async def skip_accumulated_message(admin: Admin, options: argparse.Namespace) -> int:
    """Have a group go on at the end of a topic."""
    force = truth(options.force, default=True)
    await _moved(admin, options.group.strip(), options.topic.strip(), "latest", force=force)
    return 0


async def _moved(admin: Admin, group: str, topic: str, to: str | int, *, force: bool) -> None:
    """Move a group; without `force` only back. Print where each queue goes on."""
    steps = await admin.groups.preview_seek(group, topic, to)
    if not force:
        steps = [it for it in steps if it.repeated >= 0]
    await admin.groups.take_steps(group, topic, steps)
    output.line(f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}".rstrip())
    for it in steps:
        row = f"{it.queue.broker_name[:32]:<40}  {it.queue.queue_id:<40}  {it.then:<40}"
        output.line(row.rstrip())


async def clone_group_offset(admin: Admin, options: argparse.Namespace) -> int:
    """Give one group the offsets of another."""
    source, target, topic = (
        options.srcGroup.strip(),
        options.destGroup.strip(),
        options.topic.strip(),
    )
    offline = truth(options.offline, default=False)
    await admin.groups.clone_offsets(source, target, topic, offline=offline)
    output.line(
        f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]"
    )
    return 0


async def update_sub_group_list(admin: Admin, options: argparse.Namespace) -> int:
    """Create or change the groups of a file, on one broker or on every master of a cluster."""
    try:
        configs = [group_of(it) for it in listed(options.filename, "subscriptionGroupTable")]
    except JsonError as error:
        raise UsageError(f"-f: {error}") from error
    for name, address in (await targets(admin, options)).items():
        await admin.groups.put_all(configs, brokers=[name])
        output.line(
            f"submit batch of group config to {address} success, please check the result later."
        )
    return 0


async def set_consume_mode(admin: Admin, options: argparse.Namespace) -> int:
    """Say whether members of a group pull or pop a topic."""
    word = options.mode.strip()
    if word not in list(RequestMode):
        raise UsageError(f"-m {word[:40]!r}: one of {', '.join(RequestMode)}")
    share = number(options.popShareQueueNum, "-q", 0)
    topic, group = options.topicName.strip(), options.groupName.strip()
    mode = GroupRequestMode(topic=topic, group=group, mode=RequestMode(word), pop_share=share)
    for name, address in (await targets(admin, options)).items():
        await admin.groups.set_mode(mode, brokers=[name])
        output.line(f"set consume mode to {address} success.")
    output.line(f"topic[{topic}] group[{group}] consume mode[{word}] popShareQueueNum[{share}]")
    return 0


async def get_consumer_config(admin: Admin, options: argparse.Namespace) -> int:
    """Print how a group is configured on each broker."""
    group = options.groupName.strip()
    found = await admin.groups.get(group)
    if not found:
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"there is no group {group[:80]}")
    known = (await admin.brokers.cluster()).brokers
    for name, config in sorted(found.items()):
        output.line(f"{'=' * 29}{known[name].cluster}:{name}{'=' * 29}")
        fixed = "" if config.subscriptions is None else str(len(config.subscriptions))
        rows = {
            "groupName": config.name,
            "consumeEnable": java_bool(config.consume_enable),
            "consumeFromMinEnable": java_bool(config.consume_from_min_enable),
            "consumeBroadcastEnable": java_bool(config.consume_broadcast_enable),
            "consumeMessageOrderly": java_bool(config.consume_message_orderly),
            "retryQueueNums": config.retry_queues,
            "retryMaxTimes": config.retry_max_times,
            "groupRetryPolicy": _policy(config.retry_policy),
            "brokerId": config.broker_id,
            "whichBrokerWhenConsumeSlowly": config.which_broker_when_consume_slowly,
            "notifyConsumerIdsChangedEnable": java_bool(config.notify_consumer_ids_changed_enable),
            "groupSysFlag": config.sys_flag,
            "consumeTimeoutMinute": config.consume_timeout_minute,
            "subscriptionDataSet": fixed,
            "attributes": java_map(config.attributes),
        }
        for key, value in rows.items():
            output.line(f"{key:<40}=  {output.plain(str(value))}".rstrip())
    return 0


def _policy(policy: RetryPolicy) -> str:
    growing = custom = "null"
    if policy.initial_ms is not None:
        growing = (
            f"ExponentialRetryPolicy{{initial={policy.initial_ms}, max={policy.max_ms},"
            f" multiplier={policy.multiplier}}}"
        )
    if policy.next_ms is not None:
        custom = f"CustomizedRetryPolicy{{next={list(policy.next_ms)}}}"
    return (
        f"GroupRetryPolicy{{type={policy.type}, exponentialRetryPolicy={growing},"
        f" customizedRetryPolicy={custom}}}"
    )
